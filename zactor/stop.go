package zactor

import (
	"context"

	"zgame/zmsg"
)

// Stop asks an actor of this group to stop after its current message: OnStop runs, messages that wait are answered with
// ErrStopped. It does not wait, see StopWait, and may be called from the actor itself. Stopping twice is no fault.
// Errors: ErrUnknownActor for a ref that names no actor of this group, or none any more.
func (g *Group) Stop(ref Ref) error {
	c, err := g.own(ref)
	if c != nil {
		c.stop(StopRequested)
	}
	return err
}

// own returns the actor of a ref of this group; nil without an error in a replay, where the actor stands for one of the recorded node.
func (g *Group) own(ref Ref) (*cell, error) {
	switch c := ref.cell; {
	case c != nil && c.g == g && g.table.get(c.id) == c:
		return c, nil
	case g.replay != nil && ref.far != nil:
		g.replay.note("stop %s", g.replay.nameOf(ref))
		return nil, nil
	default:
		return nil, zmsg.ErrUnknownActor
	}
}

// StopDrained asks an actor to stop when it has handled what waits now. Errors as Stop.
func (g *Group) StopDrained(ref Ref) error {
	c, err := g.own(ref)
	if c == nil {
		return err
	}
	c.mu.Lock()
	c.closeLocked()
	c.mu.Unlock()
	c.unannounce()
	_ = c.pushControl(&item{kind: itemStop}) // refused by an actor that has ended meanwhile: that is what was wanted
	return nil
}

// StopWait is Group.Stop, then waits until the actor has gone or ctx ends. An actor must not wait for its own end.
func (g *Group) StopWait(ctx context.Context, ref Ref) error {
	if err := g.Stop(ref); err != nil || ref.cell == nil {
		return err
	}
	if !g.awaitOr(ref.cell.gone(), ctx.Done()) {
		return context.Cause(ctx)
	}
	return nil
}

// StopDrainedWait is StopDrained, then waits until the actor has gone. When ctx ends first, the actor stops at once, and what waited
// is answered with ErrStopped; the error is then a *CutError that says how much, and whether the actor is stuck in
// its handler after Config.StopTimeout. An actor must not wait for its own end.
func (g *Group) StopDrainedWait(ctx context.Context, ref Ref) error {
	if err := g.StopDrained(ref); err != nil || ref.cell == nil {
		return err
	}
	c := ref.cell
	if g.awaitOr(c.gone(), ctx.Done()) {
		return nil
	}
	c.stop(StopRequested)
	c.sever()
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.cfg.StopTimeout)
	defer cancel()
	cut := Cut{Actor: c.id, Name: c.name}
	if g.awaitOr(c.gone(), late.Done()) {
		c.mu.Lock()
		cut.Messages = c.extra.Load().cut
		c.mu.Unlock()
	} else {
		cut.Messages, cut.Stuck = c.messages(), true
	}
	if cut.Messages == 0 && !cut.Stuck {
		return nil
	}
	return &CutError{Actors: []Cut{cut}}
}
