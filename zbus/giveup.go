package zbus

import (
	"slices"
	"sync"

	"zgame/zmsg"
)

// controlGaveUp is the link's own control envelope: nobody waits for the request Request of the sender any more.
const controlGaveUp = 2

// maxEarly bounds what a lane remembers of requests that were given up before anybody here wanted to be told; the oldest go.
const maxEarly = 256

// giveUps is, of the requests of one node, who is told when they are given up.
type giveUps struct {
	mu    sync.Mutex
	told  map[uint64]toldOf // by request number; guarded by mu
	early []uint64          // given up, and nobody was told yet; guarded by mu
}

type toldOf struct {
	w   zmsg.GiveUp
	arg uint64
}

// OnGiveUp is of zmsg.Waiter: for requests that came from the lane's node. Whether one has ended otherwise is known only
// there.
func (ln *lane) OnGiveUp(number uint64, w zmsg.GiveUp, arg uint64) bool {
	g := &ln.giveUps
	g.mu.Lock()
	if i := slices.Index(g.early, number); i >= 0 {
		g.early = slices.Delete(g.early, i, i+1)
		g.mu.Unlock()
		w.GaveUp(arg)
		return true
	}
	if g.told == nil {
		g.told = make(map[uint64]toldOf)
	}
	g.told[number] = toldOf{w, arg}
	g.mu.Unlock()
	return true
}

// Forget is of zmsg.Waiter.
func (ln *lane) Forget(number uint64, w zmsg.GiveUp) {
	g := &ln.giveUps
	g.mu.Lock()
	if g.told[number].w == w {
		delete(g.told, number)
	}
	g.mu.Unlock()
}

// gaveUp tells that the node waits for its request no longer.
func (ln *lane) gaveUp(number uint64) {
	g := &ln.giveUps
	g.mu.Lock()
	t, there := g.told[number]
	if there {
		delete(g.told, number)
	} else {
		if len(g.early) == maxEarly {
			g.early = slices.Delete(g.early, 0, maxEarly/2)
		}
		g.early = append(g.early, number)
	}
	g.mu.Unlock()
	if there {
		t.w.GaveUp(t.arg)
	}
}

// GaveUp ends, as a zmsg.GiveUp, a request of this node for which nobody waits any more, and tells the node that has it.
func (l *Link) GaveUp(number uint64) {
	l.mu.Lock()
	slot := l.requests.find(number)
	if slot < 0 {
		l.mu.Unlock()
		return
	}
	node := l.requests.slots[slot].lane.node
	l.requests.end(slot)
	l.mu.Unlock()
	l.counts.request("given_up", 1)
	// In the lane behind the request. Lost or refused: it runs to its end over there, and its reply is late here.
	_ = l.SendControl(node, &zmsg.Envelope{ID: controlGaveUp, Request: number})
	l.poke()
}
