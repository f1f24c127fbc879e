package zactor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Cut is what a stop cut short at one actor.
type Cut struct {
	Actor    uint64
	Name     string
	Messages int  // waiting messages that were answered with ErrStopped; of a stuck actor, that wait still (to within 15)
	Stuck    bool // its handler did not return: its goroutine is still there
}

// CutError is what Group.Shutdown and Group.StopDrainedWait return when they could not end in order.
type CutError struct {
	Actors []Cut // in order of their ids
	Async  bool  // work of Async did not return: its goroutines are still there
}

// Error says how much was cut, and of the first few actors each, how many messages.
func (e *CutError) Error() string {
	const first = 5
	messages, stuck := 0, 0
	var each []string
	for i, c := range e.Actors {
		messages += c.Messages
		if c.Stuck {
			stuck++
		}
		switch {
		case i < first:
			each = append(each, c.String())
		case i == first:
			each = append(each, "...")
		}
	}
	s := fmt.Sprintf("zactor: the stop cut %d messages of %d actors, %d of them stuck: %s", messages, len(e.Actors), stuck, strings.Join(each, ", "))
	if e.Async {
		s += "; Async work did not return"
	}
	return s
}

// String names the actor, by its id if it has no name, and says how many messages were cut.
func (c Cut) String() string {
	s := strconv.Quote(c.Name)
	if c.Name == "" {
		s = fmt.Sprintf("actor %d", c.Actor)
	}
	s += fmt.Sprintf(" %d", c.Messages)
	if c.Stuck {
		s += " (stuck)"
	}
	return s
}

// Shutdown ends the group. From now on nothing comes in from outside (ErrDraining) and timers do not fire, while actors go on
// with what waits, and with what they send each other, until all is done or ctx ends. Then they stop, the last spawned
// first: OnStop runs, messages that still wait are answered with ErrStopped. When ctx has ended, what handlers wait
// for ends too, and Shutdown returns after at most Config.StopTimeout.
//
// It returns nil when nothing was lost, else a *CutError. A second call returns ErrClosed.
func (g *Group) Shutdown(ctx context.Context) error {
	g.mu.Lock()
	if g.draining.Load() {
		g.mu.Unlock()
		return ErrClosed
	}
	g.draining.Store(true)
	cells := g.table.all()
	g.mu.Unlock()
	for _, c := range cells {
		c.unannounce()
	}
	for again := true; again; {
		cells, again = g.settle(ctx, cells)
	}
	g.closed.Store(true)
	stuck := g.stopAll(ctx)
	g.jobs.end()
	g.watchdog.end()
	if g.records != nil {
		g.records.end()
	}
	g.futures.end()
	async := !g.wait(ctx)

	g.mu.Lock()
	defer g.mu.Unlock()
	cut := g.cut
	for _, c := range stuck {
		cut = append(cut, Cut{Actor: c.id, Name: c.name, Messages: c.messages(), Stuck: true})
	}
	if len(cut) == 0 && !async {
		return nil
	}
	slices.SortFunc(cut, func(a, b Cut) int { return int(int64(a.Actor) - int64(b.Actor)) })
	return &CutError{Actors: cut, Async: async}
}

// barrier is one round of asking all actors whether they have settled.
type barrier struct {
	mu   sync.Mutex
	left int           // guarded by mu
	busy bool          // guarded by mu: somebody had work since the last round
	end  chan struct{} // closed when left becomes 0
}

func (b *barrier) done(busy bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy = b.busy || busy
	if b.left--; b.left == 0 {
		close(b.end)
	}
}

// settle waits until each actor has worked off what waited, and what it waits for has come back. It reports whether
// there was something: then it may have led to more, and the next round has to show, among those that are left.
func (g *Group) settle(ctx context.Context, cells []*cell) (left []*cell, again bool) {
	b := &barrier{left: 1, end: make(chan struct{})}
	for _, c := range cells {
		b.mu.Lock()
		b.left++
		b.mu.Unlock()
		c.mu.Lock()
		idle := !c.running && len(c.in) == 0 && c.pending == 0
		busy := false
		if idle { // else worked is the turn's
			busy, c.worked = c.worked != 0, 0
		}
		c.mu.Unlock()
		switch {
		case idle:
			b.done(busy)
		case c.pushControl(&item{kind: itemBarrier, value: b}) != nil:
			b.done(true) // it has ended meanwhile: this once
			continue
		}
		left = append(left, c)
	}
	b.done(false)
	return left, g.awaitOr(b.end, ctx.Done()) && b.busy && ctx.Err() == nil
}

// barrier answers a round in the actor's turn: at once, or when its continuations have come back.
func (c *cell) barrier(x *Context, b *barrier) {
	busy := c.worked+x.worked != 0
	c.worked, x.worked = 0, 0
	if c.pending > 0 {
		e := c.more()
		if e.parked != nil {
			e.parked.done(true)
		}
		e.parked = b
		return
	}
	b.done(busy)
}

// stopAll stops all actors and returns those that are stuck. While ctx lasts each is waited for before the next: the
// last spawned goes first, and finds those that it was built on.
func (g *Group) stopAll(ctx context.Context) (stuck []*cell) {
	g.mu.RLock()
	cells := g.table.all()
	g.mu.RUnlock()
	for len(cells) > 0 && ctx.Err() == nil {
		c := cells[len(cells)-1]
		c.stop(StopShutdown)
		if !g.awaitOr(c.gone(), ctx.Done()) {
			break
		}
		cells = cells[:len(cells)-1]
	}
	if len(cells) == 0 {
		return nil
	}
	for _, c := range slices.Backward(cells) {
		c.stop(StopShutdown)
		c.sever()
	}
	late, cancel := context.WithTimeout(context.Background(), g.cfg.StopTimeout) // real time, whatever the Clock: the handlers it waits for are real
	defer cancel()
	for _, c := range cells {
		if !g.awaitOr(c.gone(), late.Done()) {
			stuck = append(stuck, c)
		}
	}
	return stuck
}

// wait waits for the goroutines that are no actors'. It reports false when they did not end.
func (g *Group) wait(ctx context.Context) bool {
	ended := make(chan struct{})
	go func() { // owned by this call; ends when the last of them has
		g.wg.Wait()
		close(ended)
	}()
	late := time.NewTimer(g.cfg.StopTimeout)
	defer late.Stop()
	select {
	case <-ended:
		return true
	case <-ctx.Done():
	}
	select {
	case <-ended:
		return true
	case <-late.C:
		return false
	}
}
