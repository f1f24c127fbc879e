package etcddisc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"zgame/zdiscovery"
	"zgame/zmsg"
)

// candidate is one campaign of a member, and the leadership that it led to: a key in the line of the name. One goroutine
// at a time works on it: Campaign's, then whoever takes it out of the line.
type candidate struct {
	// Set at construction.
	m          *member
	name       string
	key, guard string
	done       chan struct{} // closed when it is out of the line: the name is free

	// Owned by who works on it.
	term   uint64 // create revision of the key; 0: there is none, as far as is known
	unsure bool   // a write of the key got no answer: it may arrive at any time

	// Guarded by the member's mu.
	lead *leadership // nil until it leads
	out  bool        // somebody takes it out of the line
}

// line is where the candidates of a name have their keys.
func (d *Disc) line(name string) string { return d.cfg.Prefix + "/leaders/" + name + "/" }

// Campaign implements zdiscovery.Member.
func (m *member) Campaign(ctx context.Context, name string) (zdiscovery.Leadership, error) {
	if err := zdiscovery.CheckName(name); err != nil {
		return nil, err
	}
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.life, cancel)()
	c, err := m.candidate(run, name)
	if err == nil {
		if err = c.win(run); err == nil {
			if l := c.begin(); l != nil {
				return l, nil
			}
		}
		c.takeOut()
	}
	switch { // why the wait was over
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case m.disc.ctx.Err() != nil:
		return nil, zdiscovery.ErrClosed
	case m.life.Err() != nil:
		return nil, zdiscovery.ErrLost
	}
	return nil, err
}

// candidate makes the one candidate of a name. One that is being taken out of the line is waited for.
func (m *member) candidate(ctx context.Context, name string) (*candidate, error) {
	for {
		m.mu.Lock()
		old := m.names[name]
		if old == nil {
			lease := strconv.FormatUint(uint64(m.lease), 16)
			c := &candidate{
				m: m, name: name, key: m.disc.line(name) + lease, guard: m.disc.cfg.Prefix + "/withdrawn/" + lease + "/" + name,
				done: make(chan struct{}),
			}
			m.names[name] = c
			m.mu.Unlock()
			return c, nil
		}
		out := old.out
		m.mu.Unlock()
		if !out {
			return nil, fmt.Errorf("%w: %q", zdiscovery.ErrCampaigning, name)
		}
		select {
		case <-old.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// win returns nil when the candidate is the first of the line.
func (c *candidate) win(ctx context.Context) error {
	d := c.m.disc
	var p pauses
	for {
		err := ctx.Err()
		if err == nil && c.term == 0 {
			err = c.join(ctx)
		}
		var before *mvccpb.KeyValue
		var revision int64
		if err == nil {
			before, revision, err = c.before(ctx)
		}
		switch {
		case ctx.Err() != nil || errors.Is(err, zdiscovery.ErrLost):
			return err
		case err != nil || c.term == 0: // or somebody has deleted the key by hand: once more
		case before != nil:
			if _, lived := d.follow(ctx, string(before.Key), revision, stays(before)); lived {
				p.reset()
				continue
			}
		case time.Now().Before(c.m.ServeUntil()):
			return nil
		} // else the process stood still for so long that the lease may be gone: its renewal tells
		if !p.wait(ctx) {
			return ctx.Err()
		}
	}
}

// stays returns a function that reports whether kv's key is still the one that it was, after what a watch says.
func stays(kv *mvccpb.KeyValue) func(clientv3.WatchResponse) bool {
	return func(r clientv3.WatchResponse) bool {
		for _, e := range r.Events {
			if e.Type == clientv3.EventTypeDelete && e.Kv.ModRevision > kv.CreateRevision || e.Kv.CreateRevision > kv.CreateRevision {
				return false
			}
		}
		return true
	}
}

// join puts the candidate's key at the end of the line, while the node is the member's. It is found there when an earlier write
// of it got no answer. Errors: ErrLost, ErrUnavailable, ctx's.
func (c *candidate) join(ctx context.Context) error {
	m, d := c.m, c.m.disc
	value, err := json.Marshal(m.ref)
	if err != nil {
		return err
	}
	m.mu.Lock()
	guard := m.guards[c.name]
	m.mu.Unlock()
	unsure := c.unsure
	c.unsure = true
	var r *clientv3.TxnResponse
	err = d.call(ctx, "candidacy for "+c.name, d.cfg.RequestTimeout, func(ctx context.Context) (err error) {
		r, err = d.client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(m.key), "=", int64(m.ref.Epoch)),
				clientv3.Compare(clientv3.CreateRevision(c.key), "=", 0),
				clientv3.Compare(clientv3.ModRevision(c.guard), "=", guard)).
			Then(clientv3.OpPut(c.key, string(value), clientv3.WithLease(m.lease))).
			Else(clientv3.OpGet(m.key), clientv3.OpGet(c.key)).
			Commit()
		return err
	})
	if err != nil && !isAnswer(err) {
		return err
	}
	c.unsure = unsure
	if err == nil && r.Succeeded {
		c.term = uint64(r.Header.Revision)
		return nil
	}
	if err == nil {
		node, own := r.Responses[0].GetResponseRange().GetKvs(), r.Responses[1].GetResponseRange().GetKvs()
		if len(node) > 0 && uint64(node[0].CreateRevision) == m.ref.Epoch {
			if len(own) == 0 {
				return fmt.Errorf("etcddisc: candidacy for %s: somebody writes to %s", c.name, c.guard)
			}
			c.term = uint64(own[0].CreateRevision)
			return nil
		}
	}
	m.lose()
	return zdiscovery.ErrLost
}

// before returns the candidate that has to go before c leads, nil if there is none, and the revision of this. When c's key is
// gone its term is 0 afterwards. A key without a lease is nobody's of ours, and would never go: it is passed over.
func (c *candidate) before(ctx context.Context) (kv *mvccpb.KeyValue, revision int64, err error) {
	d := c.m.disc
	for below := int64(c.term); ; {
		last := append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(below-1))
		var r *clientv3.TxnResponse
		err = d.call(ctx, "look at the line for "+c.name, d.cfg.RequestTimeout, func(ctx context.Context) (err error) {
			r, err = d.client.Txn(ctx).Then(clientv3.OpGet(c.key), clientv3.OpGet(d.line(c.name), last...)).Commit()
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		own, others := r.Responses[0].GetResponseRange().GetKvs(), r.Responses[1].GetResponseRange().GetKvs()
		if len(own) == 0 || uint64(own[0].CreateRevision) != c.term {
			c.term = 0
		}
		switch {
		case len(others) == 0 || below <= 1:
			return nil, r.Header.Revision, nil
		case others[0].Lease != 0 || c.term == 0:
			return others[0], r.Header.Revision, nil
		}
		d.foreignLeader(others[0])
		below = others[0].CreateRevision
	}
}

// foreignLeader logs a key in a line that nobody of ours has written.
func (d *Disc) foreignLeader(kv *mvccpb.KeyValue) {
	if suppressed, ok := d.foreignLog.Allow(time.Now()); ok {
		d.cfg.Logger.Warn("key without a lease among candidates, passed over; delete it", "key", string(kv.Key), "suppressed", suppressed)
	}
}

// begin makes the winner the leader; nil when the membership is over.
func (c *candidate) begin() *leadership {
	m := c.m
	l := &leadership{c: c, term: c.term, lost: make(chan struct{})}
	l.life, l.cancel = context.WithCancel(m.life)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.life.Err() != nil || !m.disc.begin(l.run) { // the goroutine ends with the leadership; Close waits for it
		l.cancel()
		return nil
	}
	c.lead = l
	m.disc.cfg.Metrics.Elections.With("won").Inc()
	m.disc.cfg.Logger.Info("leads", "name", c.name, "term", l.term)
	return l
}

// mayTakeOut reports to one caller that the candidate is his to take out of the line.
func (c *candidate) mayTakeOut() bool {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	was := c.out
	c.out = true
	return !was
}

// takeOut takes the candidate out of the line, by a goroutine if there is anything in etcd to be taken away.
func (c *candidate) takeOut() {
	if c.mayTakeOut() && (c.term == 0 && !c.unsure || !c.m.disc.begin(c.keepWithdrawing)) {
		c.free() // nothing to take away, or it goes with the lease
	}
}

// keepWithdrawing tries until it is done, or until the lease does it: with the membership, or the Disc, which waits for this
// goroutine.
func (c *candidate) keepWithdrawing() {
	defer c.free()
	var p pauses
	for c.withdraw(c.m.life) != nil && p.wait(c.m.life) {
	}
}

// free gives the name to the member's next candidate.
func (c *candidate) free() {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	delete(c.m.names, c.name)
	close(c.done)
}

// withdraw takes the candidate's key away. A write of the key that got no answer may be on its way still, and arrive after the
// key was taken away: nobody would lead then, for as long as the lease lives. Every such write expects a revision of the
// guard, a key of its own under the lease; what takes the key away writes the guard, so that whatever expects the old revision
// fails.
func (c *candidate) withdraw(ctx context.Context) error {
	m, d := c.m, c.m.disc
	m.mu.Lock()
	guard := m.guards[c.name]
	m.mu.Unlock()
	var r *clientv3.TxnResponse
	err := d.call(ctx, "withdrawal of the candidacy for "+c.name, d.cfg.RequestTimeout, func(ctx context.Context) (err error) {
		txn := d.client.Txn(ctx)
		if c.unsure {
			txn = txn.If(clientv3.Compare(clientv3.ModRevision(c.guard), "=", guard)).
				Then(clientv3.OpDelete(c.key), clientv3.OpPut(c.guard, "", clientv3.WithLease(m.lease))).
				Else(clientv3.OpGet(c.guard)) // an earlier withdrawal got no answer
		} else {
			txn = txn.If(clientv3.Compare(clientv3.CreateRevision(c.key), "=", int64(c.term))).Then(clientv3.OpDelete(c.key))
		}
		r, err = txn.Commit()
		return err
	})
	switch {
	case err != nil && isAnswer(err): // the lease is gone, and the key with it
		return nil
	case err != nil:
		return err
	case !c.unsure:
		return nil
	case r.Succeeded:
		guard = r.Header.Revision
	default:
		if kvs := r.Responses[0].GetResponseRange().GetKvs(); len(kvs) > 0 {
			guard = kvs[0].ModRevision
		}
	}
	m.mu.Lock()
	m.guards[c.name] = guard
	m.mu.Unlock()
	return nil
}

// Leader implements zdiscovery.Discovery.
func (d *Disc) Leader(ctx context.Context, name string) (l zdiscovery.Leader, err error) {
	if err := zdiscovery.CheckName(name); err != nil {
		return l, err
	}
	for above := int64(0); ; {
		first := append(clientv3.WithFirstCreate(), clientv3.WithMinCreateRev(above+1))
		var r *clientv3.GetResponse
		err = d.call(ctx, "leader of "+name, d.cfg.RequestTimeout, func(ctx context.Context) (err error) {
			r, err = d.client.Get(ctx, d.line(name), first...)
			return err
		})
		if err != nil || len(r.Kvs) == 0 {
			return l, err
		}
		kv := r.Kvs[0]
		if kv.Lease == 0 { // as in a campaign
			d.foreignLeader(kv)
			above = kv.CreateRevision
			continue
		}
		var ref zmsg.NodeRef
		if err := json.Unmarshal(kv.Value, &ref); err != nil {
			return l, fmt.Errorf("etcddisc: key %s: %w", kv.Key, err)
		}
		return zdiscovery.Leader{Node: ref, Term: uint64(kv.CreateRevision)}, nil
	}
}
