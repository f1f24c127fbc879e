package zactor

import (
	"sync/atomic"

	"zgame/zmsg"
)

// Down tells that a watched actor has ended.
type Down struct {
	Ref    Ref
	Reason Reason // why it ended; LostNode, or UnknownActor where it was gone before the watch began
}

// Watch is one actor's watch of another. It ends with the first of: the watched actor, Stop, the instance that watches.
type Watch struct{ w *watch }

// watch is held by both sides.
type watch struct {
	// Set at construction.
	by    *cell
	epoch uint32
	of    Ref
	fn    func(c *Context, d Down)
	op    opID         // the tap's name for it
	id    uint64       // of a watch that crosses nodes: in the table of the node that watches; else 0
	peer  zmsg.NodeRef // the node that watches, where it is another: then by and fn are not set

	ended atomic.Bool // Down has been sent, or is not wanted any more
}

// Watch runs fn, once, in a turn of this actor, when the actor of ref has ended: here or on another node, whose loss ends
// the watch too. A restart is no end. It comes by the lifecycle lane: before messages that wait, also before
// those that the ended actor had sent. The watch ends with this actor's instance; OnStart of the next one watches again.
//
// Actors of a node that stops in order are down with StopShutdown, or with LostNode where the news that it left comes first;
// those of a node that dies with LostNode, when its lease has ended. While the bus is away Downs wait. In a shutdown of its own
// group a watcher may be stopped before it hears.
func (c *Context) Watch(ref Ref, fn func(c *Context, d Down)) Watch {
	w := &watch{by: c.cell, epoch: c.cell.epoch.Load(), of: ref, fn: fn}
	x := c.cell.more()
	if x.watches == nil {
		x.watches = make(map[*watch]struct{})
	}
	x.watches[w] = struct{}{}
	switch {
	case c.tap != nil && c.tap.watch(c, w):
	case ref.cell != nil:
		ref.cell.watchedBy(w)
	case ref.far != nil && !ref.far.found():
		c.cell.g.peers.watch(w)
	default:
		w.down(UnknownActor)
	}
	return Watch{w}
}

// Stop ends the watch: fn does not run any more. It is called in a turn of the actor.
func (w Watch) Stop() {
	if w.w == nil {
		return
	}
	w.w.end()
	if x := w.w.by.extra.Load(); x != nil {
		delete(x.watches, w.w)
	}
}

// watchedBy registers w at the actor that it watches.
func (c *cell) watchedBy(w *watch) {
	x := c.more()
	c.mu.Lock()
	removed := c.removed
	if !removed && !w.ended.Load() { // a watch of another node may have been taken back meanwhile
		if x.watchers == nil {
			x.watchers = make(map[*watch]struct{})
		}
		x.watchers[w] = struct{}{}
	}
	c.mu.Unlock()
	if removed {
		w.down(UnknownActor)
	}
}

// down tells the watcher, once.
func (w *watch) down(why Reason) {
	if !w.ended.CompareAndSwap(false, true) {
		return
	}
	if w.by != nil {
		w.by.pushLane(downItem{w, why})
		return
	}
	g := w.of.cell.g
	g.peers.forget(w)
	_ = g.cfg.Watches.Down(w.peer, w.id, why) // fails for a node that is gone: it has forgotten the watch
}

// end takes the watch back.
func (w *watch) end() {
	w.ended.Store(true)
	switch c := w.of.cell; {
	case c != nil:
		x := c.more() // also of one that is not registered yet
		c.mu.Lock()
		if delete(x.watchers, w); len(x.watchers) == 0 {
			x.watchers = nil // a map does not shrink
		}
		c.mu.Unlock()
	case w.id != 0:
		w.by.g.peers.unwatch(w)
	}
}

// downItem is a Down in the watcher's lane.
type downItem struct {
	w   *watch
	why Reason
}

func (d downItem) run(x *Context) {
	c := x.cell
	if d.w.epoch != c.epoch.Load() {
		return
	}
	e := c.more()
	if _, wanted := e.watches[d.w]; !wanted {
		return // stopped meanwhile
	}
	delete(e.watches, d.w)
	x.worked++
	if x.tap != nil {
		x.tap.down(x, d)
	}
	d.w.fn(x, Down{Ref: d.w.of, Reason: d.why})
}

// Watches carries watches between nodes; znode makes it of the Link. Its methods do not block. What they took arrives,
// perhaps more than once, or the node is gone: then whoever implements it calls Group.PeerLost. An error says that it is
// gone already.
type Watches interface {
	// Watch asks target's node to tell this one when the actor ends: its Group.PeerWatch, and later our Group.PeerDown.
	Watch(target zmsg.Address, id uint64) error
	// Unwatch takes Watch back.
	Unwatch(target zmsg.Address, id uint64) error
	// Down tells a node that an actor it watches has ended: its Group.PeerDown.
	Down(to zmsg.NodeRef, id uint64, why Reason) error
}
