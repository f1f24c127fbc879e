package zrouter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"zgame/zmsg"
	"zgame/zstore"
)

// simStore is the records, as one server has them, and what goes wrong on the way to it.
type simStore struct {
	w       *simWorld
	records map[zmsg.Key]zstore.Record
	writes  map[zstore.WriteID]struct{} // that were issued
	cut     map[string]time.Duration    // ids of nodes that do not reach it, until when
}

func (s *simStore) init(w *simWorld) {
	s.w, s.records, s.cut, s.writes = w, make(map[zmsg.Key]zstore.Record), make(map[string]time.Duration), make(map[zstore.WriteID]struct{})
}

// apply carries a write out, if the record is as it says.
func (s *simStore) apply(p *simProc, c *zstore.Change) (zstore.Record, error) {
	cur, found := s.records[c.Key]
	next, landed, err := c.Apply(cur, found)
	if err != nil {
		s.w.log("store: %s of %s by %s: %v", c.Op, c.Key.ID, p.id, err)
		return zstore.Record{}, err
	}
	if !landed {
		next.State, next.Done, next.Attachment = bytes.Clone(next.State), cloneDone(next.Done), bytes.Clone(next.Attachment)
		s.w.log("store: %s of %s by %s: owner %s since %d, revision %d, state %d bytes", c.Op, c.Key.ID, p.id, next.Own.Node, next.Own.Version, next.Rev, len(next.State))
		s.w.oracle.wrote(p, c, &cur, &next)
		s.records[c.Key] = next
	}
	next.State, next.Done, next.Attachment = bytes.Clone(next.State), cloneDone(next.Done), bytes.Clone(next.Attachment)
	return next, nil
}

func cloneDone(d []zstore.Done) []zstore.Done {
	d = slices.Clone(d)
	for i := range d {
		d[i].Reply = bytes.Clone(d[i].Reply)
	}
	return d
}

// simClient is a process' way to the store. Its methods run in the set's jobs.
type simClient struct {
	zstore.Writer
	p *simProc
}

func newSimClient(p *simProc) *simClient {
	c := &simClient{p: p}
	c.Writer = c.write
	return c
}

func (c *simClient) away() bool {
	w := c.p.w
	return w.now < w.store.cut[c.p.id] || w.now < w.store.cut["*"]
}

// Read implements zstore.Store.
func (c *simClient) Read(_ context.Context, k zmsg.Key) (zstore.Record, error) {
	w := c.p.w
	if c.away() || w.chance(w.cfg.readFails) {
		w.log("%s: read of %s: not reachable", c.p.ref, k.ID)
		return zstore.Record{}, zstore.ErrUnavailable
	}
	c.p.jobRead = k
	rec, ok := w.store.records[k]
	rec.State, rec.Done, rec.Attachment = bytes.Clone(rec.State), cloneDone(rec.Done), bytes.Clone(rec.Attachment)
	w.log("%s: read of %s: owner %s since %d, revision %d", c.p.ref, k.ID, rec.Own.Node, rec.Own.Version, rec.Rev)
	if w.chance(0.1) { // what a job reads may be old when it goes on
		w.busy(c.p, w.between(0, 20*time.Millisecond))
	}
	if !ok {
		return zstore.Record{Key: k}, fmt.Errorf("%w: %s", zstore.ErrNotFound, k)
	}
	if rec.Deleted {
		return rec, fmt.Errorf("%w: %s is deleted", zstore.ErrNotFound, k)
	}
	return rec, nil
}

// write carries a change out, or what goes wrong with it.
func (c *simClient) write(_ context.Context, ch *zstore.Change) (zstore.Record, error) {
	p, w := c.p, c.p.w
	if err := ch.Check(c.MaxState()); err != nil {
		w.fail("a write that no store takes: %v", err)
		return zstore.Record{}, err
	}
	if _, again := w.store.writes[ch.WID]; !again {
		w.store.writes[ch.WID] = struct{}{}
		claims := ch.Op == zstore.OpClaim || ch.Op == zstore.OpCreate
		if soon := 5 * time.Millisecond; claims && p.closing() && w.now > p.closedAt+soon && w.now > p.pausedUntil+soon {
			w.fail("I11: %s closes, and begins a %s of %s", p.ref, ch.Op, ch.Key.ID)
		}
	}
	if m := w.mutant; m != nil && m.routesEarly && ch.Op == zstore.OpMove && !ch.Node.IsZero() {
		p.routeEarly(ch)
	}
	if c.away() || w.chance(w.cfg.writeFails) {
		w.log("%s: %s of %s: not reachable", p.ref, ch.Op, ch.Key.ID)
		p.failedSave(ch)
		return zstore.Record{}, zstore.ErrUnavailable
	}
	if w.chance(w.cfg.writeUnclear) {
		err := zstore.ErrUnknown
		if m := w.mutant; m != nil && (m.unclearIsFailed || m.moveIsFailed && ch.Op == zstore.OpMove) {
			err = zstore.ErrUnavailable
		}
		late := *ch
		late.State, late.Done, late.Attachment = bytes.Clone(ch.State), cloneDone(ch.Done), bytes.Clone(ch.Attachment)
		switch w.rng.IntN(3) {
		case 0:
			w.log("%s: %s of %s: no answer, it has landed if it could", p.ref, ch.Op, ch.Key.ID)
			_, _ = w.store.apply(p, &late)
		case 1:
			w.log("%s: %s of %s: no answer, it has not landed", p.ref, ch.Op, ch.Key.ID)
		default:
			w.log("%s: %s of %s: no answer, it may land later", p.ref, ch.Op, ch.Key.ID)
			w.after(w.between(0, 3*time.Second), nil, func() { _, _ = w.store.apply(p, &late) })
		}
		return zstore.Record{}, err
	}
	rec, err := w.store.apply(p, ch)
	if m := w.mutant; m != nil && m.overwrites != nil && errors.Is(err, zstore.ErrConflict) && (ch.Op == zstore.OpSave || ch.Op == zstore.OpMove) {
		if cur := w.store.records[ch.Key]; m.overwrites(p, &cur) {
			again := *ch
			again.Own, again.Rev = cur.Own, cur.Rev
			return w.store.apply(p, &again)
		}
	}
	return rec, err
}

// Scan implements zstore.Store.
func (c *simClient) Scan(context.Context, zmsg.NodeRef, func(zmsg.Key, zstore.Own) bool) error {
	c.p.w.fail("nothing asks for Scan")
	return zstore.ErrUnavailable
}

// Ping implements zstore.Store.
func (c *simClient) Ping(context.Context) error { return nil }

// MaxState implements zstore.Store.
func (c *simClient) MaxState() int { return 1 << 20 }

// Close implements zstore.Store.
func (c *simClient) Close(context.Context) error { return nil }

// simExecutor runs the jobs of a set as events: a job, and later what it returns.
type simExecutor struct{ p *simProc }

func (x simExecutor) do(job func() func()) {
	p, w := x.p, x.p.w
	if p.dead {
		return
	}
	p.jobs++
	w.after(w.between(50*time.Microsecond, 2*time.Millisecond), p, func() {
		before := p.jobRead
		p.jobRead = zmsg.Key{}
		done := job()
		read := p.jobRead
		p.jobRead = before
		if p.dead {
			return
		}
		d := w.between(50*time.Microsecond, 2*time.Millisecond)
		if w.chance(w.cfg.slow) {
			d += w.between(0, 1500*time.Millisecond)
		}
		w.after(d, p, func() {
			p.jobs--
			if read.ID != "" {
				w.oracle.reads[simPlace{p, read}] = w.now
			}
			if done != nil {
				done()
			}
			p.forgetSave()
		})
	})
}

func (x simExecutor) close(context.Context) error { return nil }
