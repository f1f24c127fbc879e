package zbus

import (
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// Bounds of what the receive side remembers.
const (
	maxPeers  = 1 << 12 // senders; above, all are forgotten
	maxLeft   = 1 << 8  // senders that were lost; above, all are forgotten
	maxIntern = 1 << 12 // strings
)

// controlMissed is the link's own control envelope: the receiver missed the batches Seq to To of the node it is sent to.
const controlMissed = 1

// inbound is the receive side of a Link.
type inbound struct {
	mu     sync.Mutex // guards these, not what they point to
	peers  map[zmsg.NodeRef]*peer
	left   map[zmsg.NodeRef]*peer // that discovery lost: they may be there all the same, and go on
	unsure bool                   // some were forgotten altogether
	casts  map[string]*castIn     // by subject: groups and topics that were joined

	// Owned by the receive goroutine.
	last    *peer // the sender of the last batch
	env     zmsg.Envelope
	reply   zmsg.Reply
	strings map[string]string // user ids: messages must not keep whole batches alive by them

	// One-way messages for one actor, one behind the other, that were not handed over yet.
	told    [maxTold]zmsg.Told
	toldLen int
	arrival *zmsg.Arrival // what they came in
}

// maxTold is how many messages are handed over together at most: as long the first of them waits.
const maxTold = 64

// peer is what is known of another node.
type peer struct {
	ref   zmsg.NodeRef // with memory of its own
	gone  atomic.Bool  // forgotten: the next batch makes a new peer
	known bool         // all that came from it is in number

	// Owned by the receive goroutine.
	number uint64 // of its last batch to the inbox
	lane   *lane  // back to it
}

func (in *inbound) init() {
	in.peers, in.left = make(map[zmsg.NodeRef]*peer), make(map[zmsg.NodeRef]*peer)
	in.casts = make(map[string]*castIn)
	in.strings = make(map[string]string)
}

// forgetAll has the next batch of each sender begin anew: the inbox has a new name.
func (in *inbound) forgetAll() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, p := range in.peers {
		p.gone.Store(true)
	}
	clear(in.peers)
	clear(in.left)
}

func (in *inbound) forget(node zmsg.NodeRef) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if p := in.peers[node]; p != nil {
		p.gone.Store(true)
		delete(in.peers, node)
		if len(in.left) >= maxLeft {
			clear(in.left)
			in.unsure = true
		}
		in.left[p.ref] = p
	}
}

// peer returns the sender ref, whose strings may alias a batch.
func (in *inbound) peer(ref zmsg.NodeRef) *peer {
	in.mu.Lock()
	defer in.mu.Unlock()
	if p := in.peers[ref]; p != nil {
		return p
	}
	if len(in.peers) >= maxPeers {
		for _, p := range in.peers {
			p.gone.Store(true)
		}
		clear(in.peers)
		in.unsure = true
	}
	if p := in.left[ref]; p != nil {
		delete(in.left, ref)
		p.gone.Store(false)
		in.peers[p.ref] = p
		return p
	}
	ref.ID = strings.Clone(ref.ID)
	p := &peer{ref: ref, known: !in.unsure}
	in.peers[ref] = p
	return p
}

// senders returns the nodes that this one has heard.
func (in *inbound) senders() []zmsg.NodeRef {
	in.mu.Lock()
	defer in.mu.Unlock()
	list := make([]zmsg.NodeRef, 0, len(in.peers))
	for ref := range in.peers {
		list = append(list, ref)
	}
	return list
}

// intern returns s with memory of its own.
func (in *inbound) intern(s string) string {
	if s == "" {
		return ""
	}
	if own, ok := in.strings[s]; ok {
		return own
	}
	if len(in.strings) >= maxIntern {
		clear(in.strings)
	}
	s = strings.Clone(s)
	in.strings[s] = s
	return s
}

// receive handles one bus message. It runs on the receiver's goroutine.
func (l *Link) receive(m Msg) {
	me := l.me.Load()
	switch {
	case m.Subject == me.inbox:
		l.receiveBatch(m, nil)
	case strings.HasPrefix(m.Subject, l.groups), strings.HasPrefix(m.Subject, l.topics):
		l.in.mu.Lock()
		g := l.in.casts[m.Subject]
		l.in.mu.Unlock()
		if g != nil { // else it was left meanwhile
			l.receiveBatch(m, g)
		}
	case len(m.Data) == 0 && strings.HasPrefix(m.Subject, me.notices) && l.leftNotice(m.Subject[len(me.notices):]):
	case m.NoResponders && strings.HasPrefix(m.Subject, me.notices):
		l.nobody(m.Subject[len(me.notices):])
	case m.Subject == me.before:
		l.counts.drop("rejoined", 1) // to whom this node was: its sender learns that he is gone
	default:
		l.foreign("not_a_notice", m)
	}
}

// receiveBatch handles a batch for the inbox, or for a group or topic.
func (l *Link) receiveBatch(m Msg, g *castIn) {
	head, rest, err := zmsg.DecodeBatchHead(m.Data)
	switch {
	case len(m.Data) == 0:
		l.foreign("empty", m)
		return
	case errors.Is(err, zmsg.ErrForeign):
		l.foreign("magic", m)
		return
	case err != nil || !nodeID(head.From.ID) || head.Number == 0:
		l.foreign("head", m)
		return
	}
	l.counts.received(len(m.Data))
	p := l.in.last
	if p == nil || p.ref != head.From || p.gone.Load() {
		p = l.in.peer(head.From)
		l.in.last = p
	}
	if g == nil {
		if !l.follows(p, &p.number, head.Number, true) {
			return
		}
	} else {
		if l.self.Is(head.From) {
			return
		}
		number := g.numbers[p.ref]
		follows := l.follows(p, &number, head.Number, false)
		if len(g.numbers) >= maxPeers {
			clear(g.numbers)
		}
		g.numbers[p.ref] = number
		if !follows {
			return
		}
	}
	var now time.Time
	l.in.arrival = nil
	for e := &l.in.env; len(rest) > 0; {
		if g == nil && l.told(p, m.Data, &rest) {
			continue
		}
		l.handOver()
		if rest, err = zmsg.NextEnvelope(rest, e); err != nil {
			l.foreign("envelope", m)
			return
		}
		if e.TimeoutMs > 0 && now.IsZero() {
			now = time.Now()
		}
		if !l.receiveEnvelope(p, e, g, now) {
			l.foreign("kind", m)
		}
	}
	l.handOver()
}

// told takes the first envelope off rest, which is the end of data, if it is a plain one-way message to an actor.
func (l *Link) told(p *peer, data []byte, rest *[]byte) bool {
	in := &l.in
	if in.toldLen == maxTold {
		l.handOver()
	}
	t := &in.told[in.toldLen]
	next, ok := zmsg.NextTold(data, len(data)-len(*rest), t)
	if !ok {
		return false
	}
	*rest = data[next:]
	if in.arrival == nil {
		in.arrival = &zmsg.Arrival{From: p.ref, Data: data}
	}
	if in.toldLen > 0 && in.told[0].To != t.To {
		other := *t
		l.handOver()
		in.told[0] = other
	}
	in.toldLen++
	return true
}

// handOver gives their actor the messages that wait for that.
func (l *Link) handOver() {
	in, h := &l.in, &l.cfg.Handlers
	list := in.told[:in.toldLen]
	if len(list) == 0 {
		return
	}
	in.toldLen = 0
	l.counts.in[wirepb.EnvelopeKind_ENVELOPE_KIND_ACTOR].Add(float64(len(list)))
	switch {
	case h.Tells != nil:
		h.Tells(list[0].To, in.arrival, list)
	case h.Actor != nil:
		for _, t := range list {
			h.Actor(t.To, zmsg.OpenMessage(in.arrival, t))
		}
	}
}

// follows judges the number of a batch: the next, or later (some were lost on the way), is delivered; one that comes
// twice or late is not, so that order holds. A group that was joined meanwhile, a sender that was forgotten, and a new
// series begin with any number: what was before is not known. The inbox hears a sender from its first batch on.
func (l *Link) follows(p *peer, last *uint64, number uint64, inbox bool) bool {
	before := *last
	begins := before == 0 || number>>seriesShift > before>>seriesShift
	if begins && inbox && (p.known || before != 0) {
		begins, before = false, number&^(1<<seriesShift-1)
	}
	switch {
	case begins, number == before+1:
		*last = number
		return true
	case number > before:
		*last = number
		l.counts.gap("lost", number-before-1)
		l.warn("gap", "batches of a node were lost", "peer", p.ref.String(), "count", number-before-1)
		if inbox {
			// Those batches will not be delivered any more, so their requests certainly do not run: tell the sender.
			missed := zmsg.Envelope{ID: controlMissed, Seq: before + 1, To: number - 1}
			_ = l.SendControl(p.ref, &missed) // if it cannot be told, its requests end at their deadline
		}
		return true
	case number == before:
		l.counts.gap("double", 1)
	default:
		l.counts.gap("swapped", 1)
	}
	l.warn("gap", "batch of a node came twice or late, dropped", "peer", p.ref.String(), "number", number, "last", before)
	return false
}

// receiveEnvelope hands an envelope to its handler. It reports false for one that has no business here.
func (l *Link) receiveEnvelope(p *peer, e *zmsg.Envelope, g *castIn, now time.Time) bool {
	if g != nil {
		return l.receiveCast(p, e, g)
	}
	if e.Kind < 0 || int(e.Kind) >= len(kindNames) {
		return false
	}
	switch e.Kind {
	case wirepb.EnvelopeKind_ENVELOPE_KIND_UNSPECIFIED:
		return false
	case wirepb.EnvelopeKind_ENVELOPE_KIND_ACTOR:
		if m := l.message(p, e, now); l.refused(m) {
		} else if e.Group != "" {
			l.receiveQueued(e, m)
		} else if l.cfg.Handlers.Actor == nil {
			m.ReplyError(zmsg.ErrUnknownActor)
			m.Release()
		} else {
			l.cfg.Handlers.Actor(e.To, m)
		}
	case wirepb.EnvelopeKind_ENVELOPE_KIND_OBJECT:
		if m := l.message(p, e, now); l.refused(m) {
		} else if l.cfg.Handlers.Object == nil {
			m.ReplyError(zmsg.ErrNoRoute)
			m.Release()
		} else {
			l.cfg.Handlers.Object(e, m)
		}
	case wirepb.EnvelopeKind_ENVELOPE_KIND_REPLY:
		l.replied(p, e)
	case wirepb.EnvelopeKind_ENVELOPE_KIND_SESSION:
		if l.cfg.Handlers.Session != nil {
			l.cfg.Handlers.Session(e, p.ref)
		}
	case wirepb.EnvelopeKind_ENVELOPE_KIND_CONTROL:
		if !l.control(p, e) {
			return false
		}
	}
	l.counts.in[e.Kind].Inc()
	return true
}

// control handles what nodes tell each other. It reports false for what is not of this wire.
func (l *Link) control(p *peer, e *zmsg.Envelope) bool {
	switch e.ID {
	case controlMissed:
		l.missed(p, e.Seq, e.To)
	case controlGaveUp:
		l.laneBack(p).gaveUp(e.Request)
	case controlProbe:
		_ = l.SendControl(p.ref, &zmsg.Envelope{ID: controlHere}) // refused: who asks asks again
	case controlHere: // its number in the lane said all
	default:
		return l.cfg.Handlers.Control == nil || l.cfg.Handlers.Control(e, p.ref)
	}
	return true
}

// refused answers a request that comes while the node drains.
func (l *Link) refused(m *zmsg.Message) bool {
	if !l.draining.Load() || !m.Wants() {
		return false
	}
	m.ReplyError(zmsg.ErrDraining)
	m.Release()
	return true
}

// message makes the message of an envelope. Its body aliases the batch; its strings do not, so that whoever keeps a
// session's reference or a user's name does not keep the batch.
func (l *Link) message(p *peer, e *zmsg.Envelope, now time.Time) *zmsg.Message {
	m := zmsg.NewMessage(e.ID)
	m.Seq, m.User, m.Client = e.Seq, l.in.intern(e.User), e.Client
	m.Session = e.Session
	switch e.Session.Gate {
	case p.ref:
		m.Session.Gate = p.ref
	default:
		m.Session.Gate.ID = l.in.intern(e.Session.Gate.ID)
	}
	m.Trace, m.Hops, m.Once, m.Resent = e.Trace, e.Hops, strings.Clone(e.Once), e.Resent
	if len(e.Chain) > 0 {
		m.Chain = slices.Clone(e.Chain)
	}
	if e.FromActor != 0 {
		m.From = zmsg.Address{Node: p.ref, Actor: e.FromActor}
	}
	if e.TimeoutMs > 0 {
		m.Deadline = now.Add(time.Duration(e.TimeoutMs) * time.Millisecond)
	}
	m.BorrowBody(e.Body)
	if e.Request != 0 {
		l.inbound.Add(1)
		m.SetReplier(l.laneBack(p).asker(m.Deadline), e.Request)
	}
	return m
}

// laneBack is the lane to a sender.
func (l *Link) laneBack(p *peer) *lane {
	if p.lane == nil || p.lane.gone.Load() {
		l.mu.Lock()
		defer l.mu.Unlock()
		p.lane = l.laneLocked(p.ref)
	}
	return p.lane
}

// replied ends the request that e answers, if it waits, and if it was sent to the node that answers.
func (l *Link) replied(p *peer, e *zmsg.Envelope) {
	l.mu.Lock()
	slot := l.requests.find(e.Request)
	if slot < 0 || l.requests.slots[slot].lane.node != p.ref {
		l.mu.Unlock()
		l.cfg.Metrics.LateReplies.Inc()
		return
	}
	q := l.requests.end(slot)
	l.mu.Unlock()
	l.counts.replies.Inc()
	r := &l.in.reply
	*r = zmsg.Reply{ID: e.ID, Code: e.Code, Outcome: e.Outcome, Text: e.Text, Body: e.Body, Version: e.Version}
	switch e.Owner { // so that whoever keeps it does not keep the batch
	case zmsg.NodeRef{}:
	case p.ref:
		r.Owner = p.ref
	default:
		r.Owner = zmsg.NodeRef{ID: l.in.intern(e.Owner.ID), Epoch: e.Owner.Epoch}
	}
	q.replier.Reply(q.token, r)
	l.poke()
}

// nobody ends the requests of a batch that reached nobody.
func (l *Link) nobody(notice string) {
	id, first, last, oneWay, ok := parseNotice(notice)
	if !ok {
		return
	}
	l.mu.Lock()
	var list []ended
	ln := l.lanesByID[id]
	if ln != nil && last > 0 {
		list = l.requests.endRange(nil, ln, first, last)
	}
	l.mu.Unlock()
	l.endUnsent(list, "no_responders", "nobody has the node's inbox")
	l.counts.drop("no_responders", int(oneWay))
	if ln != nil {
		l.warn("nobody", "envelopes reached nobody", "peer", ln.node.String(), "count", uint64(len(list))+oneWay)
		if h := l.cfg.Handlers.Nobody; h != nil {
			h(ln.node)
		}
	}
}

// missed ends the requests in batches that the node says it never got, and will not take any more.
func (l *Link) missed(p *peer, first, last uint64) {
	l.mu.Lock()
	var list []ended
	if ln := l.lanes[p.ref]; ln != nil { // a request that is not sent yet has no batch
		list = l.requests.endBatches(nil, ln, first, last)
		l.resendLocked(ln.node, first, last)
	}
	l.mu.Unlock()
	l.endUnsent(list, "missed", "it was lost on the way, or the node was too slow to receive it")
}

// endUnsent ends requests that certainly did not run.
func (l *Link) endUnsent(list []ended, outcome, text string) {
	for i := range list {
		list[i].sent = false
		l.finish(&list[i], zmsg.CodeUnavailable, text)
	}
	l.counts.request(outcome, len(list))
	l.poke()
}

// foreign counts and drops what is not of this wire.
func (l *Link) foreign(reason string, m Msg) {
	l.cfg.Metrics.Foreign.With(reason).Inc()
	l.warn("foreign_"+reason, "foreign bytes on the bus, dropped",
		"reason", reason, "subject", m.Subject, "bytes", len(m.Data), "prefix", hex.EncodeToString(m.Data[:min(len(m.Data), 16)]))
}
