package znode

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zdiscovery"
	"zgame/zgate"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// Ids of the control envelopes by which sessions go from gate to gate; docs/wire.md describes them.
const (
	controlAsk    = 26 // give me the session: body is a HandoverAsk
	controlAnswer = 27 // body is a HandoverAnswer
	controlTaken  = 28 // the answer has come
	controlMoves  = 29 // the session goes to another gate: body is a MovesTo
	controlNotes  = 30 // I have noted it, and what I sent for it before stands before this in our lane
)

// askRepeat is after how long a gate is asked again, and then after twice as long each time: the bus may have lost the question, or the answer.
const askRepeat = 400 * time.Millisecond

// moves is where sessions went that this node may know by the names they had: docs/decisions/0026. It satisfies zgate.Peers. One word that a session
// goes, and all sends to sessions of other gates, exclude each other: what was sent by the old name stands before the answer to that word.
type moves struct {
	s *sessions
	// Set while the node is wired.
	gates func() []zmsg.NodeRef // other nodes, those with a gate that takes sessions
	nodes func() []zmsg.NodeRef // all other nodes

	lanes [16]struct { // whoever sends holds one of them for reading, whoever changes to holds all
		sync.RWMutex
		_ [40]byte
	}
	to    map[zmsg.SessionRef]zmsg.SessionRef // guarded by lanes
	order []zmsg.SessionRef                   // in which they came, round and round; guarded by lanes
	next  int                                 // guarded by lanes

	mu     sync.Mutex
	last   uint64                   // number of the newest question; guarded by mu
	asks   map[uint64]chan []byte   // that wait for their answers; guarded by mu
	fences map[uint64]*sessionFence // that wait for nodes; guarded by mu
	timer  *time.Timer              // runs while a fence is late; guarded by mu
	closed bool                     // guarded by mu
}

// maxMoves is how many sessions' old names are remembered; the oldest go. By those the gate before is asked, while it is there.
const maxMoves = 1 << 16

// maxMoved is how often one session is looked for under the next name.
const maxMoved = 64

// sessionFence waits until the nodes have noted that a session goes.
type sessionFence struct {
	from  zmsg.SessionRef
	body  []byte // a MovesTo
	nodes map[zmsg.NodeRef]struct{}
	done  chan struct{}
	late  bool // nobody waits any more; the nodes are told all the same, since only they can tell their actors
}

func newMoves(s *sessions) *moves {
	return &moves{s: s, asks: map[uint64]chan []byte{}, fences: map[uint64]*sessionFence{}}
}

// hold keeps what ref's session is called from changing until release, and returns what that is.
func (m *moves) hold(ref zmsg.SessionRef) (now zmsg.SessionRef, release func()) {
	l := &m.lanes[ref.ID%uint64(len(m.lanes))]
	l.RLock()
	return m.whereLocked(ref), l.RUnlock
}

func (m *moves) whereLocked(ref zmsg.SessionRef) zmsg.SessionRef {
	for range maxMoved {
		to, ok := m.to[ref]
		if !ok {
			break
		}
		ref = to
	}
	return ref
}

// where returns what ref's session is called now, as far as this node knows.
func (m *moves) where(ref zmsg.SessionRef) zmsg.SessionRef {
	now, release := m.hold(ref)
	release()
	return now
}

// note has everything for from go to to, from now on.
func (m *moves) note(from, to zmsg.SessionRef) {
	for i := range m.lanes {
		m.lanes[i].Lock()
	}
	if m.to == nil {
		m.to = make(map[zmsg.SessionRef]zmsg.SessionRef)
	}
	if _, twice := m.to[from]; !twice {
		if len(m.order) < maxMoves {
			m.order = append(m.order, from)
		} else {
			delete(m.to, m.order[m.next])
			m.order[m.next] = from
			m.next = (m.next + 1) % maxMoves
		}
	}
	m.to[from] = to
	for i := range m.lanes {
		m.lanes[i].Unlock()
	}
}

// moved is what this node does when a session goes: its watches go along, and who watches is told, ahead of what comes from the session under its new name.
func (m *moves) moved(from, to zmsg.SessionRef, watchers, owners []uint64) {
	m.note(from, to)
	s := m.s
	s.mu.Lock()
	for _, w := range s.watches[from.Gate][from] {
		if w.bound {
			owners = append(owners, w.actor)
		} else {
			watchers = append(watchers, w.actor)
		}
	}
	delete(s.watches[from.Gate], from)
	if len(s.watches[from.Gate]) == 0 {
		delete(s.watches, from.Gate)
	}
	s.mu.Unlock()
	for _, actor := range watchers {
		if !slices.Contains(owners, actor) {
			s.tellMoved(actor, from, to)
		}
		_ = s.Watch(to, actor) // a gate that is lost tells its end
	}
	for _, actor := range owners { // it binds itself again
		s.tellMoved(actor, from, to)
	}
}

func (s *sessions) tellMoved(actor uint64, from, to zmsg.SessionRef) {
	m := zmsg.NewSessionMoved(from, to)
	if err := s.tell(zmsg.Address{Node: s.self.Ref(), Actor: actor}, m); err != nil {
		m.Release() // a watcher that is gone
	}
}

// There implements zgate.Peers.
func (m *moves) There(gate zmsg.NodeRef) bool {
	return m.s.alive(gate) != nodeGone && !m.s.self.Is(gate)
}

// Others implements zgate.Peers.
func (m *moves) Others() bool { return len(m.gates()) > 0 }

// Ask implements zgate.Peers.
func (m *moves) Ask(ctx context.Context, ref zmsg.SessionRef, ask []byte) ([]byte, error) {
	done := make(chan []byte, 1)
	m.mu.Lock()
	m.last++
	number := m.last
	m.asks[number] = done
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		delete(m.asks, number)
		m.mu.Unlock()
	}()
	wait := askRepeat
	again := time.NewTimer(wait)
	defer again.Stop()
	for {
		if m.s.alive(ref.Gate) == nodeGone {
			return nil, errGateLost
		}
		_ = m.s.link.SendControl(ref.Gate, &zmsg.Envelope{ID: controlAsk, Request: number, Session: ref, Body: ask}) // the bus is away: again
		select {
		case b := <-done:
			return b, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-again.C:
			wait *= 2 // it may have enough to do
			again.Reset(wait)
		}
	}
}

// Taken implements zgate.Peers.
func (m *moves) Taken(ref zmsg.SessionRef) {
	_ = m.s.link.SendControl(ref.Gate, &zmsg.Envelope{ID: controlTaken, Session: ref}) // lost: it keeps the answer for as long as it may be asked for
}

// Moves implements zgate.Peers.
func (m *moves) Moves(ctx context.Context, from, to zmsg.SessionRef) {
	nodes := m.nodes()
	if len(nodes) == 0 {
		return
	}
	body, err := proto.Marshal(&wirepb.MovesTo{Gate: to.Gate.ID, Epoch: to.Gate.Epoch, Generation: to.Gen})
	if err != nil {
		return
	}
	f := &sessionFence{from: from, body: body, nodes: make(map[zmsg.NodeRef]struct{}, len(nodes)), done: make(chan struct{})}
	for _, n := range nodes {
		f.nodes[n] = struct{}{}
	}
	m.mu.Lock()
	m.last++
	number := m.last
	m.fences[number] = f
	m.mu.Unlock()
	defer m.goOn(number, f)
	wait := askRepeat
	again := time.NewTimer(wait)
	defer again.Stop()
	for {
		m.tell(number, f)
		select {
		case <-f.done:
			return
		case <-ctx.Done():
			return
		case <-again.C:
			wait *= 2 // it may have enough to do
			again.Reset(wait)
		}
	}
}

// tell has the nodes told that have not noted yet that the session goes; those that are gone need not.
func (m *moves) tell(number uint64, f *sessionFence) {
	var nodes []zmsg.NodeRef
	m.mu.Lock()
	for n := range f.nodes {
		if m.s.alive(n) == nodeGone {
			m.notedLocked(f, n)
			continue
		}
		nodes = append(nodes, n)
	}
	m.mu.Unlock()
	for _, n := range nodes { // the bus is away: again
		_ = m.s.link.SendControl(n, &zmsg.Envelope{ID: controlMoves, Request: number, Session: f.from, Body: f.body})
	}
}

// lateRepeat is how often the nodes are told again that have not noted in time.
const lateRepeat = 2 * time.Second

// maxLate is how many sessions' moves the nodes are told of late at once.
const maxLate = 1 << 14

// goOn forgets a fence that is over, and has the others repeated until all nodes have noted, or are gone: actors that watch the session hear of its move, and
// then of its end, from their own nodes.
func (m *moves) goOn(number uint64, f *sessionFence) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(f.nodes) == 0 || m.closed || len(m.fences) > maxLate {
		delete(m.fences, number)
		return
	}
	f.late = true
	if m.timer == nil {
		m.timer = time.AfterFunc(lateRepeat, m.repeat)
	}
}

// repeat tells the nodes again that are late. It runs on the timer's goroutine.
func (m *moves) repeat() {
	late := map[uint64]*sessionFence{}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return
	}
	for number, f := range m.fences {
		if f.late {
			late[number] = f
		}
	}
	m.mu.Unlock()
	for number, f := range late {
		m.tell(number, f)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.timer = nil
	for number, f := range m.fences {
		switch {
		case !f.late:
		case len(f.nodes) == 0:
			delete(m.fences, number)
		case m.timer == nil && !m.closed:
			m.timer = time.AfterFunc(lateRepeat, m.repeat)
		}
	}
}

// close ends the repeating: what is not noted then is made up for by the loss of this node.
func (m *moves) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if m.timer != nil {
		m.timer.Stop()
	}
}

func (m *moves) notedLocked(f *sessionFence, n zmsg.NodeRef) {
	if _, ok := f.nodes[n]; !ok {
		return
	}
	if delete(f.nodes, n); len(f.nodes) == 0 {
		close(f.done)
	}
}

// MovedHere implements zgate.Peers.
func (m *moves) MovedHere(from, to zmsg.SessionRef, watchers, owners []uint64) {
	m.moved(from, to, watchers, owners)
}

// Forward implements zgate.Peers.
func (m *moves) Forward(e *zmsg.Envelope) error {
	gate := e.Session.Gate
	if m.s.alive(gate) == nodeGone {
		return errGateLost
	}
	return m.s.link.SendSession(gate, e)
}

// control takes the control envelopes of all sides. It runs on the link's receiving goroutine.
func (m *moves) control(e *zmsg.Envelope, from zmsg.NodeRef) bool {
	from.ID = strings.Clone(from.ID)
	ref := e.Session
	ref.Gate.ID = strings.Clone(ref.Gate.ID)
	gate := m.s.gate
	switch e.ID {
	case controlAsk:
		if gate == nil {
			return true // another start of this node, which had one
		}
		number := e.Request
		gate.HandOver(from, ref, slices.Clone(e.Body), func(b []byte) error {
			return m.s.link.SendControl(from, &zmsg.Envelope{ID: controlAnswer, Request: number, Session: ref, Body: b})
		})
	case controlAnswer:
		body := slices.Clone(e.Body)
		m.mu.Lock()
		done, ok := m.asks[e.Request]
		delete(m.asks, e.Request)
		m.mu.Unlock()
		if ok {
			done <- body
		} else if gate != nil && from == ref.Gate {
			gate.HandedLate(ref, body)
		}
	case controlTaken:
		if gate != nil {
			gate.Taken(from, ref)
		}
	case controlMoves:
		var w wirepb.MovesTo
		if proto.Unmarshal(e.Body, &w) != nil || from != ref.Gate {
			return false
		}
		m.moved(ref, zmsg.SessionRef{Gate: zmsg.NodeRef{ID: w.GetGate(), Epoch: w.GetEpoch()}, ID: ref.ID, Gen: w.GetGeneration()}, nil, nil)
		_ = m.s.link.SendControl(from, &zmsg.Envelope{ID: controlNotes, Request: e.Request}) // lost: it asks again
	case controlNotes:
		m.mu.Lock()
		if f := m.fences[e.Request]; f != nil {
			m.notedLocked(f, from)
			if f.late && len(f.nodes) == 0 {
				delete(m.fences, e.Request)
			}
		}
		m.mu.Unlock()
	}
	return true
}

// peersOf lists the other nodes, with a gate that takes sessions, or all.
func (n *Node) peersOf(gates bool) (refs []zmsg.NodeRef) {
	list := n.Nodes()
	for i := range list {
		o := &list[i]
		switch {
		case n.self.Is(o.Ref) || o.State == zdiscovery.Starting:
		case !gates || o.State == zdiscovery.Ready && o.Gate != "":
			refs = append(refs, o.Ref)
		}
	}
	return refs
}

var _ zgate.Peers = (*moves)(nil)
