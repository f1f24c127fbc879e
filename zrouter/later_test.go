package zrouter_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"zgame/zactor"
	"zgame/zrouter"
	"zgame/zrouter/internal/testpb"
)

// What an object does later, it does with a Context of its own, whatever other objects are at meanwhile: under the race detector one
// that is another's, or over, shows.
func TestLater(t *testing.T) {
	t.Parallel()
	const objects = 8
	ways := []string{"After", "AfterKey", "Every", "EveryKey", "Cron", "Loop", "Watch", "Then", "Async"}
	told := make(chan string, 10*objects*len(ways))
	k := logs()
	k.Handlers[3] = zrouter.Handle(func(c *logContext, _ *testpb.Boom) (*testpb.Lines, error) {
		id := c.Key().ID
		var once sync.Map
		ran := func(way string) func(c *logContext) {
			return func(c *logContext) {
				if _, again := once.LoadOrStore(way, true); again {
					return
				}
				if c.Key().ID != id || c.Now().IsZero() {
					t.Errorf("%s of %s has the Context of %s", way, id, c.Key().ID)
				}
				c.Logger().Debug("later", "way", way)
				add(c, way)
				told <- id + way
			}
		}
		c.After(time.Millisecond, ran("After"))
		c.AfterKey("a", time.Millisecond, ran("AfterKey"))
		c.Every(time.Millisecond, ran("Every"))
		c.EveryKey("b", time.Millisecond, ran("EveryKey"))
		if _, err := c.Cron("@every 1s", ran("Cron")); err != nil {
			return nil, err
		}
		c.Loop(1000, func(c *logContext, _ zactor.Tick) { ran("Loop")(c) })
		c.Watch(zactor.Ref{}, func(c *logContext, _ zactor.Down) { ran("Watch")(c) })
		zrouter.Then(c, c.Object(key("other")), &testpb.Get{}, func(c *logContext, _ *testpb.Lines, err error) {
			if err != nil {
				t.Error(err)
			}
			ran("Then")(c)
		})
		return &testpb.Lines{}, zrouter.Async(c, func(context.Context) (int, error) { return 7, nil }, func(c *logContext, n int, err error) {
			if n != 7 || err != nil {
				t.Error(n, err)
			}
			ran("Async")(c)
		})
	})
	w := newWorld(t)
	n := w.start("a", zrouter.Settings{}, k)
	for i := range objects {
		if _, err := zrouter.Call[testpb.Lines](t.Context(), n.set, key(fmt.Sprint(i)), &testpb.Boom{Log: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	for range objects * len(ways) {
		select {
		case <-told:
		case <-time.After(30 * time.Second):
			t.Fatal("not all of it runs")
		}
	}
	for i := range objects {
		if lines, err := n.lines(fmt.Sprint(i)); err != nil || len(lines) != len(ways) {
			t.Errorf("%v, %v", lines, err)
		}
	}
}
