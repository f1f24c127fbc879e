package zrouter

import (
	"zgame/zactor"
	"zgame/zmsg"
	"zgame/zstore"
)

// How a residence has requests that it remembers run once: what has run is answered as it was, what runs is waited for, and what may have run, as
// nobody knows any more, is not run.

// running is a request that runs, and those that are the same and wait for its outcome.
type running struct {
	first  *call
	others []sharing
}

// sharing is a request that gets the outcome of another.
type sharing struct {
	c     *call
	to    zmsg.Replier
	token uint64
}

// maxSharing is how many may wait for the outcome of one: it is sent again after each death of a gate, or by who asks from several places.
const maxSharing = 64

var (
	errRunsNow error = &zmsg.Error{Code: zmsg.CodeBusy, Outcome: zmsg.NotExecuted, Text: "the same request is running, and too many wait for its outcome"}
	errMayRan  error = &zmsg.Error{Code: zmsg.CodeUnknownOutcome, Outcome: zmsg.Unknown, Text: "the object does not remember whether it ran, so it does not run now"}
)

// recall sets what the residence remembers by its record. The shard's mu is held.
func (t *turn) recall(res *residence, from []zstore.Done) {
	set := &res.o.kind.set
	most := zstore.MaxDone
	if n := set.ClientDedup; n > 0 {
		most -= maxClientDone
		res.clients = newClientDone(n, maxClientDone, t.sh.set.window, from, t.time())
	}
	if n := set.Dedup; n > 0 {
		res.ring = newDoneRing(n, most, from)
	}
}

// done returns what is to be stored of what the residence remembers. The shard's mu is held.
func (r *residence) done() []zstore.Done {
	var ids []string
	for k := range r.running {
		if k.once != "" {
			ids = append(ids, k.once)
		}
	}
	done := r.ring.list(ids...)
	if r.clients != nil {
		done = append(done, r.clients.list(r.sh.set.clock.Now())...)
	}
	return done
}

// remembers reports whether a request with the key is remembered when it has run.
func (r *residence) remembers(k *doneKey) bool {
	return k.once != "" && r.ring != nil || k.session != 0 && r.clients != nil
}

// once ends a request in the actor's turn, or has it wait, where it has run, runs, or may have run.
func (r *residence) once(m *zmsg.Message) (done bool, err error) {
	sh := r.sh
	k := keyOf(m)
	if !r.remembers(&k) {
		if !m.Resent {
			return false, nil
		}
		sh.set.counts.resent(mayHaveRun)
		m.ReplyError(errMayRan)
		return true, nil
	}
	w, _ := m.Waiter()
	c, _ := w.(*call)
	if c == nil { // it came past the entry, which is what hears of its end: nothing is remembered of it
		if m.Resent {
			m.ReplyError(errMayRan)
		}
		return m.Resent, nil
	}
	var reply zmsg.Reply
	var v verdict
	sh.mu.Lock()
	same := r.running[k]
	switch {
	case same != nil && len(same.others) >= maxSharing:
		err = zactor.NotRun(errRunsNow)
	case same != nil:
		to, token := m.TakeReplier()
		same.others, v = append(same.others, sharing{c, to, token}), hasRun
	default:
		if reply, v = r.judge(&k, m.Resent); v == neverRan {
			if r.running == nil {
				r.running = make(map[doneKey]*running)
			}
			r.running[k] = &running{first: c}
			if k.session != 0 {
				r.begun(&k)
			}
		}
	}
	saves := r.owing
	sh.mu.Unlock()
	if m.Resent && err == nil {
		sh.set.counts.resent(v)
	}
	switch {
	case err != nil:
		return false, err
	case v == hasRun:
		sh.set.counts.DedupHits.Inc()
		if same != nil {
			return true, nil
		}
		if saves {
			c.durable.Store(true) // what was told after the save, or waits for it, is not told before it now
		}
		m.Reply(&reply)
		return true, nil
	case v == mayHaveRun:
		m.ReplyError(errMayRan)
		return true, nil
	}
	return false, nil
}

// judge says what is remembered of the request with key k. The shard's mu is held.
func (r *residence) judge(k *doneKey, resent bool) (reply zmsg.Reply, v verdict) {
	if k.once != "" {
		reply, ok := r.ring.find(k.once)
		if ok {
			return reply, hasRun
		}
		return reply, neverRan
	}
	raw, v := r.clients.judge(k.session, k.seq, resent, r.sh.set.clock.Now())
	if v == hasRun {
		reply = decodeReply(raw)
	}
	return reply, v
}

// keptReply is an outcome as it is remembered; neither: it is not.
type keptReply struct {
	once *zmsg.Reply
	raw  []byte
	ran  bool
}

// kept makes of the outcome of the request with key k what is remembered. It is called without the lock.
func (r *residence) kept(k *doneKey, outcome *zmsg.Reply) (kept keptReply) {
	switch {
	case k.once != "":
		if outcome.Code == zmsg.CodeOK || outcome.Outcome == zmsg.Executed {
			e := encoded(outcome)
			kept.once = &e
		}
	case outcome.Code == zmsg.CodeOK || outcome.Outcome != zmsg.NotExecuted:
		kept.ran = true
		kept.raw, _ = encodeReply(outcome) // one that does not encode is not kept
	}
	return kept
}

// remember notes that c has ended, and returns those that share its outcome.
func (t *turn) remember(res *residence, c *call, kept *keptReply) (others []sharing) {
	run := res.running[c.done]
	if run == nil || run.first != c {
		return nil // it shares another's outcome, or has not come to run
	}
	delete(res.running, c.done)
	if res.dropped {
		return run.others
	}
	switch {
	case c.done.session != 0:
		// What has changed nothing need not be saved for that it ran.
		if res.clients.end(c.done.session, c.done.seq, kept.raw, kept.ran, t.time()) {
			res.dirty.Store(true)
		}
	case kept.once != nil:
		if err := res.ring.add(c.done.once, kept.once); err == nil {
			res.dirty.Store(true)
		}
	}
	res.owing = res.owing || c.durable.Load()
	return run.others
}

// begun notes that the request of a client with key k runs. The shard's mu is held.
func (r *residence) begun(k *doneKey) {
	was := r.clients.dropped
	r.clients.begin(k.session, k.seq, r.sh.set.clock.Now())
	if n := r.clients.dropped - was; n > 0 {
		r.sh.set.counts.Forgotten.Add(float64(n))
	}
}

// tell gives a request the outcome of the one that it is the same as, which waits for the save where that does.
func (s *sharing) tell(outcome *zmsg.Reply, saves bool) {
	if saves && s.c != nil {
		s.c.durable.Store(true)
	}
	if s.to != nil {
		s.to.Reply(s.token, outcome)
	}
}
