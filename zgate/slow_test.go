package zgate

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"zgame/zmsg"
)

// memoryLocked returns the bytes of chunks that a queue holds: what it costs, not what is in it. What somebody is offering to the socket at
// this moment is his, and is counted by its length.
func (q *queue) memoryLocked() int {
	n := q.offered
	held := q.segs
	if q.offered == 0 || q.writer {
		held = slices.Concat(q.hand, q.segs)
	}
	for _, s := range held {
		if s.chunk != nil {
			n += cap(s.chunk.b)
		} else {
			n += cap(s.b)
		}
	}
	return n
}

// Clients that never read beside as many that do: what waits for each stays below the cap, until the client is closed as slow; those that
// read get everything, in order, and no others are closed. The long form is in bench/cmd/gate (deaf-memory, deaf-p99).
func TestSlowClientsBesideOthers(t *testing.T) {
	t.Parallel()
	const (
		n      = 20
		pushes = 400
		size   = 1000
		limit  = 64 << 10
	)
	r := newRig(t, withSmallBuffers(t), func(c *Config) { c.QueueBytes, c.CloseTimeout, c.Logger = limit, 100*time.Millisecond, nil })
	join := func(ref zmsg.SessionRef) *Session {
		if err := r.Join(ref, "all"); err != nil {
			t.Fatal(err)
		}
		s, err := r.Session(ref)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	var deaf []*Session
	for i := range n {
		_, ref := r.stall(fmt.Sprintf("deaf%d", i))
		deaf = append(deaf, join(ref))
	}
	var reading sync.WaitGroup
	got := make(chan struct{}, n)
	for i := range n {
		c := r.dialRaw(true)
		join(c.hello(fmt.Sprintf("reads%d", i)))
		reading.Go(func() { // ends with the last push, or with the connection
			for want := uint64(1); want <= pushes; want++ {
				_, p, err := c.wsRead()
				if err != nil {
					t.Errorf("reader %d: push %d: %v", i, want, err)
					break
				}
				var f zmsg.Frame
				if _, err := zmsg.NextFrame(p, &f); err != nil || f.Seq != want || len(f.Body) != size {
					t.Errorf("reader %d: got %d with %d bytes, %v, want %d", i, f.Seq, len(f.Body), err, want)
					break
				}
				got <- struct{}{}
			}
		})
	}
	p := &zmsg.Push{ID: 1, Body: []byte(strings.Repeat("x", size))}
	most, memory := 0, 0
	late := time.After(patience)
	for range pushes {
		r.PublishLocal("all", p)
		for _, s := range deaf {
			c := s.c.Load()
			c.q.mu.Lock()
			most, memory = max(most, c.q.queued-c.q.offered), max(memory, c.q.memoryLocked())
			c.q.mu.Unlock()
		}
		for range n { // as fast as those that read take it
			select {
			case <-got:
			case <-late:
				t.Fatal("those that read do not get everything")
			}
		}
	}
	reading.Wait()
	if most < limit/2 || most > limit+size {
		t.Errorf("%d bytes waited for a client at most, the cap is %d", most, limit)
	}
	if memory > limit+2*largeChunk {
		t.Errorf("what waited for a client took %d bytes, the cap is %d", memory, limit)
	}
	eventually(t, "all that do not read are closed as slow, and nobody else", func() bool {
		return r.Sessions() == n && r.counter("closes_total", "slow") == n
	})
}
