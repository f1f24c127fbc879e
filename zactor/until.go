package zactor

import "time"

// WithUntil is for an actor that may act for a while only, as the holder of a lease: until is asked before each turn (the start, a
// message, a timer, a continuation, an instance after a failure), and when the time that it returns has come, by the group's Clock,
// the actor stops instead, with the reason StopRequested, and what waits is answered with ErrStopped, as Spawn is. So nothing begins too
// late, not even where the process stood still meanwhile; a handler that runs is not cut short, and an actor for which nothing
// comes does not end by itself: that is for whoever knows of the lease (Group.Stop, StopDrainedWait). OnStop runs also when
// it is late. until is called often, on the actor's goroutine: it must not block.
func WithUntil(until func() time.Time) SpawnOption { return func(o *spawnOptions) { o.until = until } }

// over reports whether the actor has to stop: told to, or by WithUntil.
func (c *cell) over() bool {
	if o := c.opts; o != nil && o.until != nil && c.reason() == 0 && !c.g.clock.Now().Before(o.until()) {
		c.halt(StopRequested)
	}
	return c.reason() != 0
}

// Gone returns a channel that is closed when the actor has gone, which it is at once for a ref that names no actor of this group,
// or none any more. It is for code outside of actors: they have Context.Watch.
func (g *Group) Gone(ref Ref) <-chan struct{} {
	if c := ref.cell; c != nil && c.g == g {
		return c.gone()
	}
	return closedChan
}
