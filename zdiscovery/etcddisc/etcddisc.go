// Package etcddisc is the zdiscovery.Discovery on etcd.
//
//	disc, err := etcddisc.New(etcddisc.Config{Endpoints: []string{"127.0.0.1:2379"}})
//
// # Keys
//
//	<prefix>/nodes/<id>                 JSON of zdiscovery.Node without its epoch, under the node's one lease
//	<prefix>/leaders/<name>/<lease>     a candidate: JSON of its NodeRef, under the same lease; the oldest leads
//	<prefix>/withdrawn/<lease>/<name>   empty, under the same lease; only after a candidacy that etcd did not answer
//
// The epoch of a node is the create revision of its key: etcd's revisions only rise, so it is greater than every epoch
// the id had before. Every write of a member compares it, so a member that lost its key cannot touch its successor's. The
// term of a leader is the create revision of its key, for the same reason. A candidate watches only the key before its
// own, so that the end of a leader wakes one.
//
// # Goroutines
//
// One for each membership (renews the lease), one for each Watch, one for each leadership (looks whether its key stays),
// one while a candidacy is taken back. They end with Leave or the lease, the watch's context, the leadership, or Close,
// which waits for them. The etcd client has some of its own, which end with Close.
//
// # Failure
//
// Each call is bounded by Config.RequestTimeout, also where an endpoint swallows everything. A lease is renewed by
// single calls, not by etcd's keep-alive stream, so there is nothing to hang or to close unexpectedly; before each
// the member looks whether the key is still its own. A watch that ends, that was compacted away, or that gives no
// sign of life is replaced by a full read of the list and a new watch from there.
package etcddisc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"zgame/internal/lograte"
	"zgame/zdiscovery"
	"zgame/zmsg"
)

// Disc is a client of etcd. Make it with New.
type Disc struct {
	// Set at construction.
	cfg    Config
	prefix string // of the nodes' keys
	client *clientv3.Client
	ctx    context.Context //nolint:containedctx // the client's life: ends with Close
	cancel context.CancelFunc

	up         atomic.Bool
	foreignLog lograte.Limiter

	life   sync.Mutex // guards closed, and that nothing is added to wg after it
	closed bool
	wg     sync.WaitGroup
}

var _ zdiscovery.Discovery = (*Disc)(nil)

// maxConnectBackoff is the longest wait between two attempts to connect to etcd.
const maxConnectBackoff = 2 * time.Second

// New makes the client. It does not connect yet. Errors are those of the Config.
func New(cfg Config) (*Disc, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            cfg.Endpoints,
		DialTimeout:          cfg.RequestTimeout, // of one attempt to connect; New does not wait for it
		DialKeepAliveTime:    10 * time.Second,   // gRPC's least
		DialKeepAliveTimeout: 5 * time.Second,
		Username:             cfg.Username,
		Password:             cfg.Password,
		TLS:                  cfg.TLS,
		Logger:               zap.NewNop(),
		// gRPC waits up to two minutes between attempts by default: after a long outage that would keep a node off the
		// list for as long.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxConnectBackoff},
			MinConnectTimeout: cfg.RequestTimeout,
		})},
	})
	if err != nil {
		return nil, fmt.Errorf("etcddisc: client for %s: %w", strings.Join(cfg.Endpoints, ","), err)
	}
	d := &Disc{cfg: cfg, prefix: cfg.Prefix + "/nodes/", client: client}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d, nil
}

// begin starts f on a goroutine that Close waits for. It reports false after Close.
func (d *Disc) begin(f func()) bool {
	d.life.Lock()
	defer d.life.Unlock()
	if d.closed {
		return false
	}
	d.wg.Go(f)
	return true
}

// call runs one call to etcd, bounded by the RequestTimeout, ctx and Close, and tells its error in the words of
// zdiscovery.
func (d *Disc) call(ctx context.Context, what string, limit time.Duration, f func(ctx context.Context) error) error {
	if d.ctx.Err() != nil {
		return zdiscovery.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	err := f(bounded)
	switch {
	case err == nil || isAnswer(err):
		d.setUp(true)
		return err
	case errors.Is(err, rpctypes.ErrRequestTooLarge): // its --max-request-bytes is below the default
		d.setUp(true)
		return fmt.Errorf("%w: etcddisc: %s: etcd at %s: %w", zdiscovery.ErrTooLarge, what, strings.Join(d.cfg.Endpoints, ","), err)
	case d.ctx.Err() != nil:
		return zdiscovery.ErrClosed
	}
	d.setUp(false)
	where := strings.Join(d.cfg.Endpoints, ",")
	if ctx.Err() != nil {
		return fmt.Errorf("etcddisc: %s: no answer from etcd at %s: %w: %w", what, where, zdiscovery.ErrUnavailable, ctx.Err())
	}
	return fmt.Errorf("etcddisc: %s: etcd at %s: %w: %w", what, where, zdiscovery.ErrUnavailable, err)
}

func (d *Disc) setUp(up bool) {
	if d.up.Swap(up) == up {
		return
	}
	if up {
		d.cfg.Metrics.Up.Set(1)
		d.cfg.Logger.Info("discovery answers", "endpoints", d.cfg.Endpoints)
	} else {
		d.cfg.Metrics.Up.Set(0)
		d.cfg.Logger.Warn("discovery does not answer", "endpoints", d.cfg.Endpoints)
	}
}

// Up implements zdiscovery.Discovery: whether the last call or sign of life of a watch succeeded.
func (d *Disc) Up() bool { return d.up.Load() && d.ctx.Err() == nil }

// Close implements zdiscovery.Discovery.
func (d *Disc) Close(ctx context.Context) error {
	d.life.Lock()
	d.closed = true
	d.life.Unlock()
	d.cancel()
	done := make(chan error, 1)
	go func() { // ends when the goroutines have, which d.cancel makes sure of
		d.wg.Wait()
		err := d.client.Close()
		if errors.Is(err, context.Canceled) { // the client's own context: closed before
			err = nil
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("etcddisc: close: %w", ctx.Err())
	}
}

// decode makes the Node of a key. Its Ref is set also where there is an error.
func (d *Disc) decode(kv *mvccpb.KeyValue) (zdiscovery.Node, error) {
	var n zdiscovery.Node
	err := json.Unmarshal(kv.Value, &n)
	n.Ref = zmsg.NodeRef{ID: strings.TrimPrefix(string(kv.Key), d.prefix), Epoch: uint64(kv.CreateRevision)}
	if err != nil {
		return n, fmt.Errorf("etcddisc: key %s: %w", kv.Key, err)
	}
	if err := zdiscovery.CheckID(n.Ref.ID); err != nil {
		return n, fmt.Errorf("etcddisc: key %.200s: %w", kv.Key, err)
	}
	return n, nil
}

// unreadable logs a key that nobody of ours has written.
func (d *Disc) unreadable(err error) {
	if suppressed, ok := d.foreignLog.Allow(time.Now()); ok {
		d.cfg.Logger.Warn("record of a node is not readable, left out", "err", err, "suppressed", suppressed)
	}
}

func encode(n zdiscovery.Node) (string, error) {
	n.Ref.Epoch = 0 // the key's create revision says it
	b, err := json.Marshal(n)
	if err != nil {
		return "", fmt.Errorf("etcddisc: node %s: %w", n.Ref.ID, err)
	}
	if len(b) > maxRecord {
		return "", tooLarge(n, len(b), maxRecord)
	}
	return string(b), nil
}

// maxRecord is what etcd takes in one request by default (--max-request-bytes), less the rest of the request.
const maxRecord = 1536<<10 - 4<<10

// tooLarge says that a record has more bytes than etcd takes, and what to do about it.
func tooLarge(n zdiscovery.Node, size, limit int) error {
	return fmt.Errorf("%w: etcddisc: node %s: %d bytes, of which etcd takes %d, with %d actors that handle message ids: "+
		"spawn those that are reached by their address with zactor.Private, or put one actor in front of many",
		zdiscovery.ErrTooLarge, n.Ref.ID, size, limit, len(n.Actors))
}
