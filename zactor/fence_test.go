package zactor_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zmsg"
)

// events is what happened, in order.
type events struct {
	mu   sync.Mutex
	list []string
}

func (e *events) add(s string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, s)
}

func (e *events) get() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.list)
}

// Reply makes events the one who asks fences.
func (e *events) Reply(token uint64, r *zmsg.Reply) { e.add(fmt.Sprint("fence ", token, " ", r.Code)) }

func (e *events) fence(to zactor.Ref, token uint64) error {
	m := zmsg.NewMessage(zmsg.FenceID)
	m.SetReplier(e, token)
	err := to.Deliver(m)
	if err != nil {
		m.TakeReplier()
		m.Release()
	}
	return err
}

// A fence is answered in its turn: behind what the actor got before, in a full mailbox, in one that is closed, and while the group shuts
// down. It is no message that an actor can handle, or that keeps it.
func TestFence(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"", "stop drained", "stop", "shutdown"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, nil)
			var e events
			begun, hold := make(chan struct{}), make(chan struct{})
			ref := spawn(t, g, "", factory(zactor.HandleTell(func(_ *zactor.Context, m *testpb.Note) error {
				if m.GetN() == 1 {
					close(begun)
					<-hold
				}
				e.add(fmt.Sprint("note ", m.GetN()))
				return nil
			})), zactor.WithMailbox(2))
			if err := ref.Tell(&testpb.Note{N: 1}); err != nil {
				t.Fatal(err)
			}
			receive(t, begun)
			for n := int64(2); ; n++ {
				if err := ref.Tell(&testpb.Note{N: n}); errors.Is(err, zmsg.ErrBusy) {
					break
				} else if err != nil || n > 10 {
					t.Fatal(n, err)
				}
			}
			if err := e.fence(ref, 1); err != nil {
				t.Fatalf("a full mailbox: %v", err)
			}
			want := []string{"note 1", "note 2", "note 3", "fence 1 ok", "fence 2 ok"}
			ended := make(chan error, 1)
			switch end {
			case "":
				ended <- nil
			case "stop drained":
				ended <- g.StopDrained(ref)
				want[4] = "fence 2 stopped"
			case "stop":
				ended <- g.Stop(ref)
				want = []string{"note 1", "fence 1 stopped", "fence 2 stopped"}
			case "shutdown":
				go func() { ended <- g.Shutdown(testContext(t)) }()
				eventually(t, func() bool { return errors.Is(ref.Tell(&testpb.Note{}), zmsg.ErrDraining) })
			}
			if err := e.fence(ref, 2); err != nil {
				t.Fatal(err)
			}
			close(hold)
			if err := receive(t, ended); err != nil {
				t.Error(err)
			}
			eventually(t, func() bool { return len(e.get()) >= len(want) })
			if got := e.get(); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			if end == "" {
				m := zmsg.NewMessage(zmsg.FenceID)
				m.Client = true
				if err := ref.Deliver(m); !errors.Is(err, zmsg.ErrNoRoute) {
					t.Errorf("of a client: %v", err)
				}
				m.Release()
			} else {
				eventually(t, func() bool { return errors.Is(e.fence(ref, 3), zmsg.ErrStopped) })
			}
		})
	}
}
