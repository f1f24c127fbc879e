package zrouter

import (
	"cmp"
	"slices"
	"time"

	"zgame/zrouter/internal/entry"
)

// Waits between two tries to save what a save failed for: the upper end of a jittered wait, doubled each time.
const (
	firstSaveRetry = 500 * time.Millisecond
	longSaveRetry  = 10 * time.Second
)

// suspendedCheck is how often a set whose lease is not valid looks whether it is again.
const suspendedCheck = 100 * time.Millisecond

// watch sets the object's timer by what the entry has come to.
func (o *object) watch(t *turn, ev entry.Kind) {
	e := &o.entry
	switch {
	case o.res == nil:
		return
	case !e.Dirty && !e.Writing:
		o.saveAt, o.unsaved, o.fails = time.Time{}, time.Time{}, 0
		return
	}
	now := t.time()
	if o.unsaved.IsZero() {
		o.unsaved = now
	}
	switch ev { //nolint:exhaustive // the others change nothing here
	case entry.Wrote:
		o.unsaved, o.fails, o.saveAt = now, 0, time.Time{} // what it had not is younger
	case entry.Failed:
		o.fails++
		o.saveAt = now.Add(t.sh.set.jitter(backoff(o.fails, firstSaveRetry, longSaveRetry)))
	}
	if e.Dirty && !e.Writing && o.saveAt.IsZero() {
		d := o.kind.set.saveDelay()
		o.saveAt = now.Add(d - d/5 + t.sh.set.jitter(2*d/5))
	}
	o.arm(now)
}

// arm has tick called when something is due.
func (o *object) arm(now time.Time) {
	due := o.unsaved.Add(o.kind.set.MaxUnsavedAge)
	if o.entry.TooOld {
		due = time.Time{}
	}
	if !o.saveAt.IsZero() && !o.entry.Writing && (due.IsZero() || o.saveAt.Before(due)) {
		due = o.saveAt
	}
	if due.IsZero() {
		return
	}
	d := max(0, due.Sub(now))
	if res := o.res; res.timer == nil {
		res.timer = o.sh.set.clock.AfterFunc(d, func() { o.tick(res) })
	} else {
		res.timer.Reset(d)
	}
}

// tick is called by the timer.
func (o *object) tick(res *residence) {
	sh := res.sh
	t := sh.lock()
	defer t.end()
	if res.dropped || o.res != res {
		return
	}
	now := t.time()
	e := &o.entry
	if !e.TooOld && !o.unsaved.IsZero() && !now.Before(o.unsaved.Add(o.kind.set.MaxUnsavedAge)) {
		t.tell(o, &entry.Event{Kind: entry.Overdue})
		if e.TooOld {
			o.kind.counts.overdue.Inc()
			o.log().Error("what is not saved is older than allowed: no requests are taken until it is", "since", now.Sub(o.unsaved))
		}
	}
	if !o.saveAt.IsZero() && !now.Before(o.saveAt) && !e.Writing {
		o.saveAt = time.Time{}
		ev := entry.Event{Kind: entry.SaveDue}
		if res.leaving() {
			ev.Kind = entry.Leave
		}
		t.tell(o, &ev)
	}
	if o.res == res && (e.Dirty || e.Writing) {
		o.arm(now)
	}
}

// lease looks at the lease when it ends, and while it is not valid.
func (s *ManagerSet) lease() {
	now := s.clock.Now()
	wait := suspendedCheck
	if s.serving(now) {
		wait = max(time.Millisecond, s.members.ServeUntil().Sub(now)+time.Millisecond)
		if s.suspended.CompareAndSwap(true, false) {
			s.log.Warn("the node's lease is valid again: objects go on when their records were seen")
			s.counts.Suspended.Set(0)
			s.strays.Store(false)
			s.tellAll(entry.Resume)
		} else if s.strays.Swap(false) {
			s.tellAll(entry.Resume)
		}
	} else if s.suspended.CompareAndSwap(false, true) {
		s.log.Warn("the node's lease is not valid: objects do not serve")
		s.counts.Suspended.Set(1)
		s.tellAll(entry.Suspend)
	}
	s.timers.Lock()
	defer s.timers.Unlock()
	if !s.timers.ended {
		s.timers.lease = s.clock.AfterFunc(wait, s.lease)
	}
}

// lapse has lease look at once. The shard's lock is held, until the object that has found it is told.
func (s *ManagerSet) lapse() {
	s.strays.Store(true)
	s.timers.Lock()
	defer s.timers.Unlock()
	if s.timers.lease != nil && !s.timers.ended && !s.suspended.Load() {
		s.timers.lease.Reset(0)
	}
}

// tellAll tells every entry of Suspend, or those that are suspended of Resume. What suspended says when a shard is locked counts: where it has changed
// since, another call is on its way to all shards, and may have been to this one already.
func (s *ManagerSet) tellAll(ev entry.Kind) {
	for i := range s.shards {
		t := s.shards[i].lock()
		if s.suspended.Load() != (ev == entry.Suspend) {
			t.end()
			return
		}
		for _, o := range t.all() {
			if ev == entry.Suspend || o.entry.Suspended {
				t.tell(o, &entry.Event{Kind: ev})
				t.settle(o)
			}
		}
		t.end()
	}
}

// resumeLater has an object that could not look at its record, which it must before it serves again, do so soon.
func (o *object) resumeLater() {
	sh, k := o.sh, o.key
	s := sh.set
	o.looks++
	s.after(s.jitter(backoff(o.looks, firstSaveRetry, longSaveRetry)), func() {
		t := sh.lock()
		defer t.end()
		if o := sh.objects[k]; o != nil && o.res != nil && o.entry.Suspended && !s.suspended.Load() {
			t.tell(o, &entry.Event{Kind: entry.Resume})
			t.settle(o)
		}
	})
}

// all returns the objects of the shard, in an order that is the same in each run of a simulation.
func (t *turn) all() []*object {
	all := make([]*object, 0, len(t.sh.objects))
	for _, o := range t.sh.objects {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b *object) int { return cmp.Compare(a.key.ID, b.key.ID) })
	return all
}

func (s *ManagerSet) sweepLater() {
	every := s.settings.CacheFreeTimeout
	for _, k := range s.kinds {
		every = min(every, k.set.ObjectFreeTimeout)
	}
	every = min(max(every/4, 10*time.Millisecond), time.Minute)
	s.timers.Lock()
	defer s.timers.Unlock()
	if !s.timers.ended {
		s.timers.sweep = s.clock.AfterFunc(every, func() {
			s.sweep()
			s.sweepLater()
		})
	}
}

// sweep gives up objects for which nothing came for long, and forgets routes that nobody asked for.
func (s *ManagerSet) sweep() {
	free := uint32(s.settings.CacheFreeTimeout / time.Second)
	routes, unsaved := 0, make(map[*kind]time.Duration)
	for i := range s.shards {
		t := s.shards[i].lock()
		now := t.time()
		t.sh.routes.sweep(s.seconds(now), free)
		routes += t.sh.routes.len()
		for _, o := range t.all() {
			if o.res != nil && !o.unsaved.IsZero() {
				unsaved[o.kind] = max(unsaved[o.kind], now.Sub(o.unsaved))
			}
			if o.res == nil || now.Sub(o.used) < o.kind.set.ObjectFreeTimeout || o.res.boundCount.Load() > 0 {
				continue
			}
			ev := entry.Event{Kind: entry.Idle}
			if o.kind.set.ReleaseOnIdle != On {
				ev.Kind = entry.Rest
				o.res.resting = true
			}
			t.tell(o, &ev)
			if o.res != nil {
				o.res.resting = false
			}
			t.settle(o)
		}
		t.end()
	}
	s.counts.Routes.Set(float64(routes))
	for _, k := range s.kinds {
		k.counts.unsaved.Set(unsaved[k].Seconds())
	}
}

func (s *ManagerSet) endTimers() {
	s.timers.Lock()
	defer s.timers.Unlock()
	s.timers.ended = true
	if s.timers.lease != nil {
		s.timers.lease.Stop()
	}
	if s.timers.sweep != nil {
		s.timers.sweep.Stop()
	}
}
