package zactor

// signal is what an actor's goroutine must see before its next message, whatever waits: one word, so that a look at it costs
// the loop one load.
//
// The low byte is the Reason for which the actor has to stop, 0 for none; the first one stays.
const (
	signalReason = 1<<8 - 1
	signalLane   = 1 << 8  // the lifecycle lane has work
	signalProbe  = 1 << 9  // the watchdog asks whether the loop comes by
	signalUntil  = 1 << 10 // set for good: the actor was spawned WithUntil, and has to be asked before each turn
)

// wanted reports whether the signal asks for a turn, whatever waits.
func (c *cell) wanted() bool { return c.signal.Load()&^signalUntil != 0 }

// reason returns why the actor has to stop, 0 if it has not.
func (c *cell) reason() Reason { return Reason(c.signal.Load() & signalReason) }

// halt tells the actor to stop after its current message; a reason given before stays.
func (c *cell) halt(why Reason) {
	for {
		s := c.signal.Load()
		if s&signalReason != 0 || c.signal.CompareAndSwap(s, s|uint32(why)) {
			return
		}
	}
}

// laneItem is an event in the life of an actor or of one that it knows: never refused, never behind a backlog. run is
// called in the actor's turn; a panic in it is the actor's.
type laneItem interface{ run(x *Context) }

// pushLane puts it into the lifecycle lane; an actor that is gone has no use for it. Its length is bounded by what the actor watches, its
// children and its one idle timer.
func (c *cell) pushLane(it laneItem) {
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		return
	}
	x := c.more()
	x.lane = append(x.lane, it)
	c.signal.Or(signalLane)
	start := !c.running
	c.running = true
	c.mu.Unlock()
	if start {
		c.wake()
	}
}

// nextInLane takes the oldest item of the lane, nil if there is none.
func (c *cell) nextInLane() laneItem {
	x := c.extra.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(x.lane) == 0 {
		c.signal.And(^uint32(signalLane))
		x.lane = nil
		return nil
	}
	it := x.lane[0]
	x.lane[0] = nil
	x.lane = x.lane[1:]
	return it
}

// attend does what the signal asks for, in the turn between two messages. It returns false when the actor has to stop.
func (c *cell) attend(x *Context) bool {
	s := c.signal.Load()
	if s&signalProbe != 0 {
		c.signal.And(^uint32(signalProbe))
	}
	if s&signalLane != 0 {
		for !c.over() {
			it := c.nextInLane()
			if it == nil {
				break
			}
			x.it = x.nothing()
			it.run(x)
			if x.used {
				x.endTurn()
			}
		}
	}
	return !c.over()
}

// wake starts the actor's goroutine, or with a Manual lets it be stepped; the caller has found running off and turned it on.
// The goroutine is owned by the cell and ends when nothing is left to do; the group's shutdown waits for the cell.
func (c *cell) wake() {
	if m := c.g.manual; m != nil {
		m.add(c)
		return
	}
	go c.run()
}
