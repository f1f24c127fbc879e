package transfer

import (
	"context"
	"slices"
	"sync"
	"time"

	"zgame/bench/benchpb"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/zrouter"
)

// put sends one numbered request, and waits.
func put(n *znode.Node, k zmsg.Key, from uint32, num uint64, limit time.Duration) error {
	_, err := putHops(n, k, from, num, limit)
	return err
}

// putHops is put, and says how often the request was sent on.
func putHops(n *znode.Node, k zmsg.Key, from uint32, num uint64, limit time.Duration) (hops float64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	r, err := zrouter.Call[benchpb.Kept](ctx, n.Objects(), k, &benchpb.Put{From: from, N: num})
	return float64(r.GetHops()), err
}

// rest waits: what is measured here is what happens in so long.
func rest(d time.Duration) { <-time.NewTimer(d).C }

// span is one request: when it was sent, and when its answer was there.
type span struct{ from, to time.Time }

func (s span) took() time.Duration { return s.to.Sub(s.from) }

// caller sends requests to one object, one after the other, until it is told to stop.
type caller struct {
	node   *znode.Node
	key    zmsg.Key
	id     uint32
	think  time.Duration // between an answer and the next request
	keep   bool          // spans
	sent   uint64
	failed []error
	spans  []span
}

func (c *caller) run(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	for ctx.Err() == nil {
		c.sent++
		began := time.Now()
		if err := put(c.node, c.key, c.id, c.sent, patience); err != nil {
			c.failed = append(c.failed, err)
		}
		if c.keep {
			c.spans = append(c.spans, span{began, time.Now()})
		}
		if c.think > 0 {
			t.Reset(c.think)
			<-t.C
		}
	}
}

// crowd is some callers at work.
type crowd struct {
	callers []*caller
	stop    context.CancelFunc
	done    sync.WaitGroup
}

func work(callers []*caller) *crowd {
	ctx, stop := context.WithCancel(context.Background())
	c := &crowd{callers: callers, stop: stop}
	for _, x := range callers {
		c.done.Go(func() { x.run(ctx) }) // ends with stop; end waits for it
	}
	return c
}

// end has them stop, and returns how many requests have failed, with the first reason.
func (c *crowd) end() (failed int, first error) {
	c.stop()
	c.done.Wait()
	for _, x := range c.callers {
		if failed += len(x.failed); first == nil && len(x.failed) > 0 {
			first = x.failed[0]
		}
	}
	return failed, first
}

// background are callers at the nodes from the second on, of objects of theirs, at a rate that a machine of two cores has no trouble with.
func (c *Cluster) background(name string, keys int, think time.Duration) ([]*caller, error) {
	var callers []*caller
	nodes := c.nodes[1:]
	for i := 0; len(callers) < keys && i < 100*keys; i++ {
		k := key(name, i, 4096)
		n := nodes[i%len(nodes)]
		if err := put(n, k, 0, 1, patience); err != nil {
			return nil, err
		}
		owner, err := c.owner(k)
		if err != nil {
			return nil, err
		}
		if owner == 0 {
			continue
		}
		callers = append(callers, &caller{node: n, key: k, id: 1, think: think, keep: true})
	}
	return callers, nil
}

// latencies of the requests that were sent between two times.
func latencies(callers []*caller, from, to time.Time) (all []time.Duration) {
	for _, c := range callers {
		for _, s := range c.spans {
			if !s.from.Before(from) && s.from.Before(to) {
				all = append(all, s.took())
			}
		}
	}
	slices.Sort(all)
	return all
}

// quantile of sorted spans of time; 0 of none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
