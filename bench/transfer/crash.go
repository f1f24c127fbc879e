package transfer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"zgame/bench/benchpb"
	"zgame/znode"
	"zgame/zrouter"
)

// How the process learns what it is that is killed.
const (
	victimEnv = "ZGAME_BENCH_TRANSFER_VICTIM" // addresses, lease, number of objects
)

// Child runs the node that is to be killed, if another process of this program started it for that, and reports that it did: then the
// program ends with the error. main and TestMain call it first.
func Child() (was bool, err error) {
	text := os.Getenv(victimEnv)
	if text == "" {
		return false, nil
	}
	parts := strings.Split(text, " ")
	if len(parts) != 4 {
		return true, fmt.Errorf("bench: %s is %q", victimEnv, text)
	}
	lease, err1 := time.ParseDuration(parts[2])
	objects, err2 := strconv.Atoi(parts[3])
	if err := errors.Join(err1, err2); err != nil {
		return true, err
	}
	return true, victim(servers{parts[0], parts[1], lease}, objects)
}

// victim is a node that owns objects, until somebody kills it.
func victim(at servers, objects int) error {
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
	_, _ = fmt.Fprintln(os.Stdout, "ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed, or the one that started it is gone
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
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	at := c.servers()
	cmd := exec.CommandContext(context.Background(), self) // killed below
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s %d", victimEnv, at.nats, at.etcd, at.lease, objects))
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		return r, err
	}
	defer in.Close()
	line, _ := bufio.NewReader(out).ReadString('\n')
	if strings.TrimSpace(line) != "ready" {
		return r, errors.Join(fmt.Errorf("bench: the node that is to be killed said %q", line), cmd.Process.Kill(), cmd.Wait())
	}
	for i := range objects {
		if err := put(c.nodes[i%3], key("crash", i, 4096), 1, 1, patience); err != nil {
			return r, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
		}
	}
	killed := time.Now()
	if err := cmd.Process.Kill(); err != nil {
		return r, err
	}
	_ = cmd.Wait() // says that it was killed
	r.Away = make([]time.Duration, objects)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range objects {
		wg.Go(func() { // ends with the first success, or after a while
			for num := uint64(2); ; num++ {
				err := put(c.nodes[i%3], key("crash", i, 4096), 1, num, time.Second)
				r.Away[i] = time.Since(killed)
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
