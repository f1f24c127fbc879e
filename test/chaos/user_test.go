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
	"zgame/test/chaos/oracle"
	"zgame/zclient"
	"zgame/zmsg"
)

// gateClient asks through the gate, and is pushed each entry that it appends.
type gateClient struct {
	number int
	*zclient.Client

	given atomic.Uint64 // requests that ended before their response could come

	mu     sync.Mutex
	pushes map[string][]uint64 // by list, as they came; guarded by mu
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
	g := &gateClient{number: number, Client: c, pushes: map[string][]uint64{}}
	zclient.On(c, func(a *chaospb.Added) {
		g.mu.Lock()
		g.pushes[a.GetList()] = append(g.pushes[a.GetList()], a.GetOp())
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

// connected fails the test where a client of the gate was disconnected, or a push to it was lost, doubled or swapped. The load has
// ended, and there was nothing that might excuse it.
func (l *load) connected(t *testing.T) {
	t.Helper()
	for _, u := range l.users {
		if n := u.Stats().Connects; n != 1 {
			t.Errorf("client %d has connected %d times", u.number, n)
		}
		want := map[string][]uint64{}
		for _, o := range l.ops {
			if o.Client == u.number && o.Append != 0 && o.Outcome == oracle.OK {
				want[o.Key] = append(want[o.Key], o.Append)
			}
		}
		for key, ops := range want { // a push goes before the answer, but its handler may still be at work
			deadline := time.Now().Add(patience)
			for u.count(key) < len(ops) && time.Now().Before(deadline) {
				wait(time.Millisecond)
			}
			u.mu.Lock()
			if got := u.pushes[key]; !slices.Equal(got, ops) {
				t.Errorf("client %d was pushed the entries %x of %s, and has appended %x", u.number, got, key, ops)
			}
			u.mu.Unlock()
		}
	}
}

func (g *gateClient) count(key string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.pushes[key])
}
