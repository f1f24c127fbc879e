//go:build linux

package chaos

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/test/chaos/chaospb"
	"zgame/zclient"
	"zgame/zmsg"
)

// gateClient asks through the gate. It may watch a list: it is pushed what is added then.
type gateClient struct {
	number int
	*zclient.Client

	given atomic.Uint64 // requests that ended before their response could come

	watched string // list, "" for none
	from    int    // entries that were there when it began to watch

	mu     sync.Mutex
	pushes []uint64 // as they came; guarded by mu
	gaps   int      // that it was told of; guarded by mu
}

// dial connects a client to the gate.
func (w *world) dial(number int) *gateClient {
	w.t.Helper()
	c, err := zclient.New(zclient.Config{
		URL: "ws://" + w.gate.host.address + ":7000/ws", Token: fmt.Sprint("user-", number),
		MinBackoff: 20 * time.Millisecond, MaxBackoff: time.Second, RetryFirst: true,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = c.Close()
		<-c.Done()
	})
	g := &gateClient{number: number, Client: c}
	zclient.On(c, func(a *chaospb.Added) {
		g.mu.Lock()
		g.pushes = append(g.pushes, a.GetOp())
		g.mu.Unlock()
	})
	c.OnGap(func(zclient.Gap) {
		g.mu.Lock()
		g.gaps++
		g.mu.Unlock()
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.Connect(ctx); err != nil {
		w.t.Fatal(err)
	}
	return g
}

func (g *gateClient) ask(ctx context.Context, _ string, req, resp proto.Message, _ string) error {
	err := g.Request(ctx, req, resp)
	if zmsg.CodeOf(err) == zmsg.CodeTimeout {
		g.given.Add(1)
	}
	return err
}

// doubled says whether the client got a response that it had got already.
func (g *gateClient) doubled() []string {
	if late, given := g.Stats().LateResponses, g.given.Load(); late > given {
		return []string{fmt.Sprintf("ends: client %d has given %d requests up, and %d responses came that nobody waited for", g.number, given, late)}
	}
	return nil
}

// watch binds the client to a list, before anything is added to it by others or with it.
func (g *gateClient) watch(t *testing.T, list string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var c chaospb.Content
	if err := g.Request(ctx, &chaospb.Watch{List: list}, &c); err != nil {
		t.Fatalf("client %d watches %s: %v", g.number, list, err)
	}
	g.watched, g.from = list, int(c.GetLen())
}

// connected fails the test where a client of the gate was disconnected, or a push to it was lost, doubled or swapped, or it was told of a
// gap. The load has ended, and there was nothing that might excuse it.
func (l *load) connected(t *testing.T) {
	t.Helper()
	for _, u := range l.users {
		if n := u.Stats().Connects; n != 1 {
			t.Errorf("client %d has connected %d times", u.number, n)
		}
		if u.watched == "" {
			continue
		}
		want := l.lists[u.watched][u.from:]
		deadline := time.Now().Add(patience)
		for u.pushed() < len(want) && time.Now().Before(deadline) { // what was pushed last may be on its way
			wait(time.Millisecond)
		}
		u.mu.Lock()
		if !slices.Equal(u.pushes, want) || u.gaps > 0 {
			t.Errorf("client %d was pushed %d entries of %s, of %d that were added, and told of %d gaps; the first that is another is number %d",
				u.number, len(u.pushes), u.watched, len(want), u.gaps, differ(u.pushes, want))
		}
		u.mu.Unlock()
	}
}

func (g *gateClient) pushed() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.pushes)
}

// differ returns the first place at which a and b differ.
func differ(a, b []uint64) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
