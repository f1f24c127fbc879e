package zgate

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// Errors of session operations. Each is a *zmsg.Error within, so that a handler may return it as it is.
var (
	ErrNoSession    error = &opError{"zgate: no such session", zmsg.CodeNotFound}                         // ended, or never was
	ErrStaleSession error = &opError{"zgate: session has another generation", zmsg.CodeNotFound}          // another socket or user by now
	ErrWrongGate    error = &opError{"zgate: session is at another gate", zmsg.CodeNotFound}              // or another start of this one
	ErrTooMany      error = &opError{"zgate: limit of groups or watchers of this session", zmsg.CodeBusy} // nothing was changed
	ErrBadGroup     error = &opError{"zgate: not a group name", zmsg.CodeBadRequest}                      // empty, too long, or not UTF-8
	ErrNotWired     error = &opError{"zgate: the gate has no way to tell actors", zmsg.CodeInternal}      // Config.Tell is nil
)

// opError is an error of a session operation: itself for errors.Is, and its code for who asked.
type opError struct {
	text string
	code zmsg.Code
}

// Error says what went wrong.
func (e *opError) Error() string { return e.text }

// Unwrap returns the error that tells the code: the operation did nothing.
func (e *opError) Unwrap() error {
	return &zmsg.Error{Code: e.code, Outcome: zmsg.NotExecuted, Text: strings.TrimPrefix(e.text, "zgate: ")}
}

// Session is a client that has logged in; it may outlive a connection. All methods may be called from any goroutine, and do not block.
type Session struct {
	// Set at construction.
	g      *Gate
	ref    zmsg.SessionRef
	user   string
	client string
	resume *resumption // nil: the session ends with its connection; what is in it is guarded as what follows

	// Owned by the reading goroutine of its connection.
	rate rates

	// Changed while both connections are locked; see lock.
	c atomic.Pointer[conn] // the one that it has, or had last

	// Guarded by the lock of c.
	pushes uint64 // number of the last push
	state  uint8

	requests inFlight
	askings  atomic.Pointer[askings]    // nil until the first
	login    atomic.Uint64              // the number that the Directory gave it; 0: none yet
	routes   atomic.Pointer[[]ownRoute] // by message id, nil: there are none; written with mu

	telling sync.Mutex // ahead of all other locks: who tells of the session's states holds it
	away    bool       // guarded by telling: what they were told last
	awayHow *ending    // guarded by telling: how the connection ended; nil: not away

	mu       sync.Mutex // of what follows; before the locks of groups, behind those of bound objects
	groups   map[string]*group
	watchers []zmsg.Address
	objects  []*boundObject // that it is bound to, the oldest first
	ended    bool
}

// Ref returns the session's identity.
func (s *Session) Ref() zmsg.SessionRef { return s.ref }

// User returns the id of the user, which is not empty.
func (s *Session) User() string { return s.user }

// Client returns what the client called itself, "" if nothing.
func (s *Session) Client() string { return s.client }

// RemoteAddr returns the address of the connection, or of the last one; zero where it has none.
func (s *Session) RemoteAddr() netip.AddrPort { return s.c.Load().remote }

// Push sends p. Errors: ErrClosed, ErrSlow, ErrDropped, zmsg.ErrTooLarge, or what encoding p says.
func (s *Session) Push(p *zmsg.Push) error {
	if s.ref.ID == 0 {
		return ErrNoSession // a guest: the numbers of pushes begin with the login
	}
	e, err := s.g.encode(p, false)
	if err != nil {
		return err
	}
	return s.push(&e, false)
}

// Close ends the session with code and text, behind everything that has been sent before. It reports whether this
// call was the one that did. Codes that are not for gates to send become CloseKicked.
func (s *Session) Close(code CloseCode, text string) bool {
	if !code.sendable() {
		code = CloseKicked
	}
	if s.later(func() { s.close(code, text) }) {
		return true
	}
	return s.close(code, text)
}

func (s *Session) close(code CloseCode, text string) bool {
	return s.closeUnlessMoved(code, text, code == CloseMoved)
}

// closeUnlessMoved is close; with here, it leaves a session that is on its way to another gate, or there, as it is.
func (s *Session) closeUnlessMoved(code CloseCode, text string, here bool) bool {
	c := s.lock()
	switch {
	case here && (s.state == stateGone || s.state == stateSuspended && s.resume.moving != nil):
		c.q.mu.Unlock()
		return false // that is so
	case s.state == stateGone:
		c.q.mu.Unlock()
		_, err := s.elsewhere(zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_KICK, Code: zmsg.Code(code), Text: text})
		return err == nil
	case s.state == stateSuspended && s.resume.moving != nil:
		first := s.resume.moving.kick.code == 0
		if first {
			s.resume.moving.kick = ending{code, text} // it goes behind the state
		}
		c.q.mu.Unlock()
		return first
	case s.state == stateSuspended:
		s.state = stateEnded
		c.q.mu.Unlock()
		s.endAway(c, ending{code, cut(text, maxReason)})
		return true
	case c.closeLocked(code, text, closing{}):
		c.q.mu.Unlock()
		return true
	case s.outlivesLocked(c):
		// Its connection is about to end, and it was to wait for its client.
		c.q.closed = ending{code, cut(text, maxReason)}
		c.q.mu.Unlock()
		return true
	}
	c.q.mu.Unlock()
	return false
}

// Reply satisfies zmsg.Replier: it sends the response to the request that token names. A token that is no longer
// waited for is counted and ignored.
func (s *Session) Reply(token uint64, r *zmsg.Reply) {
	seq, others, ok := s.requests.end(token, s.resume != nil)
	if !ok {
		if s.c.Load().closingNow.Load() {
			s.g.count.dropClosed.Inc()
		} else {
			s.g.count.dropLate.Inc()
		}
		return
	}
	// With others in flight, more answers are likely to follow at once (a burst that one actor works through): the last
	// one, or the flusher, writes them all.
	s.respond(seq, r, others > 0)
	s.answered(token)
}

// respond sends the response for seq; later leaves the write to the flusher.
func (s *Session) respond(seq uint64, r *zmsg.Reply, later bool) {
	if r.Code == zmsg.CodeOK && r.Body != nil && s.resume == nil && len(r.Body) <= s.g.cfg.MaxSend && s.c.Load().plainBinary(len(r.Body)) {
		s.respondBytes(seq, r, later)
		return
	}
	f := zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_RESPONSE, ID: r.ID, Seq: seq, Code: r.Code, Outcome: r.Outcome, Text: r.Text, Body: r.Body}
	b := scratches.Get().(*scratch)
	defer b.free()
	if r.Body == nil && r.Value != nil {
		var err error
		if f.Body, err = b.marshal(r.Value); err != nil {
			s.notEncoded(r.ID, err)
			f = zmsg.Frame{Kind: f.Kind, Seq: seq, Code: zmsg.CodeInternal}
		}
	}
	if limit := s.g.cfg.MaxSend; len(f.Body) > limit {
		s.g.log.Debug("response is too large", "msg_id", r.ID, "session", s.ref.ID, "size", len(f.Body))
		f = zmsg.Frame{Kind: f.Kind, Seq: seq, Code: zmsg.CodeTooLarge, Text: "the response is above the limit of " + itoa(limit) + " bytes"}
	}
	if r.Code != zmsg.CodeOK {
		f.ID, f.Body = 0, nil
	}
	var err error
	c := s.c.Load() // a session has one codec, whatever its connection
	if b.frame, err = c.encode(b.frame[:0], &f); err != nil {
		s.notEncoded(r.ID, err)
		f = zmsg.Frame{Kind: f.Kind, Seq: seq, Code: zmsg.CodeInternal}
		b.frame, _ = c.encode(b.frame[:0], &f) // nothing in it can fail
	}
	s.g.count.response(f.Code)
	s.sendResponse(seq, b.frame, later)
}

// respondBytes is respond for bytes to a binary client whose session keeps nothing: they go into the queue at once.
func (s *Session) respondBytes(seq uint64, r *zmsg.Reply, later bool) {
	f := zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_RESPONSE, ID: r.ID, Seq: seq, Body: r.Body}
	const room = 10 // for the websocket header
	var b [room + 50]byte
	head := zmsg.AppendPacketHead(b[room:room], &f)
	n := len(head) + len(r.Body)
	from := room - wsHeaderSize(n)
	appendWSHeader(b[from:from], opBinary, n)
	s.g.count.response(zmsg.CodeOK)
	c := s.lock()
	defer c.q.mu.Unlock()
	if c.admitLocked(room-from+n, zmsg.Reliable) != nil {
		s.g.count.dropClosed.Inc()
		return
	}
	c.appendLocked(b[from : room+len(head)])
	c.appendLocked(r.Body)
	c.sentLocked(later)
}

// sendResponse sends a response, and keeps it where the session is resumed.
func (s *Session) sendResponse(seq uint64, frame []byte, later bool) {
	var squeezed []byte
	if s.c.Load().squeezes(len(frame)) {
		z := deflaters.Get().(*deflater)
		defer z.free()
		squeezed = z.deflate(frame)
	}
	c := s.lock()
	defer c.q.mu.Unlock()
	if s.state == stateGone {
		_ = s.g.forward(s.resume.moving.to, &zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_RESPONSE, Seq: seq, Body: frame})
		return
	}
	kept := s.resume != nil && (!c.endedLocked() || s.outlivesLocked(c))
	if kept {
		before, now := s.resume.log.Bytes(), s.g.now()
		s.resume.log.Response(seq, frame, now)
		s.keepLocked(before, now)
	}
	if err := c.admitLocked(len(frame)+wsHeaderSize(len(frame)), zmsg.Reliable); err != nil {
		if !kept || !s.outlivesLocked(c) {
			s.g.count.dropClosed.Inc()
		}
		return
	}
	if squeezed != nil && c.deflates {
		c.squeezedLocked(c.op(), nil, squeezed, false, len(frame))
	} else {
		c.frameLocked(c.op(), frame)
	}
	c.sentLocked(later)
}

// answered follows the response to the request of token.
func (s *Session) answered(token uint64) {
	if s.resume != nil {
		s.requests.release(token)
	}
	s.g.requestDone()
}

// answer ends a request that was taken by the gate before, by its response.
func (s *Session) answer(seq uint64, frame []byte) {
	token, ok := s.requests.token(seq)
	if ok {
		_, _, ok = s.requests.end(token, true)
	}
	if !ok {
		s.g.count.dropLate.Inc()
		return
	}
	s.sendResponse(seq, frame, false)
	s.answered(token)
}

// notEncoded logs a response that cannot be encoded, once a second at most: a client can ask for it again and again.
func (s *Session) notEncoded(id uint32, err error) {
	if _, ok := s.g.encodeLog.Allow(time.Now()); ok {
		s.g.log.Error("response cannot be encoded", "msg_id", id, "session", s.ref.ID, "err", err)
	}
}

// respondError sends err as the response for seq.
func (s *Session) respondError(seq uint64, err error) {
	if seq == 0 {
		return
	}
	r := zmsg.ErrorReply(err)
	s.respond(seq, &r, false)
}

// watch adds a; ended says that the session has ended, and how it did is told at once.
func (s *Session) watch(a zmsg.Address) (ended bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return true, nil
	}
	if slices.Contains(s.watchers, a) {
		return false, nil
	}
	if len(s.watchers) >= s.g.cfg.MaxWatchers {
		return false, ErrTooMany
	}
	s.watchers = append(s.watchers, a)
	return false, nil
}

func (s *Session) unwatch(a zmsg.Address) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, w := range s.watchers {
		if w == a {
			s.watchers = append(s.watchers[:i], s.watchers[i+1:]...)
			return
		}
	}
}

// end takes the session out of everything it is in and tells those who watch it. Called once, by whoever has set its state to
// ended, after nothing more can be written.
func (s *Session) end(how ending) {
	g := s.g
	s.forget(how)
	g.sessions.drop(s)
	if n := s.requests.close(); n > 0 {
		for range n {
			g.requestDone()
		}
	}
	s.endAskings()
	s.telling.Lock()
	defer s.telling.Unlock()
	s.mu.Lock()
	s.ended = true
	groups, watchers, objects := s.groups, s.watchers, s.objects
	s.groups, s.watchers, s.objects = nil, nil, nil
	for _, grp := range groups {
		g.groups.leave(grp, s)
	}
	s.mu.Unlock()
	for _, o := range objects {
		if owner, there := g.objects.leave(o, s); there && !owner.IsZero() && !slices.Contains(watchers, owner) {
			watchers = append(watchers, owner)
		}
	}
	for _, w := range watchers {
		g.tellClosed(w, s.ref, s.user, how)
	}
	g.count.Sessions.Dec()
}

// tellClosed tells to that a session has ended.
func (g *Gate) tellClosed(to zmsg.Address, ref zmsg.SessionRef, user string, how ending) {
	m := zmsg.NewMessage(zmsg.SessionClosedID)
	m.Value = &wirepb.SessionClosed{
		Session: ref.ID, Generation: ref.Gen, Gate: ref.Gate.ID, GateEpoch: ref.Gate.Epoch,
		User: user, Code: uint32(how.code), Reason: how.text,
	}
	m.Session, m.User = ref, user
	if err := g.cfg.Tell(to, m); err != nil {
		g.count.dropWatcher.Inc()
		g.log.Debug("watcher not told of a closed session", "actor", to.String(), "session", ref.ID, "err", err)
		m.Release()
	}
}

const sessionShards = 64

// sessions is the table of a gate's sessions by id.
type sessions struct {
	shards [sessionShards]struct {
		mu sync.RWMutex
		m  map[uint64]*Session
		_  [64]byte // shards on cache lines of their own
	}
}

func (t *sessions) get(id uint64) *Session {
	sh := &t.shards[id%sessionShards]
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	return sh.m[id]
}

// put adds a session; false: there is one of its id.
func (t *sessions) put(s *Session) bool {
	sh := &t.shards[s.ref.ID%sessionShards]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.m == nil {
		sh.m = make(map[uint64]*Session)
	}
	if old := sh.m[s.ref.ID]; old != nil {
		if to, gone := old.goneTo(); !gone || s.ref.Gen <= to.Gen { // one that was handed over gives its place, when it comes back
			return false
		}
		if s.resume != nil {
			s.resume.former = old.passer()
			if s.resume.arrival != nil {
				s.resume.instead.Store(old)
			}
		}
	}
	sh.m[s.ref.ID] = s
	return true
}

// passer returns the newest of s and those that it was before that passes on what is published; nil: none does.
func (s *Session) passer() *Session {
	for s != nil && !s.resume.passing.Load() {
		s = s.resume.former
	}
	return s
}

// called returns what is or was called by that generation here, of s and those that it was before: by it comes what they are to pass on. nil: it passes
// nothing on any more.
func (s *Session) called(gen uint32) *Session {
	for s != nil && s.ref.Gen != gen {
		if s.resume == nil {
			return nil
		}
		if old := s.resume.instead.Load(); old != nil {
			s = old
		} else {
			s = s.resume.former
		}
	}
	return s
}

// all returns those that there are.
func (t *sessions) all() (all []*Session) {
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.RLock()
		for _, s := range sh.m {
			all = append(all, s)
		}
		sh.mu.RUnlock()
	}
	return all
}

// drop removes s, unless another session has its place.
func (t *sessions) drop(s *Session) { t.restore(s, nil) }

// restore has old be in the place of s, nil: nobody.
func (t *sessions) restore(s, old *Session) {
	sh := &t.shards[s.ref.ID%sessionShards]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	switch {
	case sh.m[s.ref.ID] != s:
	case old != nil && !old.isLeftBehind():
		sh.m[s.ref.ID] = old
	default:
		delete(sh.m, s.ref.ID)
	}
}
