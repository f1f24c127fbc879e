package friend_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/examples/friend"
	"zgame/examples/friend/friendpb"
	"zgame/zclient"
	"zgame/znode"
	"zgame/ztest"
)

// window shortens how long a session waits for its client.
func window(seconds int) ztest.Option {
	return ztest.Settings(func(_ int, s *znode.Settings) { s.Gate.ResumeWindow = time.Duration(seconds) * time.Second })
}

// Five hundred users do whatever they like to each other, while nodes die and come back: in the end, for every two of them, both lists say the same.
func TestBots(t *testing.T) {
	t.Parallel()
	const users, each, near, kills = 500, 12, 8, 4
	c := ztest.Cluster(t, 4, friend.App(), ztest.Settings(func(k int, s *znode.Settings) {
		if k == 0 {
			s.Logic.Router.Hosts = nil // a gate alone, which stays
		}
	}))
	name := func(i int) string { return fmt.Sprint("u", (i+users)%users) }
	clients := make([]*zclient.Client, users)
	for i := range clients {
		clients[i] = c.Client(name(i), 0)
	}
	var ran, failed atomic.Int64
	var wg sync.WaitGroup
	for i, cl := range clients {
		r := rand.New(rand.NewPCG(7, uint64(i))) //nolint:gosec // a test's chance
		wg.Go(func() {
			for range each {
				other := name(i + 1 + r.IntN(near) - r.IntN(2)*(near+1))
				var req proto.Message
				switch r.IntN(8) {
				case 0, 1, 2:
					req = &friendpb.Add{User: other}
				case 3, 4:
					req = &friendpb.Accept{User: other}
				case 5:
					req = &friendpb.Remove{User: other}
				case 6:
					req = &friendpb.Block{User: other}
				case 7:
					req = &friendpb.Unblock{User: other}
				}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // as long as a machine that does much else may need
				if err := cl.Request(ctx, req, nil); err == nil {
					ran.Add(1)
				} else {
					failed.Add(1) // nobody has asked, or the node is dead: what is unknown may have run
				}
				cancel()
				select { // people take their time
				case <-time.After(time.Duration(r.IntN(150)) * time.Millisecond):
				case <-t.Context().Done():
				}
			}
		})
	}
	for i := range kills {
		k := 1 + i%3
		c.Kill(k)
		c.Start(k)
	}
	wg.Wait()
	t.Logf("%d requests ran, %d did not, or are unknown", ran.Load(), failed.Load())
	if ran.Load() < users {
		t.Error("too few requests ran to prove anything")
	}

	lists := make([]map[string]friendpb.Status, users)
	load := func() (ok bool) {
		var wg sync.WaitGroup
		var bad atomic.Bool
		for i, cl := range clients {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				answer, err := zclient.Call[friendpb.Entries](ctx, cl, &friendpb.List{})
				if err != nil {
					bad.Store(true)
					return
				}
				lists[i] = map[string]friendpb.Status{}
				for _, e := range answer.GetEntries() {
					lists[i][e.GetUser()] = e.GetStatus()
				}
			})
		}
		wg.Wait()
		return !bad.Load()
	}
	wrong := func() (faults []string) {
		for i := range users {
			for k := i + 1; k < users; k++ {
				a, b := lists[i][name(k)], lists[k][name(i)]
				if !agree(a, b) {
					faults = append(faults, fmt.Sprintf("%s: %v, %s: %v", name(i), a, name(k), b))
				}
			}
		}
		return faults
	}
	var faults []string
	deadline := time.Now().Add(3 * time.Minute)
	for {
		ok := load()
		if faults = wrong(); ok && len(faults) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d pairs do not agree: %q", len(faults), faults[:min(5, len(faults))])
		}
	}
	var count int
	for _, l := range lists {
		for _, s := range l {
			if s == friends {
				count++
			}
		}
	}
	if count < users/4 || count%2 != 0 {
		t.Errorf("%d friendships, counted from both sides", count)
	}
}

// agree reports that what two lists say of each other goes together. Who has blocked somebody is told nothing more, and tells nothing.
func agree(a, b friendpb.Status) bool {
	const blocked = friendpb.Status_STATUS_BLOCKED
	switch {
	case a == friends || b == friends:
		return a == b
	case a == blocked || b == blocked:
		return true
	case a == outgoing || a == incoming:
		return b == incoming+outgoing-a
	default:
		return b == none
	}
}
