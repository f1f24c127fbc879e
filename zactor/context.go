package zactor

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
)

// Context is what a handler knows about its actor and the message it handles, and how it speaks to others.
//
// It is valid only while the handler (hook, continuation, timer) runs, on its goroutine: the next turn uses the same Context
// for another message. Work that goes on elsewhere takes Context.Context, and Defer for the reply.
type Context struct {
	cell *cell
	it   *item // the item of this turn

	// Set while the Context is the cell's.
	tap tap            // nil but for actors with a recorder, and in replays
	log *recordedInput // the tap's, of this turn

	// Of this turn; used says that some of them are set.
	used     bool
	reply    zmsg.Reply // scratch: a reply is valid only during Reply, so one is enough
	deferred *deferral  // what Defer has made of the reply slot; nil if it was not called
	drawn    bool       // Rand has been started for this turn
	turn     *turnContext
	trace    zmsg.Trace // that Trace has started, for a message that is a bare value

	// Of the goroutine.
	taken  atomic.Int32 // how many items of the batch are begun; the mailbox points here
	worked uint32       // messages handled, see cell.worked
	now    time.Time    // of the batch, see batchTime
	batch  []item       // what the goroutine works on
	next   int          // index of the first item of the batch that is not begun
	susp   *suspension  // this goroutine is a suspended handler's, see reentrant.go
	goexit *crash       // hands a crash from a goroutine that is ending to the next
	none   item         // see nothing
	told   zmsg.Message // of the turn, see open
	random *turnRand    // nil until a turn asks for it; stays in the pool
	watched
}

// nothing is the item of a turn that is about no message.
func (c *Context) nothing() *item {
	c.none = item{}
	return &c.none
}

// open makes it, which came from another node, the message of this turn: one that stays the Context's, so that it costs no more than what
// is looked at in it. Whoever may keep the message gets another: see Message.
func (c *Context) open(it *item) {
	c.told.Open(it.value.(*zmsg.Arrival), it.told())
	it.msg, it.value, it.token, it.deadline, it.size, it.kind = &c.told, nil, 0, 0, 0, itemMessage
}

// batchTime is the time at which the batch was begun, or when it was first asked for: one reading of the clock costs as
// much as a message.
func (c *Context) batchTime() time.Time {
	if c.now.IsZero() {
		c.now = c.cell.g.clock.Now()
	}
	return c.now
}

// endTurn ends what belongs to one turn.
func (c *Context) endTurn() {
	if c.turn != nil {
		c.turn.cancel()
		c.turn = nil
	}
	c.reply = zmsg.Reply{}
	c.trace = zmsg.Trace{}
	c.deferred, c.drawn, c.used = nil, false, false
}

// clean makes c fit for the pool.
func (c *Context) clean() *Context {
	if c.used {
		c.endTurn()
	}
	if c.it == &c.none {
		c.none = item{}
	}
	c.told.Close()
	c.cell, c.it, c.worked, c.now = nil, nil, 0, time.Time{}
	c.tap, c.log = nil, nil
	c.batch, c.next, c.susp = nil, 0, nil
	return c
}

// Now returns the time on the group's Clock: when the batch of messages was begun that this one is part of, or when it was
// first asked for. All messages of a batch see the same time, and a replay of a record sees it again. For what takes long within
// one handler, measure with package time.
func (c *Context) Now() time.Time { return c.batchTime() }

// Self returns the actor's own ref.
func (c *Context) Self() Ref { return Ref{cell: c.cell} }

// Actor returns the actor's present instance: for handlers that many instances share.
func (c *Context) Actor() Actor { return c.cell.actor }

// Name returns the actor's name, "" if it has none.
func (c *Context) Name() string { return c.cell.name }

// Group returns the group that the actor lives in.
func (c *Context) Group() *Group { return c.cell.g }

// ByID returns a ref that stands for whoever handles a message: see Group.ByID.
func (c *Context) ByID() Ref { return c.cell.g.ByID() }

// Logger returns the group's logger with the actor's id and name.
func (c *Context) Logger() *slog.Logger {
	return c.cell.g.log.With("actor", c.cell.id, "name", c.cell.name)
}

// Sender returns the actor that sent the message, the zero Ref if it was none.
func (c *Context) Sender() Ref {
	if c.it.from != nil {
		return Ref{cell: c.it.from}
	}
	if m := c.it.msg; m != nil && !m.From.IsZero() {
		return c.cell.g.Ref(m.From)
	}
	return Ref{}
}

// Message returns the message as it came: with head and body. It is valid during the handler, unless Take makes it the
// handler's; nobody but its owner may change it.
func (c *Context) Message() *zmsg.Message {
	if m := c.it.msg; m == &c.told {
		c.it.msg = zmsg.NewMessage(m.ID)
		c.it.msg.CopyHead(m)
		c.it.msg.BorrowBody(m.Body())
		return c.it.msg
	} else if m != nil {
		return m
	}
	m := zmsg.NewMessage(c.it.id)
	m.Value, m.Trace = c.protoValue(), c.trace
	if c.it.from != nil {
		m.From = c.it.from.address()
	}
	if c.it.deadline != 0 {
		m.Deadline = c.cell.g.futures.base.Add(time.Duration(c.it.deadline))
	}
	if c.it.fut != nil {
		m.SetReplier(c.it.fut, c.it.token)
		c.it.fut = nil
	}
	c.it.msg = m
	return m
}

// Take makes the message the handler's, to keep, to deliver elsewhere, to answer later: it has taken over the duty to reply,
// and to Release it.
func (c *Context) Take() *zmsg.Message {
	m := c.Message()
	c.it.msg = nil
	return m
}

func (c *Context) protoValue() proto.Message {
	m, _ := c.it.value.(proto.Message)
	return m
}

// MessageID returns the id of the message, 0 in a hook or timer.
func (c *Context) MessageID() uint32 {
	if c.it.id == 0 && c.it.msg != nil {
		return c.it.msg.ID
	}
	return c.it.id
}

// User returns the id of the user whose session sent the message, "" if there is none.
func (c *Context) User() string {
	if c.it.msg == nil {
		return ""
	}
	return c.it.msg.User
}

// Session returns the session that the message came from, zero if it came from none.
func (c *Context) Session() zmsg.SessionRef {
	if c.it.msg == nil {
		return zmsg.SessionRef{}
	}
	return c.it.msg.Session
}

// FromClient reports whether the message came from a client, not from an actor.
func (c *Context) FromClient() bool { return c.it.msg != nil && c.it.msg.Client }

// Trace returns the id under which the message is traced, zero if it is not. What the handler sends carries it on.
func (c *Context) Trace() zmsg.TraceID { return c.SendTrace().ID }

// SendTrace is Trace with the span in which the handler sends, for what carries messages itself.
func (c *Context) SendTrace() zmsg.Trace {
	if c.it.msg == nil {
		return c.trace
	}
	return c.it.msg.Trace
}

// CarryTrace has what a turn sends that is about no message (Ref.Turn, a timer) be part of a trace, which SendTrace has returned in an earlier one.
func (c *Context) CarryTrace(t zmsg.Trace) { *c.traceOf() = t }

// Deadline returns when the one who asked stops waiting; ok is false when nobody said.
func (c *Context) Deadline() (t time.Time, ok bool) {
	switch {
	case c.it.msg != nil:
		return c.it.msg.Deadline, !c.it.msg.Deadline.IsZero()
	case c.it.deadline != 0:
		return c.cell.g.futures.base.Add(time.Duration(c.it.deadline)), true
	default:
		return time.Time{}, false
	}
}

// chain returns the actors that wait for the end of this message: none once it has its reply.
func (c *Context) chain() []uint64 {
	m := c.it.msg
	if m == nil || c.it.kind == itemMessage && c.deferred == nil && !m.Wants() {
		return nil
	}
	return m.Chain
}

// waiting returns the chain of a request that this handler waits for: with the actor itself.
func (c *Context) waiting() []uint64 {
	if before := c.chain(); len(before) > 0 {
		return append(slices.Clip(slices.Clone(before)), c.cell.address().UID())
	}
	x := c.cell.more()
	if x.chain == nil {
		x.chain = []uint64{c.cell.address().UID()}
	}
	return x.chain
}

// turnContext is the context.Context of one turn.
type turnContext struct {
	context.Context //nolint:containedctx // it is one
	cancel          context.CancelFunc
	giveUp          zmsg.GiveUp // told when the one who asked gives up; nil if nobody can tell
	self            *cell
	chain           []uint64
	trace           zmsg.Trace
	tap             tap
	log             *recordedInput
}

type turnKey struct{}

// Value returns the turn to this package, so that Ask knows that an actor waits.
func (t *turnContext) Value(key any) any {
	if _, ok := key.(turnKey); ok {
		return t
	}
	return t.Context.Value(key)
}

// Context returns a context that ends with the handler, with the actor, at the deadline of the message, and when the one who
// asked gives up (with the cause zmsg.ErrCancelled). A request made under it (Ask) is part of the call chain.
func (c *Context) Context() context.Context {
	if c.turn == nil {
		t := &turnContext{self: c.cell, chain: c.waiting(), trace: c.SendTrace(), tap: c.tap, log: c.log}
		t.Context, t.cancel, t.giveUp = c.askedContext(c.cell.life())
		c.turn, c.used = t, true
	}
	return c.turn
}

// Stop stops the actor after this handler.
func (c *Context) Stop() { c.cell.halt(StopRequested) }

// wants reports whether somebody waits for a reply that has not been given.
func (c *Context) wants() bool {
	return c.it.fut != nil || c.it.msg != nil && c.it.kind == itemMessage && c.it.msg.Wants()
}

// Reply answers the request now, before the handler returns; what it returns is then dropped. It reports false when
// nobody waits.
func (c *Context) Reply(answer proto.Message) bool {
	if !c.wants() {
		return false
	}
	id, _ := zmsg.IDOf(answer)
	c.answer(id, answer)
	return true
}

// ReplyError answers the request with err now. It reports false when nobody waits.
func (c *Context) ReplyError(err error) bool {
	if !c.wants() {
		return false
	}
	c.used = true
	c.reply = handlerReply(err)
	c.give()
	return true
}

// answer gives an answer, if somebody waits for one.
func (c *Context) answer(id uint32, v proto.Message) {
	if !c.wants() {
		return
	}
	c.used = true
	c.reply = zmsg.Reply{ID: id, Value: v}
	c.give()
}

func (c *Context) give() {
	if f := c.it.fut; f != nil {
		c.it.fut = nil
		f.Reply(c.it.token, &c.reply)
		return
	}
	c.it.msg.Reply(&c.reply)
}

// fail ends a handler that returned err.
func (c *Context) fail(err error) {
	g := c.cell.g
	if errors.Is(err, ErrDeferred) {
		if c.deferred != nil || !c.wants() {
			return
		}
		err = errors.New("zactor: ErrDeferred returned without Context.Defer")
	}
	if !hasCode(err) {
		g.failures.add(c, c.MessageID(), err.Error())
		if suppressed, ok := g.failLog.Allow(c.batchTime()); ok {
			g.log.Error("handler failed", "actor", c.cell.id, "name", c.cell.name, "msg_id", c.MessageID(),
				"trace", c.Trace().String(), "err", err, "suppressed", suppressed)
		}
	}
	r := handlerReply(err)
	g.codes.failed(r.Code)
	c.used = true
	c.reply = r
	switch d := c.deferred; {
	case c.wants():
		c.give()
	case d != nil && d.take(): // the handler deferred the reply first, and failed then: nobody else is going to give it
		d.to.Reply(d.token, &c.reply)
	}
}

// sign puts onto a message of this actor what it carries on: who sent it, the trace, and for a message that goes by
// its id the session and user it is about, because they may pick the receiver.
func (c *Context) sign(m *zmsg.Message, session bool) {
	m.From = c.cell.address()
	m.Trace = c.SendTrace()
	if session {
		m.Session, m.User = c.Session(), c.User()
	}
}

// Tell sends a one-way message; see Ref.Tell.
func (c *Context) Tell(to Ref, msg proto.Message) error {
	if c.tap != nil {
		return c.tellTapped(to, msg)
	}
	return c.tell(to, msg)
}

func (c *Context) tell(to Ref, msg proto.Message) error {
	cell := to.cell
	switch {
	case cell == nil:
		return to.tellFar(msg, c)
	case c.Trace().IsZero():
		it := item{value: msg, from: c.cell}
		err := cell.pushUser(&it)
		if err != nil {
			err = cell.overflow(&it, err, patience{waits: true, turn: c})
		}
		return err
	}
	m, err := newMessage(msg)
	if err != nil {
		return err
	}
	c.sign(m, false)
	queued(m)
	it := item{msg: m, value: msg, id: m.ID, from: c.cell}
	if err = cell.pushUser(&it); err != nil {
		err = cell.overflow(&it, err, patience{waits: true, turn: c})
	}
	if err != nil {
		m.Release()
	}
	return err
}

// Send sends a one-way message to whoever handles its id; see Group.ByID.
func (c *Context) Send(msg proto.Message) error { return c.Tell(c.ByID(), msg) }

var errNothingToForward error = &zmsg.Error{Code: zmsg.CodeBadRequest, Outcome: zmsg.NotExecuted, Text: "there is no message to forward"}

// Forward hands the message on, with its reply slot: the other actor answers in place of this one. On an error the message
// and the duty to answer stay here. Only a handler has a message that it can hand on, once: ErrBadRequest else.
func (c *Context) Forward(to Ref) error {
	if c.it.kind != itemMessage || c.it.msg == nil && (c.it == &c.none || c.it.value == nil) {
		return errNothingToForward
	}
	m := c.Message()
	var err error
	if c.tap != nil {
		err = c.forwardTapped(to, m)
	} else {
		err = c.forward(to, m)
	}
	if err == nil {
		c.it.msg = nil
	}
	return err
}

func (c *Context) forward(to Ref, m *zmsg.Message) error {
	if to.cell != nil {
		return to.cell.deliver(m, patience{waits: true, turn: c})
	}
	return to.deliverFar(m)
}
