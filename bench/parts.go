package bench

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"zgame/bench/benchpb"
)

// What the actors of all systems have in common.

// patience is how long a workload waits for messages that do not get handled.
const patience = 30 * time.Second

// await yields until done has reached n.
func await(done *atomic.Int64, n int64) error {
	var since time.Time
	for spin := 1; done.Load() < n; spin++ {
		runtime.Gosched()
		if spin%(1<<14) != 0 {
			continue
		}
		switch now := time.Now(); {
		case since.IsZero():
			since = now
		case now.Sub(since) > patience:
			return fmt.Errorf("bench: only %d of %d were handled within %v", done.Load(), n, patience)
		}
	}
	return nil
}

// ball is the message of ping-pong: how often it has yet to be hit. The actor that has it owns it.
type ball struct {
	left, hits int
	end        chan struct{}
}

func newBall() *ball { return &ball{end: make(chan struct{}, 1)} }

// hit counts a message and reports whether it goes on to the other actor.
func (b *ball) hit() bool {
	b.hits++
	if b.left--; b.left > 0 {
		return true
	}
	b.lost()
	return false
}

// lost ends the game.
func (b *ball) lost() { b.end <- struct{}{} }

// play serves and waits for the end; it returns how often the ball was hit.
func (b *ball) play(n int, serve func() error) int {
	b.left, b.hits = n, 0
	if serve() != nil {
		return 0
	}
	<-b.end
	return b.hits
}

// phoenix is the state of an actor that is made anew.
type phoenix struct{ requests int64 }

// pack puts what a phoenix answers into one number, so that a small Pong carries it.
func pack(requests, instances int64) int64 { return requests<<32 | instances }

func unpack(v any) (requests, instances int64, err error) {
	p, ok := v.(*benchpb.Pong)
	if !ok {
		return 0, 0, isPong(v)
	}
	return p.GetN() >> 32, p.GetN() & (1<<32 - 1), nil
}

// isPong says what is wrong with an answer.
func isPong(v any) error {
	if _, ok := v.(*benchpb.Pong); !ok {
		return fmt.Errorf("bench: the answer is a %T, want a Pong", v)
	}
	return nil
}
