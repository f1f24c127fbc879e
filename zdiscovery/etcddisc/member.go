package etcddisc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"zgame/zdiscovery"
	"zgame/zmsg"
)

// isAnswer reports whether err is an answer of etcd, not a failure to reach it.
func isAnswer(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }

// member is a node's place on the list.
type member struct {
	// Set at construction.
	disc  *Disc
	ref   zmsg.NodeRef
	key   string
	lease clientv3.LeaseID
	lost  chan struct{}   // closed once by lose
	quit  chan struct{}   // closed by Leave: the lease is not renewed any more
	ended chan struct{}   // closed when the renewing goroutine has ended
	life  context.Context //nolint:containedctx // ends when the member may not act any more: lost, left, or closed
	over  context.CancelFunc

	serveUntil atomic.Pointer[time.Time]
	loseOnce   sync.Once
	quitOnce   sync.Once
	left       atomic.Bool // the lease is revoked

	mu       sync.Mutex            // guards what follows
	finished bool                  // serveUntil does not rise any more
	names    map[string]*candidate // what it campaigns for, or leads
	guards   map[string]int64      // revisions of the guards of names, see candidate.withdraw
}

// Join implements zdiscovery.Discovery.
func (d *Disc) Join(ctx context.Context, n zdiscovery.Node) (zdiscovery.Member, error) {
	if err := zdiscovery.CheckID(n.Ref.ID); err != nil {
		return nil, err
	}
	value, err := encode(n)
	if err != nil {
		return nil, err
	}
	for {
		m, holder, err := d.tryJoin(ctx, n.Ref.ID, value)
		if err != nil || m != nil {
			if err != nil {
				return nil, err
			}
			return m, nil
		}
		if err := d.waitForEnd(ctx, holder); err != nil {
			return nil, err
		}
	}
}

// tryJoin creates the key unless it is there; then it returns the key's record.
func (d *Disc) tryJoin(ctx context.Context, id, value string) (*member, *mvccpb.KeyValue, error) {
	var lease clientv3.LeaseID
	var sent time.Time
	err := d.call(ctx, "grant of a lease", d.cfg.RequestTimeout, func(ctx context.Context) error {
		sent = time.Now()
		r, err := d.client.Grant(ctx, int64(d.cfg.TTL/time.Second))
		if err == nil {
			lease = r.ID
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	key := d.prefix + id
	var txn *clientv3.TxnResponse
	err = d.call(ctx, "registration", d.cfg.RequestTimeout, func(ctx context.Context) error {
		var err error
		txn, err = d.client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, value, clientv3.WithLease(lease))).
			Else(clientv3.OpGet(key)).
			Commit()
		return err
	})
	if err == nil && txn.Succeeded {
		m := &member{
			disc: d, ref: zmsg.NodeRef{ID: id, Epoch: uint64(txn.Header.Revision)}, key: key, lease: lease,
			lost: make(chan struct{}), quit: make(chan struct{}), ended: make(chan struct{}),
			names: make(map[string]*candidate), guards: make(map[string]int64),
		}
		m.life, m.over = context.WithCancel(d.ctx)
		m.renewed(sent)
		if !d.begin(m.run) { // the goroutine ends with Leave, the loss of the lease, or Close, which waits for it
			m.over()
			err = zdiscovery.ErrClosed
		} else {
			return m, nil, nil
		}
	}
	// Whether the key was written or not (the answer may have been lost), it goes with its lease.
	if e := d.revoke(context.WithoutCancel(ctx), "a lease", lease, min(time.Second, d.cfg.RequestTimeout)); e != nil {
		d.cfg.Logger.Info("lease not revoked, it ends by itself", "err", e)
	}
	if err != nil {
		return nil, nil, err
	}
	kvs := txn.Responses[0].GetResponseRange().GetKvs()
	if len(kvs) == 0 {
		return nil, nil, fmt.Errorf("etcddisc: registration of %s: etcd answered neither way", id)
	}
	return nil, kvs[0], nil
}

// revoke ends a lease, and all keys under it. A lease that is gone already is no error.
func (d *Disc) revoke(ctx context.Context, what string, lease clientv3.LeaseID, limit time.Duration) error {
	err := d.call(ctx, "revocation of "+what, limit, func(ctx context.Context) error {
		_, err := d.client.Revoke(ctx, lease)
		return err
	})
	if isAnswer(err) {
		return nil
	}
	return err
}

// waitForEnd returns nil when the holder's key is gone, and a TakenError when the holder is alive: it answers, or its
// lease, which would have ended by now, was renewed.
func (d *Disc) waitForEnd(ctx context.Context, kv *mvccpb.KeyValue) error {
	holder, err := d.decode(kv)
	if err != nil {
		holder.Ref = zmsg.NodeRef{ID: strings.TrimPrefix(string(kv.Key), d.prefix), Epoch: uint64(kv.CreateRevision)}
	}
	if err == nil && d.cfg.Gone(holder) { // before Alive: another program may have its ports by now
		d.cfg.Logger.Info("the process that had the node id has ended, its lease is revoked", "holder", holder.Ref.String())
		return d.revoke(ctx, "the predecessor's lease", clientv3.LeaseID(kv.Lease), d.cfg.RequestTimeout)
	}
	taken := &zdiscovery.TakenError{Holder: holder}
	if d.cfg.Alive(ctx, holder) {
		return taken
	}
	granted := d.cfg.TTL
	err = d.call(ctx, "look at the holder's lease", d.cfg.RequestTimeout, func(ctx context.Context) error {
		r, err := d.client.TimeToLive(ctx, clientv3.LeaseID(kv.Lease))
		if err == nil && r.GrantedTTL > 0 {
			granted = time.Duration(r.GrantedTTL) * time.Second
		}
		return err
	})
	if err != nil && !isAnswer(err) {
		return err
	}
	d.cfg.Logger.Info("node id is taken by a process that does not answer, waiting for its lease to end",
		"holder", holder.Ref.String(), "admin", holder.Admin, "gate", holder.Gate, "ttl", granted.String())
	// etcd looks for ended leases every half second; the rest is for a slow machine.
	limit := time.NewTimer(granted + granted/4 + 2*time.Second)
	defer limit.Stop()
	poll := time.NewTicker(max(granted/20, 50*time.Millisecond))
	defer poll.Stop()
	for {
		select {
		case <-poll.C:
		case <-limit.C:
			return taken
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", taken, ctx.Err())
		case <-d.ctx.Done():
			return zdiscovery.ErrClosed
		}
		now, err := d.get(ctx, string(kv.Key), d.cfg.RequestTimeout, clientv3.WithKeysOnly())
		switch {
		case err != nil:
			return err
		case now == nil:
			return nil
		case now.CreateRevision == kv.CreateRevision:
			continue
		}
		// Somebody else was faster, and is alive.
		if now, err = d.get(ctx, string(kv.Key), d.cfg.RequestTimeout); err == nil && now != nil {
			if n, err := d.decode(now); err == nil {
				taken.Holder = n
			}
		}
		return taken
	}
}

// get reads one key, nil if it is not there.
func (d *Disc) get(ctx context.Context, key string, limit time.Duration, opts ...clientv3.OpOption) (kv *mvccpb.KeyValue, err error) {
	err = d.call(ctx, "look at "+key, limit, func(ctx context.Context) error {
		r, err := d.client.Get(ctx, key, opts...)
		if err == nil && len(r.Kvs) > 0 {
			kv = r.Kvs[0]
		}
		return err
	})
	return kv, err
}

// run renews the lease until it is lost or not wanted any more.
func (m *member) run() {
	defer close(m.ended)
	d := m.disc
	every := d.cfg.TTL / 3
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-m.quit:
			return
		case <-m.lost:
			return
		case <-d.ctx.Done():
			return
		}
		next := every
		switch err := m.renew(); {
		case err == nil:
			d.cfg.Metrics.Renewals.With("ok").Inc()
		case errors.Is(err, zdiscovery.ErrLost):
			d.cfg.Metrics.Renewals.With("lost").Inc()
			m.lose()
			return
		default:
			d.cfg.Metrics.Renewals.With("failed").Inc()
			next = max(every/4, 50*time.Millisecond)
		}
		timer.Reset(next)
	}
}

// renew looks whether the key is still the member's, and renews the lease. It returns ErrLost where etcd says that
// either is gone. The look comes first because etcd's client tries a renewal again and again, without a pause, while
// there is no connection.
func (m *member) renew() error {
	d := m.disc
	limit := min(d.cfg.RequestTimeout, max(d.cfg.TTL/3, 500*time.Millisecond))
	kv, err := d.get(d.ctx, m.key, limit, clientv3.WithKeysOnly()) // the record may be large
	switch {
	case err != nil:
		return err
	case kv == nil || uint64(kv.CreateRevision) != m.ref.Epoch:
		return zdiscovery.ErrLost
	}
	sent := time.Now()
	err = d.call(d.ctx, "renewal of the lease", limit, func(ctx context.Context) error {
		_, err := d.client.KeepAliveOnce(ctx, m.lease)
		return err
	})
	switch {
	case err != nil && isAnswer(err):
		return zdiscovery.ErrLost
	case err != nil:
		return err
	}
	m.renewed(sent)
	return nil
}

// renewed notes a renewal that was sent then and acknowledged.
func (m *member) renewed(sent time.Time) {
	until := sent.Add(m.disc.cfg.TTL * 6 / 10)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.finished {
		m.serveUntil.Store(&until)
	}
}

// lose ends the membership: etcd said that it is over.
func (m *member) lose() {
	m.loseOnce.Do(func() {
		m.disc.cfg.Logger.Warn("membership is lost", "node", m.ref.String())
		m.finish()
		close(m.lost)
		m.end()
	})
}

// finish says that it serves no longer.
func (m *member) finish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.finished = true
	if now := time.Now(); m.ServeUntil().After(now) {
		m.serveUntil.Store(&now)
	}
}

// end ends what the member does under its lease: it campaigns for nothing any more, and leads nothing.
func (m *member) end() {
	m.over()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.names {
		c.lead.end()
	}
}

// Ref implements zdiscovery.Member.
func (m *member) Ref() zmsg.NodeRef { return m.ref }

// Lost implements zdiscovery.Member.
func (m *member) Lost() <-chan struct{} { return m.lost }

// ServeUntil implements zdiscovery.Member.
func (m *member) ServeUntil() time.Time { return *m.serveUntil.Load() }

// Update implements zdiscovery.Member.
func (m *member) Update(ctx context.Context, n zdiscovery.Node) error {
	select {
	case <-m.lost:
		return zdiscovery.ErrLost
	case <-m.quit:
		return zdiscovery.ErrLost
	default:
	}
	d := m.disc
	n.Ref = m.ref
	value, err := encode(n)
	if err != nil {
		return err
	}
	ours := false
	err = d.call(ctx, "update", d.cfg.RequestTimeout, func(ctx context.Context) error {
		r, err := d.client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(m.key), "=", int64(m.ref.Epoch))).
			Then(clientv3.OpPut(m.key, value, clientv3.WithLease(m.lease))).
			Commit()
		if err == nil {
			ours = r.Succeeded
		}
		return err
	})
	switch {
	case err != nil && !isAnswer(err):
		return err
	case err != nil || !ours:
		select {
		case <-m.quit: // by Leave
		default:
			m.lose()
		}
		return zdiscovery.ErrLost
	}
	return nil
}

// Leave implements zdiscovery.Member.
func (m *member) Leave(ctx context.Context) error {
	m.quitOnce.Do(func() { close(m.quit) })
	m.finish() // before anybody can see it gone
	m.end()
	if m.left.Load() {
		return nil
	}
	if err := m.disc.revoke(ctx, "the lease", m.lease, m.disc.cfg.RequestTimeout); err != nil {
		return err
	}
	m.left.Store(true)
	select {
	case <-m.ended:
	case <-ctx.Done(): // its last call is bounded; nothing depends on it
	}
	return nil
}
