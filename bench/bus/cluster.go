package bus

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"

	"zgame/bench/benchpb"
	"zgame/bench/internal/child"
	"zgame/zactor"
	"zgame/zmsg"
)

// bodyBytes is the size of a message's body.
const bodyBytes = 64

// Cluster is this process as a node, and the two others.
type Cluster struct {
	server, other *child.Process
	here          *node
	echo          zactor.Ref
	body          []byte
}

// Open starts the processes and connects this one. Close ends them. profiles is the directory for CPU profiles of the
// others, "" for none.
func Open(profiles string) (c *Cluster, err error) {
	c = &Cluster{body: make([]byte, bodyBytes)}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	var url, actor string
	if c.server, url, err = child.Start("nats", "", profiles); err != nil {
		return c, err
	}
	if c.other, actor, err = child.Start("node", url, profiles); err != nil {
		return c, err
	}
	id, err := strconv.ParseUint(actor, 10, 64)
	if err != nil {
		return c, fmt.Errorf("bench: the other node said %q, want the number of its actor", actor)
	}
	if c.here, err = openNode("a", url); err != nil {
		return c, err
	}
	c.echo = c.here.group.Ref(zmsg.Address{Node: zmsg.NodeRef{ID: "b", Epoch: 1}, Actor: id})
	return c, nil
}

// Close ends the processes and the connections.
func (c *Cluster) Close() error {
	var errs []error
	if c.here != nil {
		errs = append(errs, c.here.close())
	}
	if c.other != nil {
		errs = append(errs, c.other.Stop())
	}
	if c.server != nil {
		errs = append(errs, c.server.Stop())
	}
	return errors.Join(errs...)
}

// job does n operations.
type job func(n int) error

// spread does n calls by a number of callers, each one after the other.
func spread(callers int, call func() error) job {
	return func(n int) error {
		var left atomic.Int64
		left.Store(int64(n))
		errs := make([]error, callers)
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for errs[i] == nil && left.Add(-1) >= 0 {
					errs[i] = call()
				}
			})
		}
		wg.Wait()
		return errors.Join(errs...)
	}
}

func (c *Cluster) bareRequests(callers int) job {
	return spread(callers, func() error {
		m, err := c.here.bare.Request(subject, c.body, patience)
		if err == nil && len(m.Data) != len(c.body) {
			err = fmt.Errorf("bench: an answer of %d bytes, want %d", len(m.Data), len(c.body))
		}
		return err
	})
}

func (c *Cluster) linkRequests(callers int) job {
	ctx, m := context.Background(), &benchpb.Parcel{Body: c.body}
	return spread(callers, func() error {
		r, err := zactor.Ask[benchpb.Parcel](ctx, c.echo, m)
		if err == nil && len(r.GetBody()) != len(c.body) {
			err = fmt.Errorf("bench: an answer of %d bytes, want %d", len(r.GetBody()), len(c.body))
		}
		return err
	})
}

// burst is how many one-way messages are sent before the sender waits until all have been handled.
const burst = 1 << 15

// bursts does n one-way messages as bursts.
func bursts(one job) job {
	return func(n int) error {
		for n > 0 {
			k := min(n, burst)
			if err := one(k); err != nil {
				return err
			}
			n -= k
		}
		return nil
	}
}

// bareOneWay publishes n messages and waits until they have been handled: a request behind them counts them.
func (c *Cluster) bareOneWay(n int) error {
	for range n {
		if err := c.here.bare.Publish(subject, c.body); err != nil {
			return err
		}
	}
	m, err := c.here.bare.Request(subject, nil, patience)
	if err != nil {
		return err
	}
	return counted(string(m.Data), n)
}

// linkOneWay is bareOneWay by actors. A sender that is too fast for the bus is told so, and tries again.
func (c *Cluster) linkOneWay(n int) error {
	letter := &benchpb.Letter{Body: c.body}
	for range n {
		for {
			err := c.echo.Tell(letter)
			if err == nil {
				break
			}
			if !errors.Is(err, zmsg.ErrBusy) {
				return err
			}
			runtime.Gosched()
		}
	}
	ctx, cancel := bounded()
	defer cancel()
	for {
		pong, err := zactor.Ask[benchpb.Pong](ctx, c.echo, &benchpb.Ping{})
		if err == nil {
			return counted(strconv.FormatInt(pong.GetN(), 10), n)
		}
		if !errors.Is(err, zmsg.ErrBusy) {
			return err
		}
		runtime.Gosched()
	}
}

func counted(got string, want int) error {
	if got != strconv.Itoa(want) {
		return fmt.Errorf("bench: %s one-way messages were handled, %d were sent", got, want)
	}
	return nil
}
