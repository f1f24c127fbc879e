package zactor_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zactor/zactortest"
	"zgame/zmsg"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A group with a virtual clock waits for nothing else: time-outs, the deadline of a handler's context, restarts.
func TestVirtualClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		clock := zactortest.NewClock(noon)
		g, err := zactor.NewGroup(zactor.Config{Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		var cause error
		ref := spawn(t, g, "", factory(zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
			switch {
			case p.GetN() == 0:
				panic("boom")
			case p.GetN() == 1:
				ctx := c.Context()
				<-ctx.Done()
				cause = context.Cause(ctx)
				return nil, cause // this, or the asker's own end: whichever is first
			case !c.Now().Equal(clock.Now()):
				t.Errorf("the handler sees %v, the clock says %v", c.Now(), clock.Now())
			}
			return &testpb.Pong{}, nil
		})), zactor.WithPolicy(zactor.Policy{MaxRestarts: 9, MinBackoff: time.Hour, MaxBackoff: time.Hour, Window: 9 * time.Hour}))
		ended := make(chan error, 1)
		ask := func(n int64) {
			go func() {
				_, err := zactor.Ask[testpb.Pong](t.Context(), ref, &testpb.Ping{N: n})
				ended <- err
			}()
			synctest.Wait()
		}
		ask(1)
		clock.Advance(9900 * time.Millisecond)
		synctest.Wait()
		if len(ended) != 0 || cause != nil {
			t.Fatalf("it ended before Config.AskTimeout: %v", cause)
		}
		clock.Steps(200*time.Millisecond, synctest.Wait)
		if err := <-ended; !errors.Is(err, zmsg.ErrTimeout) || !errors.Is(cause, context.DeadlineExceeded) {
			t.Errorf("got %v and the cause %v, want a time-out", err, cause)
		}
		for range 2 { // the second restart waits
			ask(0)
			if err := <-ended; !errors.Is(err, zmsg.ErrPanicked) {
				t.Errorf("got %v, want panicked", err)
			}
		}
		ask(2)
		clock.Steps(5*time.Second, synctest.Wait)
		if len(ended) != 0 {
			t.Errorf("the restart did not wait: %v", <-ended)
		}
		clock.Steps(6*time.Second, synctest.Wait)
		if err := <-ended; !errors.Is(err, zmsg.ErrTimeout) {
			t.Errorf("got %v, want a time-out", err)
		}
		clock.Steps(time.Hour, synctest.Wait)
		ask(2)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		clock.Steps(time.Second, synctest.Wait)
		if n := clock.Pending(); n != 0 {
			t.Errorf("%d calls of the clock while the group is idle", n)
		}
		ask(2)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := g.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if n := clock.Pending(); n != 0 {
			t.Errorf("%d calls of the clock after the shutdown", n)
		}
		if !time.Now().Equal(began) {
			t.Errorf("real time went by: %v", time.Since(began))
		}
	})
}
