package zgate

import (
	"context"
	"sync"
	"time"
	"unicode/utf8"
)

const groupShards = 64

// groups is the table of the groups that have members at this gate.
//
// Order of locks: Session.mu, shard, group, conn.q.
type groups struct {
	g      *Gate
	shards [groupShards]struct {
		mu sync.RWMutex
		m  map[string]*group
		_  [64]byte
	}
}

// The states of a group's subscription at the bus.
const (
	unsubscribed = iota
	subscribing
	subscribed
	unsubscribing
)

// group is the members of one group at this gate, and its one subscription. Members are added and removed at once; the
// subscription follows in a goroutine that runs while it is not what the members want, so that its calls never
// overlap and the last one is right, however joins and leaves race:
//
//	the last member leaves     unsubscribing: LeaveGroup is under way
//	another joins meanwhile    a member, but not effective yet: the subscription it sees is about to go
//	LeaveGroup returns         unsubscribed, wanted: the same goroutine joins again and tells who waits
type group struct {
	name string

	mu      sync.RWMutex
	members []*Session
	at      map[*Session]int // index in members
	state   int
	syncing bool          // the goroutine runs
	waiters []func(error) // those who want to know when the subscription is there
}

func (t *groups) shard(name string) *struct {
	mu sync.RWMutex
	m  map[string]*group
	_  [64]byte
} {
	h := uint32(2166136261)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return &t.shards[h%groupShards]
}

func (t *groups) get(name string) *group {
	sh := t.shard(name)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	return sh.m[name]
}

// join makes s a member of the group, from now on for what this gate publishes itself. done is called once what other
// nodes publish arrives too, or when it is known that it will not for now; the gate goes on trying then. done may run
// before join returns, or on another goroutine, and must not block.
func (t *groups) join(s *Session, name string, done func(error)) error {
	if name == "" || len(name) > maxGroupName || !utf8.ValidString(name) {
		return ErrBadGroup
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended || s.leaving():
		return ErrClosed
	case s.groups[name] == nil && len(s.groups) >= t.g.cfg.MaxGroups:
		return ErrTooMany
	}
	sh := t.shard(name)
	sh.mu.Lock()
	grp := sh.m[name]
	if grp == nil {
		grp = &group{name: name, at: make(map[*Session]int)}
		if sh.m == nil {
			sh.m = make(map[string]*group)
		}
		sh.m[name] = grp
		t.g.count.Groups.Inc()
	}
	grp.mu.Lock()
	sh.mu.Unlock() // the group cannot go any more
	if _, member := grp.at[s]; !member {
		grp.at[s] = len(grp.members)
		grp.members = append(grp.members, s)
		if s.groups == nil {
			s.groups = make(map[string]*group)
		}
		s.groups[name] = grp
	}
	effective := t.g.cfg.Groups == nil || grp.state == subscribed
	var err error
	if !effective {
		switch {
		case !t.syncLocked(grp):
			effective, err = true, ErrStopped // for good
		case done != nil:
			grp.waiters = append(grp.waiters, done)
		}
	}
	grp.mu.Unlock()
	if effective && done != nil {
		done(err)
	}
	return nil
}

// leave ends s's membership. s.mu is held.
func (t *groups) leave(grp *group, s *Session) {
	sh := t.shard(grp.name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	grp.mu.Lock()
	defer grp.mu.Unlock()
	i, member := grp.at[s]
	if !member {
		return
	}
	last := len(grp.members) - 1
	if moved := grp.members[last]; moved != s {
		grp.members[i] = moved
		grp.at[moved] = i
	}
	grp.members[last] = nil
	grp.members = grp.members[:last]
	delete(grp.at, s)
	if last > 0 {
		return
	}
	if t.g.cfg.Groups != nil && (grp.state != unsubscribed || grp.syncing) && t.syncLocked(grp) {
		return
	}
	t.forgetLocked(grp)
}

// forgetLocked takes a group without members out of the table; its shard and it are locked.
func (t *groups) forgetLocked(grp *group) {
	delete(t.shard(grp.name).m, grp.name)
	t.g.count.Groups.Dec()
}

// syncLocked sees that the subscription becomes what the members want; false: it stays as it is, since the gate goes away, and the bus with it.
func (t *groups) syncLocked(grp *group) bool {
	if grp.syncing {
		return true
	}
	if !t.g.begin() {
		return false
	}
	grp.syncing = true
	// Owned by the group; ends when the subscription is what the members want, or with the gate; Shutdown waits for it.
	go t.sync(grp)
	return true
}

func (t *groups) sync(grp *group) {
	defer t.g.wg.Done()
	pause := time.Duration(0)
	for {
		// The shard first: a group that nobody wants any more goes in the same moment.
		sh := t.shard(grp.name)
		sh.mu.Lock()
		grp.mu.Lock()
		wanted := len(grp.members) > 0
		if wanted == (grp.state == subscribed) {
			grp.syncing = false
			if !wanted {
				t.forgetLocked(grp)
			}
			waiters := grp.waiters
			grp.waiters = nil
			grp.mu.Unlock()
			sh.mu.Unlock()
			for _, w := range waiters {
				w(nil) // or the member has left meanwhile, and nobody listens
			}
			return
		}
		if wanted {
			grp.state = subscribing
		} else {
			grp.state = unsubscribing
		}
		grp.mu.Unlock()
		sh.mu.Unlock()

		var err error
		if wanted {
			ctx, cancel := context.WithTimeout(t.g.ctx, 2*t.g.cfg.JoinTimeout)
			err = t.g.cfg.Groups.JoinGroup(ctx, grp.name)
			cancel()
		} else {
			err = t.g.cfg.Groups.LeaveGroup(grp.name)
		}

		grp.mu.Lock()
		var waiters []func(error)
		switch {
		case err == nil && wanted:
			grp.state = subscribed
			waiters, grp.waiters = grp.waiters, nil
		case err == nil:
			grp.state = unsubscribed
		case wanted:
			grp.state = unsubscribed
			waiters, grp.waiters = grp.waiters, nil
		default:
			grp.state = subscribed
		}
		grp.mu.Unlock()
		for _, w := range waiters {
			w(err)
		}
		if err == nil {
			pause = 0
			continue
		}
		t.g.count.SubscribeFailures.Inc()
		pause = min(max(50*time.Millisecond, 2*pause), 5*time.Second)
		t.g.log.Warn("group subscription failed", "group", grp.name, "join", wanted, "err", err, "pause", pause.String())
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-t.g.staying.Done(): // the bus goes as well: nothing is tried again
			timer.Stop()
			t.abandon(grp)
			return
		}
	}
}

// abandon ends the goroutine of a group whose subscription stays as it is, since the gate goes away.
func (t *groups) abandon(grp *group) {
	sh := t.shard(grp.name)
	sh.mu.Lock()
	grp.mu.Lock()
	grp.syncing = false
	waiters := grp.waiters
	grp.waiters = nil
	if len(grp.members) == 0 {
		t.forgetLocked(grp)
	}
	grp.mu.Unlock()
	sh.mu.Unlock()
	for _, w := range waiters {
		w(ErrStopped)
	}
}
