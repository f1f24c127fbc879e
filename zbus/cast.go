package zbus

import (
	"context"
	"strings"
	"time"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// cast names what goes to whoever joined it: a group of sessions, or a topic of actors.
type cast struct {
	name  string
	topic bool
}

// castIn is a group or topic that this node joined.
type castIn struct {
	cast
	ready   chan struct{} // closed when the subscription is there, or failed with err
	err     error
	numbers map[zmsg.NodeRef]uint64 // last batch of each sender; owned by the receive goroutine
}

func (l *Link) castSubject(c cast) string {
	if c.topic {
		return l.topics + Token(c.name)
	}
	return l.groups + Token(c.name)
}

func castName(s string) bool { return s != "" && len(s) <= 256 }

// JoinGroup subscribes the group: when it returns nil, what is published anywhere afterwards arrives. Joining a group
// that is joined already does nothing. Errors: ErrDown, ErrClosed, ctx's, zmsg.ErrBadRequest for a bad name.
func (l *Link) JoinGroup(ctx context.Context, group string) error {
	if !castName(group) {
		return errGroup
	}
	return l.join(ctx, cast{name: group})
}

// LeaveGroup ends the subscription. What has arrived already is dropped. Leaving a group that is not joined does
// nothing.
func (l *Link) LeaveGroup(group string) error { return l.leave(cast{name: group}) }

// JoinTopic is JoinGroup for a topic.
func (l *Link) JoinTopic(ctx context.Context, topic string) error {
	if !castName(topic) {
		return errTopic
	}
	return l.join(ctx, cast{topic, true})
}

// LeaveTopic is LeaveGroup for a topic.
func (l *Link) LeaveTopic(topic string) error { return l.leave(cast{topic, true}) }

func (l *Link) join(ctx context.Context, c cast) error {
	l.mu.Lock()
	receiver, running := l.receiver, l.state == linkRunning
	l.mu.Unlock()
	if !running {
		return ErrClosed
	}
	subject := l.castSubject(c)
	l.in.mu.Lock()
	g := l.in.casts[subject]
	if g != nil {
		l.in.mu.Unlock()
		select {
		case <-g.ready:
			return g.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.name = strings.Clone(c.name)
	g = &castIn{cast: c, ready: make(chan struct{}), numbers: make(map[zmsg.NodeRef]uint64)}
	l.in.casts[subject] = g
	l.countLocked(c, 1)
	l.in.mu.Unlock()

	g.err = receiver.Subscribe(ctx, subject)
	if g.err != nil {
		l.in.mu.Lock()
		if l.in.casts[subject] == g {
			delete(l.in.casts, subject)
			l.countLocked(c, -1)
		}
		l.in.mu.Unlock()
	}
	close(g.ready)
	return g.err
}

func (l *Link) leave(c cast) error {
	subject := l.castSubject(c)
	l.in.mu.Lock()
	g := l.in.casts[subject]
	if g != nil {
		delete(l.in.casts, subject)
		l.countLocked(c, -1)
	}
	l.in.mu.Unlock()
	if g == nil {
		return nil
	}
	l.mu.Lock()
	receiver := l.receiver
	l.mu.Unlock()
	return receiver.Unsubscribe(subject)
}

// countLocked notes that one more (by is 1) or less (-1) is joined. inbound.mu is held.
func (l *Link) countLocked(c cast, by float64) {
	if c.topic {
		l.cfg.Metrics.Topics.Add(by)
	} else {
		l.cfg.Metrics.Groups.Add(by)
	}
}

// PublishGroup sends a push to all nodes that joined e.Group, but for this one, in order with everything else that
// this node sends. e.Kind and e.Op are set here. e stays the caller's. Errors as Send, and CodeBadRequest for a name
// that is empty or above 256 bytes.
func (l *Link) PublishGroup(e *zmsg.Envelope) error {
	if !castName(e.Group) {
		return errGroup
	}
	c := *e
	c.Kind, c.Op = wirepb.EnvelopeKind_ENVELOPE_KIND_SESSION, wirepb.SessionOp_SESSION_OP_PUSH
	return l.publish(cast{name: c.Group}, &c)
}

// PublishTopic sends m, one-way, to all nodes that joined the topic, but for this one, in order with everything else that
// this node sends. Of m's head the sender and the trace travel. It encodes m before it returns and does not keep it.
// Errors as PublishGroup.
func (l *Link) PublishTopic(topic string, m *zmsg.Message) error {
	if !castName(topic) {
		return errTopic
	}
	body, err := encoded(m)
	if err != nil {
		return err
	}
	e := zmsg.Envelope{Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_ACTOR, Group: topic, ID: m.ID, Body: body, Trace: m.Trace}
	if l.self.Is(m.From.Node) {
		e.FromActor = m.From.Actor
	}
	return l.publish(cast{topic, true}, &e)
}

func (l *Link) publish(c cast, e *zmsg.Envelope) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.admitLocked(len(e.Body)); err != nil {
		return err
	}
	return l.enqueueLocked(l.castLaneLocked(c), e)
}

// SendQueue sends m to the node, for one of its members of a topic's queue. It is like Send otherwise.
func (l *Link) SendQueue(to zmsg.NodeRef, topic, queue string, m *zmsg.Message, r zmsg.Replier, token uint64) error {
	if !castName(topic) || !castName(queue) {
		return errTopic
	}
	e := zmsg.Envelope{Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_ACTOR, Group: topic, Text: queue}
	return l.sendMessage(to, &e, m, r, token)
}

// castLaneLocked returns the lane to a group or topic. Link.mu is held.
func (l *Link) castLaneLocked(c cast) *lane {
	if ln := l.out[c]; ln != nil {
		return ln
	}
	if len(l.out) >= maxGroupLanes {
		clear(l.out)
		l.series++
	}
	c.name = strings.Clone(c.name)
	ln := &lane{link: l, topic: c.topic, subject: l.castSubject(c), head: -1, tail: -1, number: l.series << seriesShift}
	l.out[c] = ln
	return ln
}

// receiveCast hands an envelope that came to a group or topic to its handler. It reports false for one that has no business
// there.
func (l *Link) receiveCast(p *peer, e *zmsg.Envelope, g *castIn) bool {
	switch {
	case e.Group != g.name:
		return false
	case g.topic && e.Kind == wirepb.EnvelopeKind_ENVELOPE_KIND_ACTOR && e.ID != 0 && e.Request == 0 && !e.Client:
		l.counts.topic.Inc()
		if l.cfg.Handlers.Topic != nil {
			l.cfg.Handlers.Topic(g.name, l.message(p, e, time.Time{}))
		}
		return true
	case !g.topic && e.Kind == wirepb.EnvelopeKind_ENVELOPE_KIND_SESSION && e.Op == wirepb.SessionOp_SESSION_OP_PUSH:
		l.counts.group.Inc()
		if l.cfg.Handlers.Session != nil {
			l.cfg.Handlers.Session(e, p.ref)
		}
		return true
	default:
		return false
	}
}

// receiveQueued hands over a message for one of this node's members of a queue.
func (l *Link) receiveQueued(e *zmsg.Envelope, m *zmsg.Message) {
	if l.cfg.Handlers.Queue == nil || e.Text == "" {
		m.ReplyError(zmsg.ErrUnknownActor)
		m.Release()
		return
	}
	l.cfg.Handlers.Queue(e.Group, e.Text, m)
}
