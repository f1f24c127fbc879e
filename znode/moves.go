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

const (
	// askRepeat is after how long a gate is asked again, and then after twice as long each time: the bus may have lost the question, or the answer.
	askRepeat = 400 * time.Millisecond
	// askNobody is how many questions in a row, each askRepeat behind the other, reach nobody at the bus before the gate is taken for gone, though its lease
	// runs: a process that was killed. One whose connection to the bus is just away may be back by then; if not, it is as one that does not answer.
	askNobody = 3
)

// moves is where sessions went that this node may know by the names they had: docs/decisions/0029. It satisfies zgate.Peers. One word that a session
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
	to    map[uint64]zmsg.SessionRef // the newest name of a session, by its id, which stays; guarded by lanes
	order []moved                    // in which they came, round and round; guarded by lanes
	next  int                        // guarded by lanes

	told repeater // that a session goes, to each node until it has noted it

	mu     sync.Mutex
	last   uint64                   // number of the newest question; guarded by mu
	asks   map[uint64]*question     // that wait for their answers; guarded by mu
	fences map[uint64]*sessionFence // that wait for nodes; guarded by mu
}

// maxMoves is how many moves of sessions are remembered; the oldest go. By those the gate before is asked, while it is there.
const maxMoves = 1 << 16

// moved is one move: to that generation.
type moved struct {
	id  uint64
	gen uint32
}

// sessionFence waits until the nodes have noted that a session goes.
type sessionFence struct {
	nodes map[zmsg.NodeRef]struct{}
	done  chan struct{}
}

// question is for a session of a gate.
type question struct {
	gate   zmsg.NodeRef
	answer chan []byte
	nobody chan struct{} // it has reached nobody
}

func newMoves(s *sessions) *moves {
	m := &moves{
		s: s, asks: map[uint64]*question{}, fences: map[uint64]*sessionFence{},
		told: newRepeater(s.link, s.alive),
	}
	m.told.prune = m.prune
	return m
}

// hold keeps what ref's session is called from changing until release, and returns what that is.
func (m *moves) hold(ref zmsg.SessionRef) (now zmsg.SessionRef, release func()) {
	l := &m.lanes[ref.ID%uint64(len(m.lanes))]
	l.RLock()
	return m.whereLocked(ref), l.RUnlock
}

func (m *moves) whereLocked(ref zmsg.SessionRef) zmsg.SessionRef {
	if to, ok := m.to[ref.ID]; ok && to.Gen > ref.Gen {
		return to
	}
	return ref
}

// where returns what ref's session is called now, as far as this node knows.
func (m *moves) where(ref zmsg.SessionRef) zmsg.SessionRef {
	now, release := m.hold(ref)
	release()
	return now
}

// note has everything for the session go to to, by whatever name it has had before.
func (m *moves) note(to zmsg.SessionRef) {
	m.lockAll()
	defer m.unlockAll()
	if m.to == nil {
		m.to = make(map[uint64]zmsg.SessionRef)
	}
	if m.to[to.ID].Gen >= to.Gen {
		return // late
	}
	x := moved{to.ID, to.Gen}
	if len(m.order) < maxMoves {
		m.order = append(m.order, x)
	} else {
		if old := m.order[m.next]; m.to[old.id].Gen == old.gen { // else it has moved again since
			delete(m.to, old.id)
		}
		m.order[m.next] = x
		m.next = (m.next + 1) % maxMoves
	}
	m.to[to.ID] = to
}

func (m *moves) lockAll() {
	for i := range m.lanes {
		m.lanes[i].Lock()
	}
}

func (m *moves) unlockAll() {
	for i := range m.lanes {
		m.lanes[i].Unlock()
	}
}

// moved is what this node does when a session goes: its watches go along, and who watches is told, ahead of what comes from the session under its new name.
func (m *moves) moved(from, to zmsg.SessionRef, watchers, owners []uint64) {
	m.note(to)
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
	q := &question{ref.Gate, make(chan []byte, 1), make(chan struct{}, 1)}
	m.mu.Lock()
	m.last++
	number := m.last
	m.asks[number] = q
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		delete(m.asks, number)
		m.mu.Unlock()
	}()
	wait, nobody := askRepeat, 0
	again := time.NewTimer(wait)
	defer again.Stop()
	for {
		if m.s.alive(ref.Gate) == nodeGone {
			return nil, errGateLost
		}
		_ = m.s.link.SendControl(ref.Gate, &zmsg.Envelope{ID: controlAsk, Request: number, Session: ref, Body: ask}) // the bus is away: again
		select {
		case b := <-q.answer:
			return b, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-again.C:
		}
		select {
		case <-q.nobody:
			if nobody++; nobody == askNobody {
				return nil, errGateLost
			}
			wait = askRepeat
		default:
			nobody = 0
			wait *= 2 // it may have enough to do
		}
		again.Reset(wait)
	}
}

// Taken implements zgate.Peers.
func (m *moves) Taken(ref zmsg.SessionRef) {
	// Who has just published to those who were here before the session was is to have said so to the other nodes: behind this the gate before sends nothing on.
	m.lockAll()
	m.unlockAll()
	_ = m.s.link.SendControl(ref.Gate, &zmsg.Envelope{ID: controlTaken, Session: ref}) // lost: it keeps the answer for as long as it may be asked for
}

// Moves implements zgate.Peers. Nodes that have not noted in time hear of it all the same, since only they can tell their actors.
func (m *moves) Moves(ctx context.Context, from, to zmsg.SessionRef) (late int) {
	nodes := m.nodes()
	if len(nodes) == 0 {
		return 0
	}
	if m.told.owes() > maxOwed {
		return len(nodes)
	}
	body, err := proto.Marshal(&wirepb.MovesTo{Gate: to.Gate.ID, Epoch: to.Gate.Epoch, Generation: to.Gen})
	if err != nil {
		return len(nodes)
	}
	f := &sessionFence{nodes: make(map[zmsg.NodeRef]struct{}, len(nodes)), done: make(chan struct{})}
	m.mu.Lock()
	m.last++
	number := m.last
	for _, n := range nodes {
		f.nodes[n] = struct{}{}
	}
	m.fences[number] = f
	m.mu.Unlock()
	for _, n := range nodes {
		if m.told.owe(debtor{n, number, true}, zmsg.Envelope{ID: controlMoves, Request: number, Session: from, Body: body}) != nil {
			m.mu.Lock()
			f.without(n)
			m.mu.Unlock()
		}
	}
	select {
	case <-f.done:
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.fences, number)
	return len(f.nodes)
}

// maxOwed is how many moves the nodes are told of at once; beyond, what nodes send by the old name is late.
const maxOwed = 1 << 16

// without has the fence not wait for n. moves.mu is held.
func (f *sessionFence) without(n zmsg.NodeRef) {
	if _, waits := f.nodes[n]; !waits {
		return
	}
	if delete(f.nodes, n); len(f.nodes) == 0 {
		close(f.done)
	}
}

// noted takes the word of a node that it has noted a move.
func (m *moves) noted(n zmsg.NodeRef, number uint64) {
	m.told.paid(debtor{n, number, true}, 0)
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.fences[number]; f != nil {
		f.without(n)
	}
}

// nobody is told that the bus knows nobody who hears what is sent to a node: its process has ended, or is not at the bus just now. Nothing of it is
// on its way.
func (m *moves) nobody(n zmsg.NodeRef) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, q := range m.asks {
		if q.gate == n {
			select {
			case q.nobody <- struct{}{}:
			default:
			}
		}
	}
	for _, f := range m.fences {
		f.without(n)
	}
}

// prune ends the waiting for nodes that are gone. It is called for each new list of nodes.
func (m *moves) prune() {
	m.told.pardon()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.fences {
		for n := range f.nodes {
			if m.s.alive(n) == nodeGone {
				f.without(n)
			}
		}
	}
}

// close ends the repeating.
func (m *moves) close() { m.told.stop() }

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
		gate.HandOver(from, number, ref, slices.Clone(e.Body), func(b []byte) error {
			return m.s.link.SendControl(from, &zmsg.Envelope{ID: controlAnswer, Request: number, Session: ref, Body: b})
		})
	case controlAnswer:
		body := slices.Clone(e.Body)
		m.mu.Lock()
		q, ok := m.asks[e.Request]
		delete(m.asks, e.Request)
		m.mu.Unlock()
		if ok {
			q.answer <- body
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
		m.noted(from, e.Request)
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
