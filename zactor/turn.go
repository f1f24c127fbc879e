package zactor

import "zgame/zmsg"

// turnItem is one call of Ref.Turn, in the mailbox; before and after it lies in the group's pool.
type turnItem struct {
	fn      func(c *Context)
	dropped func()
}

// Turn runs fn once in a turn of an actor of this node, in order with the messages that it is sent: for code that is
// trusted like the actor's own, such as what loads and saves it. It is not refused because the mailbox is full, so its callers
// bound how many they have outstanding. A panic in fn is the actor's, a reply has nobody to go to, and a flight recorder does not
// see it: what it does to the state is missing from a record.
//
// When the actor ends, or is replaced by a restart, before fn began, dropped (which may be nil) is called in its place, at the
// latest when the turn would have come, on a goroutine of the actor's; it must not block. So exactly one of the two is called, unless
// there is an error: ErrStopped when the actor has ended, ErrUnknownActor where r is no actor of this node.
func (r Ref) Turn(fn func(c *Context), dropped func()) error {
	c := r.cell
	if c == nil {
		return zmsg.ErrUnknownActor
	}
	t, _ := c.g.turns.Get().(*turnItem)
	if t == nil {
		t = new(turnItem)
	}
	t.fn, t.dropped = fn, dropped
	if err := c.pushControl(&item{kind: itemTurn, value: t, token: uint64(c.epoch.Load())}); err != nil {
		t.free(c.g)
		return err
	}
	return nil
}

func (t *turnItem) free(g *Group) {
	*t = turnItem{}
	g.turns.Put(t)
}

// turn runs the function in the turn, for the instance that it was for.
func (t *turnItem) turn(x *Context, epoch uint64) {
	if epoch != uint64(x.cell.epoch.Load()) {
		t.drop(x.cell)
		return
	}
	fn := t.fn
	t.free(x.cell.g)
	if x.tap != nil {
		defer func(tap tap) { x.tap = tap }(x.tap)
		x.tap = nil
	}
	fn(x)
}

// drop tells that the function is not run.
func (t *turnItem) drop(c *cell) {
	dropped := t.dropped
	t.free(c.g)
	if dropped != nil {
		c.guard("dropped of Ref.Turn", dropped)
	}
}
