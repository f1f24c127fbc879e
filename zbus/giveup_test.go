package zbus_test

import (
	"testing"
	"time"

	"zgame/zbus"
	"zgame/zmsg"
)

// quitter asks, and may give up.
type quitter struct {
	*outcomes
	w   zmsg.GiveUp
	arg uint64
}

func (q *quitter) OnGiveUp(_ uint64, w zmsg.GiveUp, arg uint64) bool {
	q.w, q.arg = w, arg
	return true
}

func (q *quitter) Forget(uint64, zmsg.GiveUp) {}

// told notes with what it was told.
type told chan uint64

func (c told) GaveUp(arg uint64) { c <- arg }

// A request that is given up leaves the table, and the node that has it is told: also one who asks for that later.
func TestGivingUp(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		t.Helper()
		arrived := make(chan *zmsg.Message, 2)
		a := c.start(t, "a", zbus.Handlers{})
		b := c.start(t, "b", zbus.Handlers{Actor: func(_ uint64, m *zmsg.Message) { arrived <- m }})
		to := zmsg.Address{Node: b.ref, Actor: 7}
		heard := make(told, 2)
		for round, late := range []bool{false, true} {
			q := &quitter{outcomes: newOutcomes(1)}
			m := message("x")
			m.Deadline = time.Now().Add(within)
			a.sendUntil(t, func() error { return a.Send(to, m, q, uint64(round)) })
			got := receiveWithin(t, arrived)
			w, token := got.Waiter()
			if w == nil {
				t.Fatal("a request from another node cannot tell when it is given up")
			}
			forgotten := make(told, 1)
			w.OnGiveUp(token, forgotten, 1)
			w.Forget(token, forgotten)
			if !late {
				w.OnGiveUp(token, heard, 40)
			}
			q.w.GaveUp(q.arg)
			if late {
				mark := &quitter{outcomes: newOutcomes(1)} // comes behind the word that the first was given up
				a.sendUntil(t, func() error { return a.Send(to, m, mark, 9) })
				next := receiveWithin(t, arrived)
				next.ReplyError(zmsg.ErrBusy)
				mark.next(t)
				next.Release()
				w.OnGiveUp(token, heard, 41)
			}
			if arg := receiveWithin(t, heard); arg != uint64(40+round) {
				t.Errorf("told with %d", arg)
			}
			got.ReplyError(zmsg.ErrBusy) // late by now
			got.Release()
			if len(forgotten) != 0 {
				t.Error("told though it was forgotten")
			}
			q.w.GaveUp(q.arg) // twice is once
			eventually(t, "the late reply is counted", func() bool { return a.count(t, "late_replies_total") == round+1 })
			if len(q.ch) != 0 {
				t.Error("a request that was given up had an outcome")
			}
		}
		if n := a.count(t, "requests_total", "given_up"); n != 2 {
			t.Errorf("%d counted as given up, want 2", n)
		}
	})
}
