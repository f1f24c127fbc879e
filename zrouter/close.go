package zrouter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"zgame/zmsg"
	"zgame/zrouter/internal/entry"
	"zgame/zstore"
)

// releases is how many objects are given up at once.
const releases = 256

// Report says what Close has done.
type Report struct {
	Released int        // objects that were saved and given up
	Left     []zmsg.Key // objects that were in memory still when the time was over, at most 100
	Lost     int        // how many these were
}

func (r *Report) left(k zmsg.Key) {
	if r.Lost++; len(r.Left) < 100 {
		r.Left = append(r.Left, k)
	}
}

func (r *Report) failed(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("zrouter: %s: %d objects were given up, %d are left: %w", doing, r.Released, r.Lost, err)
}

// Close saves and gives up what Drain has left in memory, and then ends what the set runs: requests end with ErrClosing from then on. Objects that are not given up when ctx
// ends are dropped, and stay the node's in their records until its lease has ended. What hangs in code of the application, or in a store that
// does not look at its context, is left behind then.
// Errors: ctx's, with how much is left.
func (s *ManagerSet) Close(ctx context.Context) (Report, error) {
	var rep Report
	if s.ending.Swap(true) {
		return rep, nil
	}
	s.closing.Store(true)
	err := s.releaseAll(ctx, &rep)
	s.end(&rep)
	if hangs := errors.Join(s.pool.close(ctx), s.loader.close(ctx)); err == nil {
		err = hangs
	}
	return rep, rep.failed("closing", err)
}

// end is the end of Close: nothing is done any more, and what is left in memory is dropped.
func (s *ManagerSet) end(rep *Report) {
	s.closed.Store(true)
	s.endTimers()
	s.cancel()
	for _, k := range s.abandon(ErrClosing) {
		rep.left(k)
	}
}

// releaseAll gives up what is in memory, and waits for the end.
func (s *ManagerSet) releaseAll(ctx context.Context, rep *Report) error {
	seen := make(map[*residence]bool)
	for {
		left := s.releaseSome(seen, rep)
		if left == 0 {
			return nil
		}
		if err := s.nap(ctx, 2*time.Millisecond); err != nil {
			rep.Released = max(0, rep.Released-left)
			return err
		}
	}
}

// releaseSome has a bounded number of objects given up at once, and returns how many are in memory still. seen are those that it has
// counted in rep.
func (s *ManagerSet) releaseSome(seen map[*residence]bool, rep *Report) (left int) {
	leaving := 0
	for i := range s.shards {
		t := s.shards[i].lock()
		for _, o := range t.sh.objects {
			e := &o.entry
			if o.res == nil && e.Phase != entry.Claiming && e.Phase != entry.Loading && e.Phase != entry.Settling {
				if e.Phase == entry.Releasing {
					left++
				}
				continue
			}
			left++
			if e.Leaving {
				leaving++
				continue
			}
			if o.fails > 0 && t.time().Before(o.saveAt) { // its save, or release, has just failed
				if soon := t.time().Add(firstSaveRetry); o.saveAt.After(soon) {
					o.saveAt = soon
				}
				continue
			}
			if leaving < releases {
				leaving++
				if o.res != nil && !seen[o.res] {
					seen[o.res] = true
					rep.Released++
				}
				t.tell(o, &entry.Event{Kind: entry.Leave})
				t.settle(o)
			}
		}
		t.end()
	}
	return left
}

// nap waits for d, or the end of ctx.
func (s *ManagerSet) nap(ctx context.Context, d time.Duration) error {
	done := make(chan struct{})
	t := s.clock.AfterFunc(d, func() { close(done) })
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		t.Stop()
		return context.Cause(ctx)
	}
}

// abandon drops everything without a word to the store: what waits ends with err, what has run is unknown. It returns what was in
// memory.
func (s *ManagerSet) abandon(err error) (resident []zmsg.Key) {
	for i := range s.shards {
		sh := &s.shards[i]
		t := sh.lock()
		for _, o := range t.all() {
			queued := make(map[uint64]bool, len(o.entry.Queue))
			for _, q := range o.entry.Queue {
				queued[q.ID] = true
			}
			for _, id := range slices.Sorted(maps.Keys(o.calls)) {
				c := o.calls[id]
				if queued[id] {
					c.fail(err)
				} else {
					c.fail(errLost)
				}
				t.ended = append(t.ended, c)
			}
			s.kept.Add(-int64(len(o.calls)))
			s.counts.Waiting.Add(-float64(len(o.calls)))
			s.keptBytes.Add(-int64(o.bytes))
			o.bytes = 0
			for o.moves != nil {
				t.abandonMove(o, err)
			}
			s.unexpect(o)
			clear(o.calls)
			if o.res != nil {
				resident = append(resident, o.key)
				t.drop(o, false, o.entry.Route)
			}
			o.inert = true
			delete(sh.objects, o.key)
		}
		t.end()
	}
	return resident
}

// Rejoin makes the node's new identity the set's, after it lost its place in the cluster and joined again: what it had is dropped, since
// it may be another's, and found again in the records.
func (s *ManagerSet) Rejoin(self zmsg.NodeRef) {
	s.suspended.Store(true)
	dropped := s.abandon(errLapsed)
	was := s.self.Ref()
	s.self.Set(self)
	s.Lapse()
	s.NodeGone(was)
	if len(dropped) > 0 {
		s.log.Warn("joined again: the objects that were in memory are dropped", "objects", len(dropped))
	}
}

// Lapse has the set look at Members.ServeUntil at once, which has gone back: a lease that somebody revoked. That it passes is seen
// without it.
func (s *ManagerSet) Lapse() {
	s.until.Store(0)
	s.lapsed()
}

// lapsed has lease look at once, also when the set is suspended.
func (s *ManagerSet) lapsed() {
	s.timers.Lock()
	defer s.timers.Unlock()
	if s.timers.lease != nil && !s.timers.ended {
		s.timers.lease.Reset(0)
	}
}

// release gives an object up, and waits until it has left the memory.
func (s *ManagerSet) release(ctx context.Context, k zmsg.Key) error {
	if err := s.check(k); err != nil {
		return &RouteError{Key: k, Outcome: zmsg.NotExecuted, Cause: err}
	}
	sh := s.shard(k)
	var res *residence
	for {
		t := sh.lock()
		o := sh.objects[k]
		gone := o == nil || o.res == nil && o.entry.Phase != entry.Releasing
		if !gone && res == nil {
			res = o.res
		}
		var failing error
		if !gone && o.res != res && res != nil {
			gone = true // it left, and came back
		}
		if !gone {
			if !o.entry.Leaving {
				if o.fails > 0 {
					failing = ErrUnavailable
				}
				t.tell(o, &entry.Event{Kind: entry.Leave})
				t.settle(o)
			}
		}
		t.end()
		switch {
		case gone:
			return nil
		case failing != nil:
			return &RouteError{Key: k, Outcome: zmsg.NotExecuted, Cause: failing}
		}
		if err := s.nap(ctx, 2*time.Millisecond); err != nil {
			return &RouteError{Key: k, Outcome: zmsg.Unknown, Cause: errors.Join(err, zstore.ErrUnknown)}
		}
	}
}

// ForgetOwner has the routes to a node looked up again before they are used: it says that it owns nothing any more.
func (s *ManagerSet) ForgetOwner(n zmsg.NodeRef) {
	for i := range s.shards {
		sh := &s.shards[i]
		t := sh.lock()
		for _, k := range sh.routes.to(n) {
			sh.expire(k)
		}
		for _, o := range t.all() {
			if o.entry.Phase == entry.Cached && o.entry.Route.Owner == n {
				t.tell(o, &entry.Event{Kind: entry.Expired})
				t.settle(o)
			}
		}
		t.end()
	}
}

// forget drops the route of an object that is not in memory.
func (s *ManagerSet) forget(k zmsg.Key) {
	sh := s.shard(k)
	t := sh.lock()
	defer t.end()
	if o := sh.objects[k]; o != nil {
		if o.entry.Phase == entry.Cached {
			t.tell(o, &entry.Event{Kind: entry.Leave})
			t.settle(o)
		}
		return
	}
	if sh.routes.lane(k, s.seconds(t.time())) != 0 {
		sh.expire(k) // what comes next is not to overtake what was sent by it
		return
	}
	sh.routes.drop(k)
}
