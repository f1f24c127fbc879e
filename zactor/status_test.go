package zactor_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
)

// The fullest mailboxes come first, of those that match; who has failed lately is known, the newest first.
func TestActorsAndFailures(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	hold, entered := make(chan struct{}), make(chan struct{}, 16)
	block := func(*zactor.Context, *testpb.Note) error { entered <- struct{}{}; <-hold; return nil }
	for i, name := range []string{"room-a", "room-b", "clock"} {
		ref := spawn(t, g, name, factory(zactor.HandleTell(block)))
		for range 1 + 3*i {
			if err := ref.Tell(&testpb.Note{}); err != nil {
				t.Fatal(err)
			}
		}
		<-entered
	}
	list, all := g.Actors("room", 1)
	if all != 2 || len(list) != 1 || list[0].Name != "room-b" || list[0].Queued != 3 || list[0].State != "working" || list[0].Limit < 3 || list[0].Type == "" {
		t.Errorf("%d: %+v", all, list)
	}
	if list, all := g.Actors("", 10); all != 3 || len(list) != 3 || list[0].Name != "clock" || list[2].Name != "room-a" {
		t.Errorf("%d: %+v", all, list)
	}
	if list, all := g.Actors("nobody", 10); all != 0 || len(list) != 0 {
		t.Errorf("%d: %+v", all, list)
	}
	close(hold)

	bad := spawn(t, g, "bad", factory(
		zactor.Handle(func(_ *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
			if p.GetN() == 0 {
				panic("broken")
			}
			return nil, errors.New("number " + strings.Repeat("x", int(p.GetN())))
		})))
	for n := range int64(100) {
		if _, err := zactor.Ask[testpb.Pong](context.Background(), bad, &testpb.Ping{N: n * 10}); err == nil {
			t.Fatal("it did not fail")
		}
		if f := g.Failures(); n == 0 && (len(f) != 1 || f[0].Text != "panic: broken" || f[0].Name != "bad" || f[0].Message == 0 || f[0].At.IsZero()) {
			t.Errorf("%+v", f)
		}
	}
	f := g.Failures()
	if len(f) != 64 || len(f[0].Text) != 512 || len(f[63].Text) != len("number ")+360 {
		t.Errorf("%d failures, the newest with %d, the oldest with %d bytes", len(f), len(f[0].Text), len(f[len(f)-1].Text))
	}
}
