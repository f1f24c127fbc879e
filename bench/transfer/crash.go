package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"zgame/bench/benchpb"
	"zgame/bench/internal/child"
	"zgame/znode"
	"zgame/zrouter"
)

// Child runs the node that is to be killed, if another process of this program started it for that, and reports that it did: then the
// program ends with the error. main and TestMain call it first.
func Child() (was bool, err error) { return child.Run(map[string]child.Role{"victim": runVictim}) }

// runVictim is the process that is killed; it is given addresses, the lease and a number of objects.
func runVictim(p *child.Parent) error {
	parts := strings.Split(p.Arg, " ")
	if len(parts) != 4 {
		return fmt.Errorf("bench: a victim with %q", p.Arg)
	}
	lease, err1 := time.ParseDuration(parts[2])
	objects, err2 := strconv.Atoi(parts[3])
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	return victim(p, servers{parts[0], parts[1], lease}, objects)
}

// victim is a node that owns objects, until somebody kills it.
func victim(p *child.Parent, at servers, objects int) error {
	var s seen
	n, err := znode.New(znode.Config{Settings: at.settings("victim"), App: s.app()})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.Start(ctx); err != nil {
		return err
	}
	m, err := zrouter.ManagerOf[*benchpb.Bag](n.Objects(), bagType)
	if err != nil {
		return err
	}
	for i := range objects {
		if _, err := m.MutableObject(ctx, key("crash", i, 4096)); err != nil {
			return err
		}
	}
	p.Say("ready")
	p.Hear() // nothing: until it is killed, or the one that started it is gone
	return nil
}

// Crash is how long objects of a node that was killed were away.
type Crash struct {
	Lease time.Duration
	Away  []time.Duration // of each object: from the kill to the first success; sorted
	Wrong int             // requests that ended otherwise than they may: with another error than that it did not run, or nobody knows
	Why   error
}

// crashPoll is between two requests to an object that is away: what is measured is no finer.
const crashPoll = 50 * time.Millisecond

// MeasureCrash kills a process whose node owns objects, with callers that know where these are, and asks until each is answered again.
func (c *Cluster) MeasureCrash(objects int) (r Crash, err error) {
	r.Lease = c.lease
	at := c.servers()
	killed, _, err := child.Start("victim", fmt.Sprintf("%s %s %s %d", at.nats, at.etcd, at.lease, objects), "")
	if err != nil {
		return r, err
	}
	for i := range objects {
		if err := put(c.nodes[i%3], key("crash", i, 4096), 1, 1, patience); err != nil {
			return r, errors.Join(err, killed.Kill())
		}
	}
	since := time.Now()
	if err := killed.Kill(); err != nil {
		return r, err
	}
	r.Away = make([]time.Duration, objects)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range objects {
		wg.Go(func() { // ends with the first success, or after a while
			for num := uint64(2); ; num++ {
				err := put(c.nodes[i%3], key("crash", i, 4096), 1, num, time.Second)
				r.Away[i] = time.Since(since)
				if err == nil {
					return
				}
				mu.Lock()
				if r.Away[i] > c.lease+patience {
					r.Wrong++
					r.Why = fmt.Errorf("bench: object %d is away for ever: %w", i, err)
					mu.Unlock()
					return
				}
				mu.Unlock()
				rest(crashPoll)
			}
		})
	}
	wg.Wait()
	slices.Sort(r.Away)
	return r, nil
}
