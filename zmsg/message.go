package zmsg

import (
	"errors"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
)

// Message is the thing that waits in a mailbox.
//
// Ownership: whoever delivers a Message successfully has given it away and does not touch it again; the receiver calls
// Release when its turn is over. What a delivery refuses stays with the caller. Under `-tags invariants` Release
// poisons the body, so that a use after it shows.
//
// A Message has one owner at a time and is not safe for concurrent use.
type Message struct {
	ID   uint32 // message id
	Seq  uint64 // the client's seq, 0 if none
	User string // user id of the session, "" if none or not logged in

	Session SessionRef // the client's session, zero if the message does not come from a client
	Client  bool       // the client mark: only handlers declared client-callable run for it
	From    Address    // the sending actor, zero if none

	Deadline time.Time // when the caller stops waiting; zero: no deadline. Travels as remaining time
	Trace    Trace
	Chain    []uint64 // UIDs of the actors that wait for the end of this request, outermost first; read only
	Hops     uint32
	// Once is the request's idempotency key, at most MaxOnce bytes of UTF-8; "": none. A stateful actor runs requests of one key once.
	Once string
	// Resent: the client has sent the request before, and it may have run; only an object whose kind can tell is given it, and it runs at most
	// once in all. See zrouter.Settings.ClientDedup.
	Resent bool

	// Value is the decoded body, or the message itself where sender and receiver share a process; nil if only the
	// bytes are there. Nobody changes it after sending.
	Value proto.Message

	// Queued is when it was put into the mailbox of its actor, Unix nanoseconds; only of a message whose trace is recorded.
	Queued int64

	body    []byte // what Body returns: buf, or borrowed memory
	buf     []byte // own memory, kept from use to use
	replier Replier
	token   uint64
	pooled  bool
}

// MaxOnce is how long Message.Once may be, in bytes.
const MaxOnce = 128

// Replier takes the one outcome of a request. A session at a gate, a waiting Ask, and the table of requests of a Link
// are repliers.
//
// Reply is called at most once for a token, from any goroutine. r and what it points to are valid only during the
// call, except r.Value, which may be kept and is not changed. A token that the replier does not know any more (late,
// double) is counted by it and ignored: tokens carry a generation, so an outcome never meets another request.
type Replier interface {
	Reply(token uint64, r *Reply)
}

// Waiter is a Replier that knows when the one who asked has given up. Whoever works on the request may let himself be told; that
// is advice: the duty to reply stays.
type Waiter interface {
	Replier
	// OnGiveUp has w told with arg, once and from any goroutine, when the request of token is given up before its outcome
	// is there; at once if it has been already. A request has one who is told: the last one that asked. The result is false
	// when the request has ended otherwise.
	OnGiveUp(token uint64, w GiveUp, arg uint64) bool
	// Forget takes OnGiveUp back, if it is still w that is told.
	Forget(token uint64, w GiveUp)
}

// GiveUp is told that nobody waits for a request any more.
type GiveUp interface{ GaveUp(arg uint64) }

// Waiter returns who waits for m's outcome, nil where that is nobody, or one that cannot tell when he gives up.
func (m *Message) Waiter() (w Waiter, token uint64) {
	w, _ = m.replier.(Waiter)
	return w, m.token
}

// Reply is the outcome of a request: an answer (Code is CodeOK), or an error and whether the request ran.
type Reply struct {
	ID      uint32 // message id of the answer, 0 for an error
	Code    Code
	Outcome Outcome
	Text    string
	Body    []byte        // encoded answer; may be nil where Value is set
	Value   proto.Message // decoded answer; may be nil where Body is set

	// Owner and Version say who owned the object that answered, and since which version; zero where no object did.
	Owner   NodeRef
	Version RouteVersion
	// Undelivered is set by the link of the node that asked: the request provably did not reach the other node, for want of a bus or because
	// nobody there has the address any more. It does not travel. An error without it says nothing of that: a deadline
	// that passed before the sending does not set it.
	Undelivered bool
}

// Err returns nil for CodeOK, else an *Error.
func (r *Reply) Err() error {
	if r.Code == CodeOK {
		return nil
	}
	return &Error{Code: r.Code, Outcome: r.Outcome, Text: r.Text}
}

// ErrorReply makes the reply that tells err: its code, outcome and text. An error without a code becomes
// CodeInternal, and its text does not leave the node (it may hold what clients must not see).
func ErrorReply(err error) Reply {
	r := Reply{Code: CodeOf(err), Outcome: OutcomeOf(err)}
	if e, ok := errors.AsType[*Error](err); ok {
		r.Text = e.Text // alone: what wraps it is for logs
	}
	return r
}

var pool = sync.Pool{New: func() any { return new(Message) }}

// maxKept is the largest body buffer that goes back to the pool, in bytes.
const maxKept = 16 << 10

// NewMessage returns an empty Message from the pool.
func NewMessage(id uint32) *Message {
	m := pool.Get().(*Message)
	m.ID, m.pooled = id, true
	return m
}

// Release gives m back to the pool. The caller must own it and not use it, its body or its chain afterwards. A reply
// slot that is still set is dropped in silence: whoever ends a request does so before.
func (m *Message) Release() {
	if !m.pooled {
		return
	}
	buf := m.buf
	poison(buf)
	if cap(buf) > maxKept {
		buf = nil
	}
	*m = Message{buf: buf[:0]}
	pool.Put(m)
}

// Body returns the encoded body, nil if only Value is there. It is valid while the caller owns m.
func (m *Message) Body() []byte { return m.body }

// SetBody copies b into m's own memory.
func (m *Message) SetBody(b []byte) {
	m.buf = append(m.buf[:0], b...)
	m.body = m.buf
}

// BorrowBody makes b the body without copying: b must not change while m is in use. Release does not touch it.
func (m *Message) BorrowBody(b []byte) { m.body = b }

// ShareBody returns the body for others to borrow, also after Release, which will not use its memory again. Nobody changes it.
func (m *Message) ShareBody() []byte {
	if len(m.body) > 0 && cap(m.buf) > 0 && &m.body[0] == &m.buf[:1][0] {
		m.buf = nil
	}
	return m.body
}

// EncodedBody returns the body, encoding Value first if there are no bytes yet.
func (m *Message) EncodedBody() ([]byte, error) {
	if m.body != nil || m.Value == nil {
		return m.body, nil
	}
	b, err := MarshalAppend(m.buf[:0], m.Value)
	if err != nil {
		return nil, err
	}
	m.buf, m.body = b, b
	return b, nil
}

// SetReplier makes m a request: r gets its one outcome, with token. It is set before m becomes visible to others.
func (m *Message) SetReplier(r Replier, token uint64) { m.replier, m.token = r, token }

// Wants reports whether somebody waits for a reply that has not been given yet.
func (m *Message) Wants() bool { return m.replier != nil }

// TakeReplier removes the reply slot and returns it: the caller has taken over the duty to reply. It returns nil when
// nobody waits.
func (m *Message) TakeReplier() (Replier, uint64) {
	r, t := m.replier, m.token
	m.replier, m.token = nil, 0
	return r, t
}

// Reply ends the request with r. It reports false, and does nothing, when nobody waits (a one-way message, or replied
// before).
func (m *Message) Reply(r *Reply) bool {
	to, token := m.TakeReplier()
	if to == nil {
		return false
	}
	to.Reply(token, r)
	return true
}

// ReplyError ends the request with err; see ErrorReply and Reply.
func (m *Message) ReplyError(err error) bool {
	if m.replier == nil {
		return false
	}
	r := ErrorReply(err)
	return m.Reply(&r)
}

// CopyHead copies everything but body, value and reply slot from o. The chain is shared: it is read only.
func (m *Message) CopyHead(o *Message) {
	m.ID, m.Seq, m.User, m.Session, m.Client, m.From = o.ID, o.Seq, o.User, o.Session, o.Client, o.From
	m.Deadline, m.Trace, m.Chain, m.Hops, m.Once, m.Resent = o.Deadline, o.Trace, o.Chain, o.Hops, o.Once, o.Resent
}
