//go:build linux

package seam

import (
	"testing"
	"time"
)

func TestHold(t *testing.T) {
	dir := t.TempDir()
	p := &Process{Dir: dir, Node: "a"}
	p.Reach(Move, "x") // nobody listens
	l, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h := l.Hold(At{Node: "a", Step: Move, Key: "x"})
	p.Reach(Moved, "x") // another step
	p.Reach(Move, "y")  // another object
	(&Process{Dir: dir, Node: "b"}).Reach(Move, "x")
	on := make(chan struct{})
	go func() { // ends when it is released
		p.Reach(Move, "x")
		close(on)
	}()
	<-h.Reached()
	select {
	case <-on:
		t.Fatal("it went on while it was held")
	case <-time.After(20 * time.Millisecond):
	}
	h.Release()
	h.Release()
	<-on
	p.Reach(Move, "x") // a hold is for one
}

func TestAHeldProcessGoesOnWithoutTheTest(t *testing.T) {
	dir := t.TempDir()
	l, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	h := l.Hold(At{Step: Move})
	on := make(chan struct{})
	go func() { // ends when the listener has closed
		(&Process{Dir: dir, Node: "a"}).Reach(Move, "x")
		close(on)
	}()
	<-h.Reached()
	l.Close()
	<-on
}
