package znode

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
	"zgame/zrouter"
)

// setState changes what the node says about itself; announce tells it.
func (n *Node) setState(s zdiscovery.State) { n.state.Store(&s) }

// record is what the others read about this node.
func (n *Node) record(state zdiscovery.State) zdiscovery.Node {
	s := &n.cfg.Settings.Node
	r := zdiscovery.Node{
		Ref: zmsg.NodeRef{ID: s.ID}, State: state, Gate: n.GateURL(), Admin: n.adminURL(), Version: cmp.Or(s.Version, Version()),
		Zone: s.Zone, Weight: uint32(s.Weight), Load: n.load.Load(),
	}
	r.Lock = n.predecessor.token()
	r.Labels, _ = labels(s.Labels) // New has checked them
	if n.local != nil {
		for _, e := range n.local.Adverts() {
			r.Actors = append(r.Actors, zdiscovery.Actor{ID: e.Actor, Type: e.Type, Adverts: e.Adverts})
		}
	}
	if n.topics != nil {
		r.Queues = n.topics.record()
	}
	r.Kinds = n.objects.kinds()
	return r
}

// announce writes the node's record as it is now. One write is under way at a time.
func (n *Node) announce(ctx context.Context) error {
	select {
	case n.telling <- struct{}{}:
		defer func() { <-n.telling }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return n.currentMember().Update(ctx, n.record(*n.state.Load()))
}

// announceReady tells the others that this node serves, and starts to tell changes of its routes, and to keep its place: that may have been
// lost since it joined, where something stood still for longer than the lease. It waits, not for long, until the node's own list says that it
// serves: objects are placed on nodes that the list has as ready.
func (n *Node) announceReady(ctx context.Context) error {
	n.setState(zdiscovery.Ready)
	n.settle()
	for {
		err := n.announce(ctx)
		if err == nil {
			break
		}
		if !errors.Is(err, zdiscovery.ErrLost) {
			return err
		}
		select { // stay finds another place, and announces the node there
		case err := <-n.out:
			return err
		case <-ctx.Done():
			return err
		case <-time.After(rejoinPause):
		}
	}
	n.singletons.begin()
	late := time.NewTimer(stopStep)
	defer late.Stop()
	select {
	case <-n.listed:
	case <-late.C:
	case <-ctx.Done():
	}
	return nil
}

// touch notes that the record must be announced anew. It never waits.
func (n *Node) touch() {
	select {
	case n.changed <- struct{}{}:
	default: // one is waiting already
	}
}

// follow loads the list of nodes, then starts the goroutines: one applies each new list, one announces changes of
// this node's record, one looks how busy the node is.
func (n *Node) follow(ctx context.Context) error {
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n.cancel = cancel
	stay, leave := context.WithCancel(run)
	n.leave = leave
	n.settle = func() { n.stays.Go(func() { n.stay(stay) }) } // ends when Stop calls leave
	lists, err := n.backends.Discovery.Watch(run)
	if err != nil {
		return err
	}
	select {
	case first, ok := <-lists:
		if !ok {
			return zdiscovery.ErrClosed
		}
		n.apply(first)
	case <-ctx.Done():
		return ctx.Err()
	}
	// All are owned by the node and end when Stop cancels run.
	n.loops.Go(func() {
		for s := range lists {
			n.apply(s)
		}
	})
	n.loops.Go(func() { n.announceLoop(run) })
	if n.cfg.Settings.Console.Address != "" {
		n.charts = newCharts(n.gatherSums)
		n.loops.Go(func() { n.charts.loop(run) })
	}
	if every := n.cfg.Settings.Node.LoadInterval; every > 0 {
		n.loops.Go(func() { n.loadLoop(run, every) })
	}
	return nil
}

// apply makes s the list of nodes: routes first, then the end of what those who left had promised.
func (n *Node) apply(s *zdiscovery.Snapshot) {
	now := &members{s, make(map[zmsg.NodeRef]zdiscovery.State, len(s.Nodes))}
	for i := range s.Nodes {
		now.states[s.Nodes[i].Ref] = s.Nodes[i].State
	}
	n.remote.Apply(s, n.Self())
	n.topics.apply(s, n.Self())
	old := n.snapshot.Swap(now).list() // whoever sees it finds its routes
	if now.states[n.Self()] == zdiscovery.Ready {
		n.listedOnce.Do(func() { close(n.listed) })
	}
	joined, left, _ := zdiscovery.Diff(old, s)
	for _, l := range left {
		if n.self.Is(l.Ref) {
			continue // stay looks after that
		}
		if l.State == zdiscovery.Draining {
			n.log.Info("node left", "left", l.Ref.String())
		} else {
			n.log.Warn("node left without a word that it drains", "left", l.Ref.String())
		}
		n.link.Lost(l.Ref)
		n.sessions.lost(l.Ref)
		n.sessions.ownerLost(l.Ref)
		n.objects.set.NodeGone(l.Ref)
	}
	for _, j := range joined {
		if !n.self.Is(j.Ref) {
			n.log.Info("node joined", "joined", j.Ref.String(), "state", string(j.State))
		}
	}
	n.link.Prune(func(node zmsg.NodeRef) bool { return !n.self.Is(node) && n.nodeState(node) == nodeGone })
	n.watches.prune()
	n.sessions.moves.prune()
	n.farewell.listed(left)
}

// announceLoop writes the record after each change of the local table while the node serves; many changes at once are
// one write. A failed write is tried again after a pause.
func (n *Node) announceLoop(ctx context.Context) {
	const pause = time.Second
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.changed:
		}
		if s := *n.state.Load(); s != zdiscovery.Ready {
			continue // announceReady and the drain write the whole record themselves
		}
		if err := n.announce(ctx); err != nil && ctx.Err() == nil {
			if errors.Is(err, zdiscovery.ErrTooLarge) { // until something changes: that it is tried again does not help
				n.log.Error("the others do not learn of this node's changes: its record is too large", "err", err)
			} else {
				n.log.Warn("routes are not announced yet", "err", err)
				n.touch()
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	}
}

// members is the list of nodes with who is on it.
type members struct {
	*zdiscovery.Snapshot
	states map[zmsg.NodeRef]zdiscovery.State
}

// list returns the list, nil before the first.
func (m *members) list() *zdiscovery.Snapshot {
	if m == nil {
		return nil
	}
	return m.Snapshot
}

// nodeState says what discovery knows about a node. An epoch that the list cannot have seen yet is not gone.
func (n *Node) nodeState(ref zmsg.NodeRef) nodeState {
	s := n.snapshot.Load()
	if s == nil {
		return nodeUnseen
	}
	switch _, listed := s.states[ref]; {
	case listed:
		return nodeAlive
	case ref.IsZero() || zdiscovery.Gone(ref, s.Snapshot): // nobody is there either
		return nodeGone
	default:
		return nodeUnseen
	}
}

// drains reports whether the list has a node as draining, or not at all.
func (n *Node) drains(ref zmsg.NodeRef) bool {
	s := n.snapshot.Load()
	if s == nil {
		return false
	}
	if state, ok := s.states[ref]; ok {
		return state == zdiscovery.Draining
	}
	return n.nodeState(ref) == nodeGone
}

// onActor takes a message for an actor from another node. What cannot be delivered is answered NotExecuted, so that
// the sender may try elsewhere. It runs on the link's receiving goroutine.
func (n *Node) onActor(to uint64, m *zmsg.Message) {
	if !n.sessions.arrived(to, m) {
		m.ReplyError(zmsg.ErrNoRoute) // nobody asks that way, but who does is not left waiting, nor is the drain
		m.Release()
		return
	}
	if err := n.group.Deliver(to, m); err != nil {
		m.ReplyError(err)
		m.Release()
	}
}

// onTells is onActor for one-way messages that came one behind the other.
func (n *Node) onTells(to uint64, a *zmsg.Arrival, list []zmsg.Told) {
	for len(list) > 0 {
		k := slices.IndexFunc(list, func(t zmsg.Told) bool { return zmsg.SessionEvent(t.ID) })
		if k == 0 {
			n.onActor(to, zmsg.OpenMessage(a, list[0]))
			list = list[1:]
			continue
		}
		if k < 0 {
			k = len(list)
		}
		n.group.ReceiveTells(to, a, list[:k])
		list = list[k:]
	}
}

// onTopic takes what another node published on a topic. It runs on the link's receiving goroutine.
func (n *Node) onTopic(topic string, m *zmsg.Message) { n.group.TopicMessage(topic, m) }

// onQueue takes a message for one of this node's members of a topic's queue. It runs on the link's receiving goroutine.
func (n *Node) onQueue(topic, queue string, m *zmsg.Message) { n.topics.onQueue(topic, queue, m) }

// onSession takes what another node's actor says to sessions of this gate, and what is published to their groups.
func (n *Node) onSession(e *zmsg.Envelope, from zmsg.NodeRef) {
	if n.gate != nil {
		n.gate.OnSession(e, from)
	}
	if e.Op == wirepb.SessionOp_SESSION_OP_BIND { // the clients' messages are on their way to that owner next
		n.objects.set.Control(&zmsg.Envelope{ID: zrouter.UpdateID, Key: e.Key, Version: e.Version, Owner: from}, from)
	}
}

// onNobody is told that the bus knows no process of that name and epoch.
func (n *Node) onNobody(node zmsg.NodeRef) { n.sessions.moves.nobody(node) }

// onObject takes a message for a stateful actor from another node. It runs on the link's receiving goroutine.
func (n *Node) onObject(e *zmsg.Envelope, m *zmsg.Message) { n.objects.set.Receive(e, m) }

// onControl takes what nodes say to each other: how a session operation ended, where objects live, and watches of actors.
func (n *Node) onControl(e *zmsg.Envelope, from zmsg.NodeRef) bool {
	switch e.ID {
	case controlJoined:
		n.sessions.joined(from, e)
		return true
	case controlAsk, controlAnswer, controlTaken, controlMoves, controlNotes:
		return n.sessions.moves.control(e, from)
	case controlDrains, controlKnown:
		n.farewell.control(e, from)
		return true
	}
	if zrouter.Controls(e.ID) {
		return n.objects.set.Control(e, from)
	}
	return n.watches.control(e, from)
}
