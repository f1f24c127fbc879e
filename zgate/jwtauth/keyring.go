package jwtauth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"zgame/internal/lograte"
	"zgame/zgate"
)

// keyring has the keys of a source and loads them anew.
type keyring struct {
	// Set at construction.
	cfg    Config
	fixed  bool            // the keys are in the configuration
	ctx    context.Context //nolint:containedctx // the ring's own life: ends a load when Close is called
	cancel context.CancelFunc

	set atomic.Pointer[keySet]
	log lograte.Limiter

	mu      sync.Mutex
	begun   time.Time     // of the last load, monotonic; guarded by mu
	loading chan struct{} // closed when the running load has ended, nil when there is none; guarded by mu
	closed  bool          // guarded by mu
	wg      sync.WaitGroup
}

func newKeyring(cfg Config) *keyring {
	k := &keyring{cfg: cfg}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.log.Every = time.Minute
	if len(cfg.Secret) > 0 {
		k.fixed = true
		k.set.Store(&keySet{{alg: HS256, data: append([]byte(nil), cfg.Secret...)}})
	}
	return k
}

// first loads for New.
func (k *keyring) first(ctx context.Context) error {
	if k.fixed {
		return nil
	}
	k.begun = time.Now()
	return k.load(ctx)
}

// find returns the keys for a token. When they are old, they are loaded anew beside; when there is none of that name, ctx
// bounds how long a load is waited for.
func (k *keyring) find(ctx context.Context, alg, kid string) []jwt.VerificationKey {
	set := *k.set.Load()
	if k.fixed {
		return set.find(alg, kid)
	}
	known := set.named(alg, kid)
	if done := k.reload(known); done != nil && !known {
		select {
		case <-done:
			set = *k.set.Load()
		case <-ctx.Done():
		}
	}
	return set.find(alg, kid)
}

// reload starts a load if it is time for one. It returns what is closed when the load that is running has ended, nil when none is.
func (k *keyring) reload(known bool) <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	after := k.cfg.MinRefresh
	if known {
		after = k.cfg.Refresh
	}
	if k.loading != nil || k.closed || time.Since(k.begun) < after {
		return k.loading
	}
	done := make(chan struct{})
	k.loading, k.begun = done, time.Now()
	// Owned by the ring; ends with the load, at the latest after LoadTimeout; close waits for it.
	k.wg.Go(func() {
		if err := k.load(k.ctx); err != nil {
			if n, ok := k.log.Allow(time.Now()); ok {
				k.cfg.Logger.Warn("keys of logins not loaded; those of the last time hold", "err", err, "suppressed", n)
			}
		}
		k.mu.Lock()
		k.loading = nil
		k.mu.Unlock()
		close(done)
	})
	return done
}

func (k *keyring) close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.cancel()
	k.wg.Wait()
}

// load reads the source. The error names it.
func (k *keyring) load(ctx context.Context) (err error) {
	var set keySet
	cfg := &k.cfg
	switch {
	case cfg.KeyFile != "":
		set, err = fromFile(cfg.KeyFile, func(b []byte) (keySet, error) { return parseKeyFile(b, cfg.Algorithms) })
	case cfg.JWKSFile != "":
		set, err = fromFile(cfg.JWKSFile, func(b []byte) (keySet, error) { return parseJWKS(b, cfg.Algorithms, true) })
	default:
		set, err = cfg.fetch(ctx)
	}
	if err != nil {
		cfg.Metrics.KeyLoads.With("failed").Inc()
		return fmt.Errorf("jwtauth: %w", err)
	}
	cfg.Metrics.KeyLoads.With("ok").Inc()
	cfg.Metrics.Keys.Set(float64(len(set)))
	k.set.Store(&set)
	return nil
}

func fromFile(path string, parse func([]byte) (keySet, error)) (keySet, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := readAll(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	set, err := parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return set, nil
}

func (c *Config) fetch(ctx context.Context) (keySet, error) {
	ctx, cancel := context.WithTimeout(ctx, c.LoadTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.JWKSURL, nil)
	if err != nil {
		return nil, errors.New("JWKSURL is no URL")
	}
	r.Header.Set("Accept", "application/jwk-set+json, application/json")
	name := r.URL.Redacted()
	resp, err := c.Client.Do(r)
	if err != nil {
		return nil, err // names the URL, without its password
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: expected status 200, got %s", name, resp.Status)
	}
	b, err := readAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	set, err := parseJWKS(b, c.Algorithms, false)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return set, nil
}

// readAll reads what a source may hold.
func readAll(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxSource+1))
	if err == nil && len(b) > maxSource {
		err = fmt.Errorf("expected at most %d bytes", maxSource)
	}
	return b, err
}

// checkRedirect keeps a redirect from leaving TLS.
func (c Config) checkRedirect(r *http.Request, via []*http.Request) error {
	switch {
	case len(via) >= 5:
		return errors.New("too many redirects")
	case r.URL.Scheme == "https" || c.InsecureJWKS || via[0].URL.Scheme == "http" && zgate.Loopback(r.URL.Hostname()):
		return nil
	default:
		return errors.New("redirect away from https")
	}
}
