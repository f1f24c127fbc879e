package etcddisc

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// leadership is a candidate's time as the first of the line.
type leadership struct {
	// Set at construction.
	c      *candidate
	term   uint64
	lost   chan struct{}   // closed once by end
	life   context.Context //nolint:containedctx // ends with the leadership
	cancel context.CancelFunc

	once  sync.Once
	ended atomic.Pointer[time.Time] // nil while it lasts
}

// end is the end of acting as the leader; the key may be there still. It may be called more than once, and for nil.
func (l *leadership) end() {
	if l == nil {
		return
	}
	l.once.Do(func() {
		at := time.Now()
		if until := l.c.m.ServeUntil(); until.Before(at) {
			at = until
		}
		l.ended.Store(&at)
		close(l.lost)
		l.cancel()
	})
}

// run looks whether the key stays, until the leadership ends. That the lease is renewed is the member's business.
func (l *leadership) run() {
	d, c := l.c.m.disc, l.c
	defer c.takeOut()
	defer l.end()
	var p pauses
	for {
		kv, revision, err := d.look(l.life, c.key)
		switch {
		case l.life.Err() != nil:
			return
		case err == nil && (kv == nil || uint64(kv.CreateRevision) != l.term):
			d.cfg.Metrics.Elections.With("lost").Inc()
			d.cfg.Logger.Warn("leads no longer: the key is gone", "name", c.name, "term", l.term)
			return
		case err == nil:
			if _, lived := d.follow(l.life, c.key, revision, stays(kv)); lived {
				p.reset()
				continue
			}
		}
		if !p.wait(l.life) {
			return
		}
	}
}

// look reads one key, nil if it is not there, and says at which revision.
func (d *Disc) look(ctx context.Context, key string) (kv *mvccpb.KeyValue, revision int64, err error) {
	err = d.call(ctx, "look at "+key, d.cfg.RequestTimeout, func(ctx context.Context) error {
		r, err := d.client.Get(ctx, key)
		if err == nil {
			revision = r.Header.Revision
			if len(r.Kvs) > 0 {
				kv = r.Kvs[0]
			}
		}
		return err
	})
	return kv, revision, err
}

// Term implements zdiscovery.Leadership.
func (l *leadership) Term() uint64 { return l.term }

// Lost implements zdiscovery.Leadership.
func (l *leadership) Lost() <-chan struct{} { return l.lost }

// Until implements zdiscovery.Leadership.
func (l *leadership) Until() time.Time {
	if t := l.ended.Load(); t != nil {
		return *t
	}
	return l.c.m.ServeUntil()
}

// Resign implements zdiscovery.Leadership.
func (l *leadership) Resign(ctx context.Context) error {
	c := l.c
	mine := c.mayTakeOut()
	l.end()
	if !mine { // by an earlier call, or because the leadership is over
		select {
		case <-c.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.m.disc.cfg.Metrics.Elections.With("resigned").Inc()
	c.m.disc.cfg.Logger.Info("leads no longer: resigned", "name", c.name, "term", l.term)
	err := c.withdraw(ctx)
	if err == nil || !c.m.disc.begin(c.keepWithdrawing) {
		c.free()
	}
	return err
}
