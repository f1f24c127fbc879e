package zrouter

import (
	"cmp"
	"container/list"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"time"

	"zgame/zmsg"
	"zgame/zstore"
)

// clientDone remembers the requests of clients that an object has run, by session and seq, so that one whose gate was killed is not run twice when
// its client sends it again: of each session the newest, as many as limit, with their answers, and as many sessions as fit into most bytes. It is
// stored with the object's state, in one write, so what the state has of a request, and that it ran, are never apart.
//
// What it has forgotten it knows: of a session all requests up to a seq, as a session's seqs rise; of sessions, that there are such as it has
// forgotten. A request that may be one of these is not run. Sessions that had no request for longer than keep are past all coming again, and go
// without a trace.
//
// It is not safe for concurrent use.
type clientDone struct {
	limit int           // answers of a session
	most  int           // bytes, as the store counts
	keep  time.Duration // by the clock of this node: in a record are no times, so what was loaded is kept a little longer

	sessions map[uint64]*list.Element // of *sessionDone
	order    list.List                // the one that has asked last at the back
	size     int
	blind    time.Time // until then a session that is not there may be one that was forgotten before its time
	dropped  int       // sessions that were
}

// sessionDone is what is remembered of one session: never nothing.
type sessionDone struct {
	id    uint64
	floor uint64          // what is not in done, up to this seq, may have run
	done  []sessionAnswer // by seq
	size  int
	at    time.Time // of its last request
}

type sessionAnswer struct {
	seq uint64
	raw []byte // as encodeReply makes it; nil: not kept. Never changed

	runs   bool // it has not ended
	stored bool // as one that runs, with what it has changed so far
}

const (
	maxClientDone = zstore.MaxDone / 2 // of one object, in bytes
	smallAnswer   = 64                 // what is no larger stays with a session until the end, in bytes

	// Upper bounds of what they take in a record: the store counts 48 bytes for an entry, and an id has 13 of them at most.
	headCost    = 48 + 1
	sessionCost = 48 + 13 + binary.MaxVarintLen64
	answerCost  = binary.MaxVarintLen64 + 3
)

func (a *sessionAnswer) cost() int { return answerCost + len(a.raw) }

// Of a record's remembered requests, those with a Seq are the sessions'. One with no more than that says that there are such, and whether all are there:
// without it the object was written by who does not remember them.
const (
	doneSession = 1
	doneAll     = 2
	doneSome    = 3
	doneHead    = "*"
)

// freshClientDone is what the record of an object says that has just been made.
func freshClientDone() []zstore.Done { return []zstore.Done{{Origin: doneHead, Seq: doneAll}} }

// newClientDone goes on with what the record has; it does not change from.
func newClientDone(limit, most int, keep time.Duration, from []zstore.Done, now time.Time) *clientDone {
	d := &clientDone{limit: limit, most: most, keep: keep, size: headCost, sessions: make(map[uint64]*list.Element)}
	all := false
	for i := range from {
		switch e := &from[i]; e.Seq {
		case doneAll:
			all = true
		case doneSession:
			s, err := decodeSession(e)
			if err != nil || d.sessions[s.id] != nil { // of another program
				d.blind = now.Add(keep)
				continue
			}
			s.at = now
			d.size += s.size
			d.sessions[s.id] = d.order.PushBack(s)
		}
	}
	if !all {
		d.blind = now.Add(keep)
	}
	for _, e := range d.sessions {
		d.shorten(e.Value.(*sessionDone)) // the limit was another
	}
	d.trim(now)
	return d
}

// verdict is what is known of a request before it runs.
type verdict uint8

const (
	neverRan verdict = iota // or it is the first time that it comes
	hasRun
	mayHaveRun
)

var verdictNames = [...]string{"ran", "answered", "unknown"} // what follows from it

// judge says whether the request with seq of session has run, and with which answer. resent: it has been sent before, so that a session of which
// nothing is known may be one that was forgotten.
func (d *clientDone) judge(session, seq uint64, resent bool, now time.Time) (raw []byte, v verdict) {
	e := d.sessions[session]
	if e == nil {
		if resent && now.Before(d.blind) {
			return nil, mayHaveRun
		}
		return nil, neverRan
	}
	s := e.Value.(*sessionDone)
	if i, ok := s.find(seq); ok {
		return s.done[i].raw, hasRun
	}
	if seq <= s.floor {
		return nil, mayHaveRun
	}
	return nil, neverRan
}

func (s *sessionDone) find(seq uint64) (i int, ok bool) {
	return slices.BinarySearchFunc(s.done, seq, func(a sessionAnswer, seq uint64) int { return cmp.Compare(a.seq, seq) })
}

// begin remembers that a request runs: until it has ended nobody knows with what, and what is stored meanwhile, with what it has changed so far, says so.
func (d *clientDone) begin(session, seq uint64, now time.Time) {
	d.age(now)
	e := d.sessions[session]
	if e == nil {
		fresh := &sessionDone{id: session, size: sessionCost}
		if now.Before(d.blind) {
			fresh.floor = seq - 1 // it may be one that was forgotten
		}
		e = d.order.PushBack(fresh)
		d.sessions[session] = e
		d.size += sessionCost
	}
	d.order.MoveToBack(e)
	s := e.Value.(*sessionDone)
	s.at = now
	i, ok := s.find(seq)
	if ok || seq <= s.floor {
		return
	}
	a := sessionAnswer{seq: seq, raw: endUnknown, runs: true}
	s.done = slices.Insert(s.done, i, a)
	s.size += a.cost()
	d.size += a.cost()
	d.shorten(s)
	d.trim(now)
}

// end remembers with which answer a request has ended (nil: it is not kept), which is not changed any more; ran is false where it has not run after all.
// save: what is stored says that nobody knows, so the answer is to be stored too.
func (d *clientDone) end(session, seq uint64, raw []byte, ran bool, now time.Time) (save bool) {
	e := d.sessions[session]
	if e == nil {
		return false
	}
	s := e.Value.(*sessionDone)
	i, ok := s.find(seq)
	switch {
	case !ok: // it was too much
		return false
	case ran:
		a := &s.done[i]
		save = a.stored
		s.size += len(raw) - len(a.raw)
		d.size += len(raw) - len(a.raw)
		a.raw, a.runs, a.stored = raw, false, false
		d.trim(now)
	case len(s.done) > 1:
		save = s.done[i].stored
		cost := s.done[i].cost()
		s.size -= cost
		d.size -= cost
		s.done = slices.Delete(s.done, i, i+1)
	case s.floor == 0:
		save = s.done[i].stored
		d.remove(e)
	default: // the floor is to stay, and with it that nobody knows
	}
	return save
}

// shorten lets the oldest answers of a session go that are too many.
func (d *clientDone) shorten(s *sessionDone) {
	for len(s.done) > d.limit {
		d.oldest(s)
	}
}

// oldest lets the oldest answer of s go.
func (d *clientDone) oldest(s *sessionDone) {
	a := s.done[0]
	s.floor = a.seq
	s.size -= a.cost()
	d.size -= a.cost()
	s.done[0] = sessionAnswer{}
	s.done = s.done[1:]
}

// age lets sessions go whose time is over.
func (d *clientDone) age(now time.Time) {
	for e := d.order.Front(); e != nil && now.Sub(e.Value.(*sessionDone).at) > d.keep; e = d.order.Front() {
		d.remove(e)
	}
}

func (d *clientDone) remove(e *list.Element) {
	s := d.order.Remove(e).(*sessionDone)
	delete(d.sessions, s.id)
	d.size -= s.size
}

// trim makes what is too much fit: whoever has most loses an answer, so that who asks seldom is remembered as long as who asks often. When all have no
// more than a small one each, those go that have not asked for longest.
func (d *clientDone) trim(now time.Time) {
	for d.size > d.most {
		var s *sessionDone
		for e := d.order.Front(); e != nil; e = e.Next() {
			if o := e.Value.(*sessionDone); s == nil || o.size > s.size {
				s = o
			}
		}
		switch last := &s.done[len(s.done)-1]; {
		case len(s.done) > 1:
			d.oldest(s)
		case len(last.raw) > smallAnswer:
			s.size -= len(last.raw)
			d.size -= len(last.raw)
			last.raw = nil
		default:
			d.remove(d.order.Front())
			d.blind = now.Add(d.keep)
			d.dropped++
		}
	}
}

// list returns what is to be stored. Nobody changes it.
func (d *clientDone) list(now time.Time) []zstore.Done {
	d.age(now)
	out := make([]zstore.Done, 1, 1+len(d.sessions))
	out[0] = zstore.Done{Origin: doneHead, Seq: doneAll}
	if now.Before(d.blind) {
		out[0].Seq = doneSome
	}
	for e := d.order.Front(); e != nil; e = e.Next() {
		out = append(out, e.Value.(*sessionDone).encode())
	}
	return out
}

// A session is stored as the floor, and then for each answer how far its seq is from the number before, its length, and itself; a length of 0: it was not
// kept.

func (s *sessionDone) encode() zstore.Done {
	b := make([]byte, 0, s.size-sessionCost+binary.MaxVarintLen64)
	b = binary.AppendUvarint(b, s.floor)
	last := s.floor
	for i := range s.done {
		a := &s.done[i]
		a.stored = a.runs
		b = binary.AppendUvarint(b, a.seq-last)
		b = binary.AppendUvarint(b, uint64(len(a.raw)))
		b = append(b, a.raw...)
		last = a.seq
	}
	return zstore.Done{Origin: strconv.FormatUint(s.id, 36), Seq: doneSession, Reply: b}
}

var errSessionDone = errors.New("zrouter: remembered requests of a session are malformed")

func decodeSession(d *zstore.Done) (*sessionDone, error) {
	id, err := strconv.ParseUint(d.Origin, 36, 64)
	if err != nil {
		return nil, err
	}
	s := &sessionDone{id: id, size: sessionCost}
	b := d.Reply
	next := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			b, err = nil, errSessionDone
			return 0
		}
		b = b[n:]
		return v
	}
	s.floor = next()
	last := s.floor
	for len(b) > 0 {
		step, n := next(), next()
		if err != nil || step == 0 || last+step < last || n > uint64(len(b)) {
			return nil, errSessionDone
		}
		last += step
		a := sessionAnswer{seq: last}
		if n > 0 {
			a.raw = b[:n:n]
		}
		b = b[n:]
		s.done = append(s.done, a)
		s.size += a.cost()
	}
	if err != nil || len(s.done) == 0 {
		return nil, errSessionDone
	}
	return s, nil
}

// doneKey says which request one is, however often it comes: an idempotency key, or a client's session and seq. The zero one: nothing does.
type doneKey struct {
	once         string
	session, seq uint64
}

func keyOf(m *zmsg.Message) doneKey {
	switch {
	case m.Once != "":
		return doneKey{once: m.Once}
	case m.Client && m.Session.ID != 0 && m.Seq != 0:
		return doneKey{session: m.Session.ID, seq: m.Seq} // without the generation: another gate is another one
	}
	return doneKey{}
}
