package zgate

import "sync"

// inFlight is the table of a session's requests that wait for their response. A token names a slot and the use of it,
// so that a late or double reply never meets another request. It costs nothing until the first request.
type inFlight struct {
	mu    sync.Mutex
	slots []flight
	free  []uint16
	uses  uint64 // counts uses of all slots; part of the token
	dead  bool   // the session has ended

	// last is the greatest seq so far, whatever became of the request: what has been refused is answered the same when it comes again. repeat is
	// what it was on connections before: a request with it, or a smaller one, is one that is sent again. Owned by the reading goroutine.
	last, repeat uint64
}

// flight is one slot; without a seq it is a free one, with token 0 its response is just being sent.
type flight struct {
	token    uint64
	seq      uint64
	deadline int64 // wheel time
}

const slotBits = 12

// add takes a slot; ok is false when limit are taken. The token is never 0.
func (t *inFlight) add(seq uint64, deadline int64, limit int) (token uint64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var slot uint16
	switch {
	case t.dead:
		return 0, false
	case len(t.free) > 0:
		slot = t.free[len(t.free)-1]
		t.free = t.free[:len(t.free)-1]
	case len(t.slots) < limit:
		slot = uint16(len(t.slots))
		t.slots = append(t.slots, flight{})
	default:
		return 0, false
	}
	t.uses++
	token = t.uses<<slotBits | uint64(slot)
	t.slots[slot] = flight{token: token, seq: seq, deadline: deadline}
	return token, true
}

// seen notes that a request has come, and reports whether it may have been here on a connection before.
func (t *inFlight) seen(seq uint64) (again bool) {
	t.last = max(t.last, seq)
	return seq != 0 && seq <= t.repeat
}

// repeated follows a change of the connection, whose reading goroutine calls it: what was seen so far may come again.
func (t *inFlight) repeated() { t.repeat = t.last }

// resumed takes note, before anything has come, of the greatest seq that was seen at another gate.
func (t *inFlight) resumed(last uint64) { t.last, t.repeat = last, last }

// flying reports whether the request with seq waits for its response, or has it just now.
func (t *inFlight) flying(seq uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.slots {
		if t.slots[i].seq == seq {
			return true
		}
	}
	return false
}

// waits reports whether the token's request has no response yet.
func (t *inFlight) waits(token uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	slot := int(token & (1<<slotBits - 1))
	return token != 0 && slot < len(t.slots) && t.slots[slot].token == token
}

// token returns that of the request with seq.
func (t *inFlight) token(seq uint64) (token uint64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.slots {
		if t.slots[i].seq == seq && t.slots[i].token != 0 {
			return t.slots[i].token, seq != 0
		}
	}
	return 0, false
}

// pending returns the requests that wait for their response, or have it just now.
func (t *inFlight) pending() (all []flight) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.slots {
		if f.seq != 0 {
			all = append(all, f)
		}
	}
	return all
}

// end ends the token's request and returns its seq, and how many others there are; ok is false when it has been ended
// before. With hold, the request is flying until release.
func (t *inFlight) end(token uint64, hold bool) (seq uint64, others int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slot := int(token & (1<<slotBits - 1))
	if token == 0 || slot >= len(t.slots) || t.slots[slot].token != token {
		return 0, 0, false
	}
	seq, others = t.slots[slot].seq, len(t.slots)-len(t.free)-1
	if hold {
		t.slots[slot].token = 0
		return seq, others, true
	}
	t.freeLocked(slot)
	return seq, others, true
}

// release frees the slot of a token that was ended with hold.
func (t *inFlight) release(token uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.dead {
		t.freeLocked(int(token & (1<<slotBits - 1)))
	}
}

func (t *inFlight) freeLocked(slot int) {
	t.slots[slot] = flight{}
	t.free = append(t.free, uint16(slot))
}

// next returns the earliest deadline (never: nothing is in flight).
func (t *inFlight) next() int64 {
	_, next := t.expired(nil, 0)
	return next
}

// expired appends the tokens of the requests whose deadline has passed to tokens, and returns the earliest deadline of
// the others (never: there are none).
func (t *inFlight) expired(tokens []uint64, now int64) (_ []uint64, next int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next = never
	for i := range t.slots {
		f := &t.slots[i]
		switch {
		case f.token == 0:
		case f.deadline <= now:
			tokens = append(tokens, f.token)
		default:
			next = min(next, f.deadline)
		}
	}
	return tokens, next
}

// close ends all requests, and returns how many there were. add fails from now on.
func (t *inFlight) close() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for i := range t.slots {
		if t.slots[i].token != 0 { // others are just being answered, and counted then
			n++
		}
	}
	t.slots, t.free, t.dead = nil, nil, true
	return n
}
