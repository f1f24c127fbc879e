package chat_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"zgame/examples/chat"
	"zgame/examples/chat/chatpb"
	"zgame/zclient"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/zrouter"
	"zgame/ztest"
)

// S12 of known-faults.md: a room for two that is made by three who come at once, at two nodes, is one room, has two of them in it, and the third is told that it is full.
func TestRoomForTwo(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 2, chat.With(chat.Options{Members: 2}))
	var all []*zclient.Client
	for i := range 3 {
		all = append(all, c.Client(fmt.Sprint("user", i), i%2))
	}
	for round := range 40 {
		room := fmt.Sprint("room", round)
		come := 2 + round%2
		joined := make([]*chatpb.Joined, come)
		errs := make([]error, come)
		begin := make(chan struct{})
		var wg sync.WaitGroup
		for i := range come {
			wg.Go(func() {
				<-begin
				joined[i], errs[i] = zclient.Call[chatpb.Joined](t.Context(), all[i], &chatpb.Join{Room: room})
			})
		}
		close(begin)
		wg.Wait()
		var in []string
		nodes := map[string]bool{}
		for i := range come {
			switch {
			case errs[i] == nil:
				in = append(in, fmt.Sprint("user", i))
				nodes[joined[i].GetNode()] = true
			case zmsg.CodeOf(errs[i]) != zmsg.Code(chatpb.Code_CODE_FULL):
				t.Errorf("round %d: user%d: %v", round, i, errs[i])
			}
		}
		members := ztest.Call[chatpb.Members](t, all[0], &chatpb.Who{Room: room}).GetMembers()
		slices.Sort(members)
		if len(in) != 2 || len(nodes) != 1 || !slices.Equal(members, in) {
			t.Fatalf("round %d: of %d there are %v in, at %v; the room has %v", round, come, in, nodes, members)
		}
	}
}

// S12: however they come and go, a room has in it who came last and did not go.
func TestComingAndGoing(t *testing.T) {
	t.Parallel()
	const users, each = 8, 1250
	c := ztest.Cluster(t, 2, chat.App(), ztest.Settings(func(_ int, s *znode.Settings) { s.Gate.Rate, s.Gate.Burst = 1e6, 1e6 }))
	var in [users]bool
	var wg sync.WaitGroup
	for i := range users {
		cl, r := c.Client(fmt.Sprint("user", i), i%2), rand.New(rand.NewPCG(1, uint64(i)))
		wg.Go(func() {
			for range each {
				var err error
				if in[i] = r.IntN(2) == 0; in[i] {
					_, err = zclient.Call[chatpb.Joined](context.Background(), cl, &chatpb.Join{Room: "go"})
				} else {
					_, err = zclient.Call[chatpb.Left](context.Background(), cl, &chatpb.Leave{Room: "go"})
				}
				if err != nil && (in[i] || zmsg.CodeOf(err) != zmsg.CodeNotFound) { // nobody has been in the room yet
					t.Errorf("user%d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	var want []string
	for i := range users {
		if in[i] {
			want = append(want, fmt.Sprint("user", i))
		}
	}
	got := ztest.Call[chatpb.Members](t, c.Client("who", 0), &chatpb.Who{Room: "go"}).GetMembers()
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("in the room are %v, want %v", got, want)
	}
}

// S10: ten thousand times somebody looks into a room and leaves it; they are out of memory when their time is over, with all that they had: it is the same after the
// second time as after the first, but for the lines that the store has.
func TestEmptyRoomsGo(t *testing.T) {
	const rooms = 5_000
	c := ztest.Cluster(t, 1, chat.App(), ztest.Settings(func(_ int, s *znode.Settings) {
		s.Gate.Rate, s.Gate.Burst = 1e6, 1e6
		s.Logic.Router.Kinds = map[string]zrouter.Settings{"rooms": {ObjectFreeTimeout: time.Second, SaveDelay: time.Second}}
	}))
	ann := c.Client("ann", 0)
	ztest.Call[chatpb.Joined](t, ann, &chatpb.Join{Room: "home"})
	residents := c.Node(0).Status().Objects
	var base uint64
	var goroutines int
	for wave := range 2 {
		for i := range rooms {
			room := fmt.Sprint("room", i)
			ztest.Call[chatpb.Joined](t, ann, &chatpb.Join{Room: room})
			ztest.Call[chatpb.Left](t, ann, &chatpb.Leave{Room: room})
		}
		ztest.Eventually(t, "all are out of memory", func() bool { return c.Node(0).Status().Objects <= residents })
		runtime.GC()
		runtime.GC() // pools give what they have the second time
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if wave == 0 {
			base, goroutines = m.HeapAlloc, runtime.NumGoroutine()
			continue
		}
		if grown := int64(m.HeapAlloc) - int64(base); grown > rooms*400 {
			t.Errorf("%d bytes more for each room than before", grown/rooms)
		}
		if n := runtime.NumGoroutine(); n > goroutines+20 {
			t.Errorf("%d goroutines, and before %d", n, goroutines)
		}
		t.Logf("%d bytes for each room, then %d more", base/rooms, (int64(m.HeapAlloc)-int64(base))/rooms)
	}
}
