package zgate

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"zgame/internal/lograte"
)

// certCheck is how often certificate files are looked at, when clients connect.
const certCheck = time.Second

// CertFiles is a certificate and its key in PEM files that may be replaced while the gate runs: new connections get what is there.
// Methods may be called from any goroutine.
type CertFiles struct {
	// Set at construction.
	cert, key string
	log       *slog.Logger
	warn      lograte.Limiter

	mu     sync.Mutex
	pair   *tls.Certificate
	looked time.Time // when the files were looked at
	seen   [2]stamp  // what they were like then
}

// stamp tells a file that has been replaced.
type stamp struct {
	at   time.Time
	size int64
}

// NewCertFiles loads the files; log, which may be nil, is told when they are loaded again, or why not. The error names the files.
func NewCertFiles(cert, key string, log *slog.Logger) (*CertFiles, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	f := &CertFiles{cert: cert, key: key, log: log}
	f.warn.Every = time.Minute
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen, _ = f.stat()
	f.looked = time.Now()
	return f, f.loadLocked()
}

// TLS returns settings for Config.TLS: these certificates, TLS 1.2 and later.
func (f *CertFiles) TLS() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.current(), nil },
	}
}

// current returns the certificate, loaded anew where the files have changed. While they cannot be loaded, as when only one of
// the two has been replaced yet, the last one that could is kept.
func (f *CertFiles) current() *tls.Certificate {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if now.Sub(f.looked) < certCheck {
		return f.pair
	}
	f.looked = now
	seen, err := f.stat()
	if err == nil && seen != f.seen {
		if err = f.loadLocked(); err == nil {
			f.seen = seen
			f.log.Info("certificate loaded again", "file", f.cert)
		}
	}
	if err != nil {
		if n, ok := f.warn.Allow(now); ok {
			f.log.Warn("certificate not loaded again; the last one is kept", "err", err, "suppressed", n)
		}
	}
	return f.pair
}

func (f *CertFiles) stat() (seen [2]stamp, err error) {
	for i, path := range []string{f.cert, f.key} {
		info, err := os.Stat(path)
		if err != nil {
			return seen, err
		}
		seen[i] = stamp{info.ModTime(), info.Size()}
	}
	return seen, nil
}

func (f *CertFiles) loadLocked() error {
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return fmt.Errorf("zgate: certificate %s with key %s: %w", f.cert, f.key, err)
	}
	f.pair = &pair
	return nil
}

// plaintextFault says why a gate without TLS must not listen there, "" if it may.
func plaintextFault(addr string, l net.Listener) string {
	if l != nil {
		if _, tcp := l.Addr().(*net.TCPAddr); !tcp {
			return "" // in memory, or a unix socket: not the network
		}
		addr = l.Addr().String()
	}
	if addr == "" || LoopbackHost(addr) {
		return ""
	}
	return fmt.Sprintf("%q is reached from other machines and TLS is nil: expected TLS, an address of this machine such as 127.0.0.1:7000, or "+
		"InsecurePlaintext behind a proxy that ends TLS", addr)
}

// LoopbackHost reports whether addr, "host:port", is reached from this machine alone: localhost, or an address of the loopback network.
func LoopbackHost(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	return Loopback(host)
}

// Loopback reports whether host, a name or an address without a port, is this machine alone. An IPv6 zone makes no difference.
func Loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || strings.EqualFold(host, "localhost")
}
