package zactor

import (
	"math/rand/v2"

	"zgame/zmsg"
)

// Rand returns random numbers for this turn: the same ones each time that the turn is replayed (see Replay). A handler that wants
// to be replayable takes the time from Now and randomness from here, and hands what it has drawn to Async, whose work has neither.
//
// Like the Context, the generator is valid only during the turn: the next turn starts it anew. It must not guard secrets.
func (c *Context) Rand() *rand.Rand {
	r := c.random
	if r == nil {
		r = new(turnRand)
		r.rnd = *rand.New(&r.pcg)
		c.random = r
	}
	if !c.drawn {
		c.used, c.drawn = true, true
		r.pcg.Seed(c.cell.seed(), c.draw())
	}
	return &r.rnd
}

// turnRand is a generator that stays with its Context: a turn seeds it with the instance's seed and its own number, so nothing is
// kept from one turn to the next, and making one costs one allocation.
type turnRand struct {
	pcg rand.PCG
	rnd rand.Rand // on pcg
}

// seed returns the seed of the present instance.
func (c *cell) seed() uint64 {
	x := c.more()
	if x.seed == 0 {
		x.seed = c.newSeed()
	}
	return x.seed
}

func (c *cell) newSeed() uint64 {
	seed := rand.Uint64()
	if s := c.g.cfg.Seed; s != 0 {
		seed = zmsg.Mix(zmsg.Mix(s^c.id) ^ uint64(c.epoch.Load()))
	}
	return max(1, seed) // 0 is none
}

// draw returns a number of the turn: in a record each has one, else those that draw are counted.
func (c *Context) draw() uint64 {
	if c.log != nil {
		return c.log.Turn
	}
	x := c.cell.more()
	x.draws++
	return x.draws
}
