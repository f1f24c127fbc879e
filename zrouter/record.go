package zrouter

import (
	"errors"
	"time"

	"zgame/zrouter/internal/entry"
	"zgame/zstore"
)

// How the effects that read and write an object's record are carried out, and how their ends are told.

// read reads the record.
func (t *turn) read(o *object) {
	o.ios++
	s := t.sh.set
	k, store := o.key, s.storeOf(o.kind)
	s.pool.do(func() func() {
		rec, err := s.readRecord(store, k)
		return func() {
			t := o.sh.lock()
			defer t.end()
			o.ios--
			ev := entry.Event{Kind: entry.HasRead}
			switch {
			case err == nil:
				ev.Found = true
			case errors.Is(err, zstore.ErrNotFound):
			default:
				ev.Kind = entry.ReadFailed
				s.storeFailed(o, zstore.OpRead, err)
			}
			if ev.Kind == entry.HasRead {
				ev.Route, ev.Rev = Route{Owner: rec.Own.Node, Version: rec.Own.Version}, rec.Rev
				if ev.Found {
					ev.OwnerDead = s.dead(rec.Own.Node)
				}
				if o.entry.Phase == entry.Reading {
					o.rec = &rec
					if ev.Found && o.kind != nil && rec.Schema > o.kind.version {
						o.why = tooNew(rec.Schema, o.kind.version)
						s.tooNew(o, o.why)
					}
				}
			}
			t.tell(o, &ev)
			switch {
			case ev.Kind == entry.HasRead:
				o.looks = 0
			case o.res != nil && o.entry.Suspended && !s.suspended.Load():
				o.resumeLater()
			}
			t.settle(o)
		}
	})
}

// write begins a write of the record.
func (t *turn) write(o *object, x *entry.Effect) {
	s := t.sh.set
	w := &write{o: o, op: x.Op}
	w.change = zstore.Change{Key: o.key, Own: zstore.Own{Node: x.Route.Owner, Version: x.Route.Version}, Rev: x.Rev, WID: s.newWID()}
	o.write = w
	o.ios++
	switch x.Op { //nolint:exhaustive // those that write
	case entry.Create:
		w.change.Op, w.change.Node = zstore.OpCreate, s.self.Ref()
		w.make, w.fresh = o.kind.create, o.kind.set.ClientDedup > 0 && x.Route.Version == 0
		for _, q := range o.entry.Queue {
			if c := o.calls[q.ID]; c != nil && c.make != nil {
				w.make = c.make
				break
			}
		}
		t.start(w)
	case entry.Claim:
		w.change.Op, w.change.Node = zstore.OpClaim, s.self.Ref()
		t.start(w)
	case entry.Move:
		w.change.Op, w.change.Node = zstore.OpMove, o.entry.Target
		o.why = nil
		if o.moves != nil {
			o.moves.written = true
		}
		if !o.res.save(w) {
			t.failedLater(w)
		}
	case entry.Save, entry.Release:
		w.change.Op = zstore.OpSave
		if x.Op == entry.Release {
			w.change.Op = zstore.OpMove
			if o.res != nil && o.res.deleted.Load() {
				w.change.Op = zstore.OpDelete
				t.start(w)
				return
			}
		}
		if o.res == nil { // never in memory: as it was read
			w.change.Write = zstore.Write{Schema: o.rec.Schema, State: o.rec.State, Done: o.rec.Done}
			if w.change.Op == zstore.OpMove {
				w.change.Attachment = o.rec.Attachment
			}
			t.start(w)
			return
		}
		if !o.res.save(w) {
			// Its actor has ended, and says so next: then the entry drops it.
			t.failedLater(w)
		}
	}
}

// failedLater tells that a write was never begun.
func (t *turn) failedLater(w *write) {
	o := w.o
	t.sh.set.pool.do(func() func() {
		return func() {
			t := o.sh.lock()
			t.landed(w, zstore.Record{}, errEncode)
			t.end()
		}
	})
}

// start issues a write that has all it needs.
func (t *turn) start(w *write) {
	s := t.sh.set
	store := s.storeOf(w.o.kind)
	s.pool.do(func() func() {
		if w.op == entry.Create {
			data, err := w.make(w.o.key)
			if err != nil {
				return func() { w.settle(zstore.Record{}, &createError{err}) }
			}
			w.change.Write = data
			if w.fresh {
				w.change.Done = freshClientDone()
			}
		}
		ctx, cancel := s.storeContext()
		defer cancel()
		rec, err := w.change.Do(ctx, store)
		return func() { w.settle(rec, err) }
	})
}

// resolve finds out what became of a write, after a wait.
func (t *turn) resolve(w *write) {
	s := t.sh.set
	w.tries++
	wait := s.jitter(backoff(w.tries, 5*time.Millisecond, time.Second))
	store := s.storeOf(w.o.kind)
	s.after(wait, func() {
		s.pool.do(func() func() {
			ctx, cancel := s.storeContext()
			defer cancel()
			rec, err := zstore.Settle(ctx, store, &w.change)
			return func() { w.settle(rec, err) }
		})
	})
}

// settle tells how a write ended, or that nobody knows.
func (w *write) settle(rec zstore.Record, err error) {
	t := w.o.sh.lock()
	t.landed(w, rec, err)
	t.end()
}

// landed is settle with the lock held.
func (t *turn) landed(w *write, rec zstore.Record, err error) {
	o, s := w.o, t.sh.set
	if o.inert {
		return
	}
	var ev entry.Event
	var refused *createError
	switch {
	case errors.As(err, &refused):
		ev.Kind, o.why = entry.Failed, err
	case err == nil:
		ev = entry.Event{Kind: entry.Wrote, Route: Route{Owner: rec.Own.Node, Version: rec.Own.Version}, Rev: rec.Rev}
		if w.tries > 0 {
			s.counts.Resolved.With("landed").Inc()
		}
	case errors.Is(err, zstore.ErrUnknown):
		ev.Kind = entry.Unclear
	case errors.Is(err, zstore.ErrConflict), errors.Is(err, zstore.ErrNotFound):
		ev.Kind = entry.Conflicted
		if w.tries > 0 {
			s.counts.Resolved.With("not").Inc()
		}
	default:
		ev.Kind, o.why = entry.Failed, err
		ev.Unsavable = errors.Is(err, zstore.ErrTooLarge) || errors.Is(err, errEncode)
	}
	s.countsOf(o).writes(w.op, ev.Kind).Inc()
	switch {
	case refused != nil:
		s.notCreated(o, refused.cause)
	case errors.As(err, new(*vetoError)): // who asked is told
	case ev.Kind == entry.Failed || ev.Kind == entry.Unclear:
		s.storeFailed(o, w.change.Op, err)
	}
	if o.write != w { // the entry has gone on without it
		if ev.Kind != entry.Unclear {
			o.ios--
			t.settle(o)
		} else {
			t.resolve(w)
		}
		return
	}
	if ev.Kind == entry.Unclear {
		if w.tries > 0 {
			t.resolve(w) // the entry knows
			return
		}
		t.tell(o, &ev)
		return
	}
	o.write = nil
	o.ios--
	s.record(w, ev.Kind)
	if w.op == entry.Move && o.moves != nil {
		o.moves.given = &w.change
	}
	if ev.Kind == entry.Wrote && w.op == entry.Claim {
		s.NodeGone(w.change.Own.Node) // who else was its: perhaps nobody has seen that node die
	}
	if ev.Kind == entry.Wrote && (w.op == entry.Create || w.op == entry.Claim) {
		o.rec = &rec
		if rec.State == nil {
			o.rec.State = w.change.State
		}
		if w.op == entry.Create {
			o.rec.Done = w.change.Done
		}
	}
	t.tell(o, &ev)
	if refused != nil {
		o.why = nil // it is of those who asked until now, and they know
	}
	t.settle(o)
}
