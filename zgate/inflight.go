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
}

// flight is one slot; token 0 is a free one.
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

// end frees the token's slot and returns the request's seq, and how many others there are; ok is false when it has
// been ended before.
func (t *inFlight) end(token uint64) (seq uint64, others int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	seq, ok = t.endLocked(token)
	return seq, len(t.slots) - len(t.free), ok
}

func (t *inFlight) endLocked(token uint64) (seq uint64, ok bool) {
	slot := int(token & (1<<slotBits - 1))
	if token == 0 || slot >= len(t.slots) || t.slots[slot].token != token {
		return 0, false
	}
	seq = t.slots[slot].seq
	t.slots[slot] = flight{}
	t.free = append(t.free, uint16(slot))
	return seq, true
}

// expired appends the seqs of the requests whose deadline has passed to seqs, ends them, and returns the earliest
// deadline of the others (never: there are none).
func (t *inFlight) expired(seqs []uint64, now int64) (_ []uint64, next int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next = never
	for i := range t.slots {
		f := &t.slots[i]
		switch {
		case f.token == 0:
		case f.deadline <= now:
			seq, _ := t.endLocked(f.token)
			seqs = append(seqs, seq)
		default:
			next = min(next, f.deadline)
		}
	}
	return seqs, next
}

// close ends all requests, and returns how many there were. add fails from now on.
func (t *inFlight) close() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.slots) - len(t.free)
	t.slots, t.free, t.dead = nil, nil, true
	return n
}
