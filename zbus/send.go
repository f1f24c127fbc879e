package zbus

import (
	"math"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// Send sends m to an actor. It encodes m before it returns and does not keep it: m stays the caller's.
//
// With r it is a request, and r gets exactly one outcome for token, from another goroutine, perhaps before Send
// returns; a message without a deadline gets the default one. Without, it is one-way.
//
// With an error nothing was sent and r is not called. Errors carry a zmsg.Code, NotExecuted: CodeUnavailable (bus
// down, link closed), CodeBusy (too much waits), CodeTooLarge, CodeTimeout (the deadline has passed), CodeBadRequest
// (the value does not encode, or Once is too long), CodeUnknownActor (the address is empty, or its node's id longer than any is).
func (l *Link) Send(to zmsg.Address, m *zmsg.Message, r zmsg.Replier, token uint64) error {
	if r == nil && plain(m) && to.Actor != 0 {
		return l.tell(to, m)
	}
	e := zmsg.Envelope{Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_ACTOR, To: to.Actor}
	return l.sendMessage(to.Node, &e, m, r, token)
}

// SendObject sends m to the stateful actor e.Key at a node that should own it; with it go e.Version, the newest that is known, and
// e.Owner, the node whose request it was at first. It is like Send otherwise.
func (l *Link) SendObject(to zmsg.NodeRef, e *zmsg.Envelope, m *zmsg.Message, r zmsg.Replier, token uint64) error {
	c := zmsg.Envelope{Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_OBJECT, Key: e.Key, Version: e.Version, Owner: e.Owner}
	return l.sendMessage(to, &c, m, r, token)
}

func (l *Link) sendMessage(node zmsg.NodeRef, e *zmsg.Envelope, m *zmsg.Message, r zmsg.Replier, token uint64) error {
	if !nodeID(node.ID) {
		return errNowhere
	}
	body, err := encoded(m)
	if err != nil {
		return err
	}
	e.ID, e.Seq, e.Body = m.ID, m.Seq, body
	e.Session, e.User, e.Client = m.Session, m.User, m.Client
	e.Trace, e.Chain, e.Hops, e.Resent = m.Trace, m.Chain, m.Hops, m.Resent
	if m.Once != "" {
		if len(m.Once) > zmsg.MaxOnce || !utf8.ValidString(m.Once) {
			return errOnce
		}
		e.Once = m.Once
	}
	if l.self.Is(m.From.Node) {
		e.FromActor = m.From.Actor
	}
	var deadline, due time.Duration // since base; due: when to look at it first
	if r != nil || !m.Deadline.IsZero() {
		now := time.Now()
		left := l.cfg.DefaultTimeout
		if !m.Deadline.IsZero() {
			left = m.Deadline.Sub(now)
		}
		if left <= 0 {
			return errExpired
		}
		due = now.Sub(l.base)
		deadline, due = due+left, due+min(left, probeAfter)
		e.TimeoutMs = milliseconds(left)
	}

	number, direct, err := l.enqueue(node, e, r, token, deadline, due)
	if direct {
		l.publishDirect()
	}
	if w, ok := r.(zmsg.Waiter); ok && err == nil {
		w.OnGiveUp(token, l, number) // not with mu held: he may have given up already
	}
	return err
}

// plain reports whether m, one-way, is a zmsg.Tell.
func plain(m *zmsg.Message) bool {
	return m.Seq == 0 && m.Trace.Span == 0 && m.User == "" && m.Session.ID == 0 && m.Session.Gen == 0 && m.Session.Gate.ID == "" && m.Session.Gate.Epoch == 0 &&
		!m.Client && m.Deadline.IsZero() && len(m.Chain) == 0 && m.Hops == 0 && m.Once == "" && !m.Resent
}

// tell is Send for a zmsg.Tell.
func (l *Link) tell(to zmsg.Address, m *zmsg.Message) error {
	body, err := encoded(m)
	if err != nil {
		return err
	}
	t := zmsg.Tell{To: to.Actor, ID: m.ID, Trace: m.Trace.ID, Body: body}
	if l.self.Is(m.From.Node) {
		t.From = m.From.Actor
	}
	return l.Tell(to.Node, t, nil)
}

// Tell is Send for a one-way message of which there is no more to say than t does, to the actor t.To, which is not 0. With v, whose type
// is zmsg.Plain, the body is what that encodes to.
func (l *Link) Tell(to zmsg.NodeRef, t zmsg.Tell, v proto.Message) (err error) {
	if !nodeID(to.ID) {
		return errNowhere
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.admitLocked(len(t.Body)); err != nil {
		return err
	}
	ln := l.laneLocked(to)
	c := l.lastChunkLocked()
	start := len(c.buf)
	if v == nil {
		c.buf = zmsg.AppendBatchTell(c.buf, &t)
	} else if c.buf, err = zmsg.AppendBatchTellOf(c.buf, &t, v); err != nil {
		return badValue(err)
	} else if l.bytes+len(c.buf)-start > l.cfg.OutboxBytes && l.waiting > 0 {
		c.buf = c.buf[:start]
		return errOutbox
	}
	if err = l.enqueuedLocked(c, start, item{lane: ln, slot: -1, kind: wirepb.EnvelopeKind_ENVELOPE_KIND_ACTOR}); err == nil {
		l.wakeLocked()
	}
	return err
}

// encoded returns m's body.
func encoded(m *zmsg.Message) ([]byte, error) {
	body, err := m.EncodedBody()
	if err != nil {
		return nil, badValue(err)
	}
	return body, nil
}

func badValue(err error) error {
	return &zmsg.Error{Code: zmsg.CodeBadRequest, Outcome: zmsg.NotExecuted, Text: "the message does not encode: " + err.Error()}
}

// enqueue puts an envelope into the lane of its node, and the request, if r is set, into the table. It returns the
// request's number, and whether publishDirect is to follow.
func (l *Link) enqueue(
	node zmsg.NodeRef, e *zmsg.Envelope, r zmsg.Replier, token uint64, deadline, due time.Duration,
) (number uint64, direct bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.admitLocked(len(e.Body)); err != nil {
		return 0, false, err
	}
	ln := l.laneLocked(node)
	if r == nil {
		return 0, false, l.enqueueLocked(ln, e)
	}
	slot, ok := l.requests.add(ln, r, token, deadline)
	if !ok {
		l.counts.request("busy", 1)
		return 0, false, errRequests
	}
	e.Request = l.requests.number(slot)
	if err := l.appendLocked(ln, e, slot); err != nil {
		l.requests.end(slot)
		return 0, false, err
	}
	l.dueLocked(due)
	return e.Request, l.pushedLocked(l.requests.n == 1), nil
}

// SendSession sends an operation on sessions to their gate, one-way, in the same lane as Send: e.Op and its fields;
// e.Kind is set here. e stays the caller's. Errors as Send.
func (l *Link) SendSession(to zmsg.NodeRef, e *zmsg.Envelope) error {
	c := *e
	c.Kind = wirepb.EnvelopeKind_ENVELOPE_KIND_SESSION
	return l.sendOneWay(to, &c)
}

// SendControl sends what nodes tell each other, one-way, in the same lane as Send: e.ID says what it is (below 16 is
// the link's own); e.Kind is set here. e stays the caller's. Errors as Send.
func (l *Link) SendControl(to zmsg.NodeRef, e *zmsg.Envelope) error {
	c := *e
	c.Kind = wirepb.EnvelopeKind_ENVELOPE_KIND_CONTROL
	return l.sendOneWay(to, &c)
}

func (l *Link) sendOneWay(to zmsg.NodeRef, e *zmsg.Envelope) error {
	if !nodeID(to.ID) {
		return errNowhere
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.admitLocked(len(e.Body)); err != nil {
		return err
	}
	return l.enqueueLocked(l.laneLocked(to), e)
}

// admitLocked says whether an envelope with a body of n bytes may wait to be sent. Link.mu is held.
func (l *Link) admitLocked(n int) error {
	switch {
	case l.state != linkRunning:
		return errLinkDone
	case !l.up.Load():
		return errDown
	case int64(n) > l.maxBytes.Load(): // before it is copied; the exact look is after encoding
		return errTooLarge
	case l.waiting >= l.cfg.OutboxMessages || l.bytes+n > l.cfg.OutboxBytes && l.waiting > 0:
		return errOutbox
	}
	return nil
}

var replyBuffers = sync.Pool{New: func() any { return new([]byte) }}

// reply sends the reply to a request of the lane's node: token is its number there. While the bus is down the reply
// waits, until the deadline (since Link.base) at most.
func (ln *lane) reply(token uint64, r *zmsg.Reply, deadline time.Duration) {
	l := ln.link
	e := zmsg.Envelope{
		Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_REPLY, Request: token,
		ID: r.ID, Code: r.Code, Outcome: r.Outcome, Text: r.Text, Body: r.Body, Owner: r.Owner, Version: r.Version,
	}
	if e.Body == nil && r.Value != nil {
		buf := replyBuffers.Get().(*[]byte)
		b, err := zmsg.MarshalAppend((*buf)[:0], r.Value)
		if err != nil {
			e.ID, e.Code, e.Outcome, e.Text = 0, zmsg.CodeInternal, zmsg.Executed, "the reply does not encode"
			b = b[:0]
		} else {
			e.Body = b
		}
		defer func() {
			if cap(b) <= maxKept {
				*buf = b
			}
			replyBuffers.Put(buf)
		}()
	}
	direct := false
	l.mu.Lock()
	switch {
	case l.outEnded:
		l.counts.drop("closed", 1)
	case ln.gone.Load():
		l.counts.drop("node_lost", 1)
	case l.waiting >= 2*l.cfg.OutboxMessages || l.bytes+len(e.Body) > 2*l.cfg.OutboxBytes && l.waiting > 0:
		l.counts.drop("full", 1)
	default:
		if int64(len(e.Body)) > l.maxBytes.Load() || l.appendReplyLocked(ln, &e, deadline) != nil {
			e.ID, e.Code, e.Text, e.Body = 0, zmsg.CodeTooLarge, "the reply is above the bus's limit", nil
			_ = l.appendReplyLocked(ln, &e, deadline) // a few bytes: never above the limit
		}
		direct = l.pushedLocked(l.inbound.Load() == 1)
	}
	l.mu.Unlock()
	l.inbound.Add(-1)
	if direct {
		l.publishDirect()
	}
	l.poke()
}

// milliseconds rounds up: a deadline that has not passed does not become none.
func milliseconds(d time.Duration) uint32 {
	return uint32(min((d+time.Millisecond-1)/time.Millisecond, math.MaxUint32))
}
