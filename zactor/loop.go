package zactor

import (
	"fmt"
	"time"
)

// Tick is one step of a Loop.
type Tick struct {
	// N is the step's number, from 1: step N is due N/hz after the call of Loop. Steps that were left out keep their
	// numbers, so N/hz is the time in the simulated world.
	N uint64
	// Step is 1/hz, the time that a step stands for.
	Step time.Duration
	// Skipped is how many steps were left out just before this one.
	Skipped uint64
	// Late is how long after its due time the step was begun.
	Late time.Duration
}

// LoopOption says more about a Loop.
type LoopOption func(*loop)

// CatchUp is how many steps a Loop runs in one turn when it is late; older ones that are due as well are left out.
// Defaults to 5. It panics when n is not positive.
func CatchUp(n int) LoopOption {
	if n < 1 {
		panic(fmt.Sprintf("zactor: CatchUp(%d): want 1 or more steps", n))
	}
	return func(l *loop) { l.catchUp = uint64(n) }
}

// maxHz is how fast a Loop may be: timers of the operating system are no finer.
const maxHz = 1000

// Loop runs step hz times a second in turns of the actor, for a simulation with a fixed step: step k is due at k/hz from now,
// without drift. An actor that is late, because of a slow step, other messages or a machine at its limit, makes up for it:
// all that is due runs in one turn, up to CatchUp steps, and what is older is left out and told in Tick.Skipped. Other
// messages are handled between turns, also when the loop does not keep up. It panics when hz is not 1 to 1000.
func (c *Context) Loop(hz int, step func(c *Context, t Tick), opts ...LoopOption) Timer {
	if hz < 1 || hz > maxHz {
		panic(fmt.Sprintf("zactor: Loop(%d): want 1 to %d steps a second", hz, maxHz))
	}
	l := &loop{hz: uint64(hz), catchUp: 5, step: step, start: c.cell.g.futures.now()}
	for _, o := range opts {
		o(l)
	}
	t := c.newTimer("", false)
	t.loop = l
	return t.arm(l.due(1))
}

// loop is the state of a Loop, owned by the actor's turn.
type loop struct {
	hz, catchUp uint64
	step        func(c *Context, t Tick)
	start       int64  // in nanoseconds of the group's clock
	done        uint64 // the last step that was run or left out
}

// due returns when step n is due, from the start. It is exact: rounding does not add up.
func (l *loop) due(n uint64) time.Duration {
	return time.Duration(n/l.hz)*time.Second + time.Duration(n%l.hz)*time.Second/time.Duration(l.hz)
}

// plan returns what to do at a time after the start: how many steps to leave out, and then how many to run.
func (l *loop) plan(elapsed time.Duration) (skip, run uint64) {
	if elapsed < 0 {
		return 0, 0
	}
	last := uint64(elapsed/time.Second)*l.hz + uint64(elapsed%time.Second)*l.hz/uint64(time.Second)
	if l.due(last+1) <= elapsed { // due rounds down, by less than a nanosecond
		last++
	}
	if last <= l.done {
		return 0, 0
	}
	run = min(last-l.done, l.catchUp)
	return last - l.done - run, run
}

func (l *loop) turn(c *Context, t *timer, gen uint64) {
	g := c.cell.g
	elapsed := time.Duration(t.now() - l.start)
	skip, run := l.plan(elapsed)
	t.skip(skip)
	t.again(l.due(l.done+skip+run+1) - elapsed)
	for i := range run {
		if i > 0 {
			if (Timer{t, gen}).owner() == nil || c.cell.reason() != 0 {
				return // stopped by the step before
			}
			elapsed = time.Duration(g.futures.now() - l.start)
		}
		l.done += skip + 1
		tick := Tick{N: l.done, Step: time.Second / time.Duration(l.hz), Skipped: skip, Late: elapsed - l.due(l.done)}
		skip = 0
		l.step(c, tick)
		if l.done != tick.N {
			return // the step waited, in a reentrant actor, and later ones have been run meanwhile
		}
	}
}
