package transfer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"zgame/bench/benchpb"
	"zgame/zrouter"
)

// Drain is what a drain came to.
type Drain struct {
	Objects        int
	Hurried        bool          // it had only so much time as its objects need at hurry
	Filled         time.Duration // how long it took to have them in memory
	Report         zrouter.DrainReport
	Steady, During time.Duration // 99 of 100 requests to other objects took at most so long, before and meanwhile
	Requests       int           // of them, meanwhile
	Failed         int
	Why            error
}

// PerSecond is how many objects were moved in a second.
func (d Drain) PerSecond() float64 { return float64(d.Report.Moved) / d.Report.Took.Seconds() }

// Of a drain: callers of objects that do not move, at the nodes that stay.
const (
	otherKeys  = 32
	otherThink = 10 * time.Millisecond
)

// hurry is how many objects a hurried drain has to move in a second; without that it takes its time: drain_rate.
const hurry = 2200

// MeasureDrain has the first node own so many objects with states of 4 KiB, and then stops it, while others ask for objects of the other
// nodes. steady is how long these are measured before. The node is started again.
func (c *Cluster) MeasureDrain(objects int, steady time.Duration, hurried bool) (d Drain, err error) {
	d.Objects, d.Hurried = objects, hurried
	began := time.Now()
	name := "paced"
	if hurried {
		name = "drain"
	}
	if err := c.fill(name, objects); err != nil {
		return d, err
	}
	d.Filled = time.Since(began)
	callers, err := c.background("other", otherKeys, otherThink)
	if err != nil {
		return d, err
	}
	asking := work(callers)
	rest(min(steady/4, time.Second))
	from := time.Now()
	rest(steady)
	a := c.nodes[0]
	limit := 20 * time.Minute
	if hurried {
		limit = time.Duration(objects)*time.Second/hurry + 10*time.Second // which are not for moves
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	to := time.Now()
	c.nodes[0] = nil
	err = a.Stop(ctx)
	status := a.DrainStatus()
	d.Failed, d.Why = asking.end()
	if err != nil || status.Objects == nil {
		return d, fmt.Errorf("bench: the drain: %w", errors.Join(err, errors.New(status.Error)))
	}
	d.Report = *status.Objects
	d.Steady = quantile(latencies(callers, from, to), 0.99)
	during := latencies(callers, d.Report.Began, d.Report.Began.Add(d.Report.Took))
	d.During, d.Requests = quantile(during, 0.99), len(during)
	return d, c.restart(0)
}

// fill has the first node own objects.
func (c *Cluster) fill(name string, objects int) error {
	m, err := zrouter.ManagerOf[*benchpb.Bag](c.nodes[0].Objects(), bagType)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	var next atomic.Int64
	errs := make([]error, 64)
	var wg sync.WaitGroup
	for w := range errs {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(objects) && errs[w] == nil; i = next.Add(1) {
				_, errs[w] = m.MutableObject(ctx, key(name, int(i), 4096))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
