package ztest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zclient"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/zrouter"
	"zgame/ztest"
	"zgame/zuser"
	"zgame/zuser/presencepb"
)

const followerType = 41

// followers are objects that note what they are told of their users.
type followers struct {
	mu   sync.Mutex
	told map[string][]*presencepb.Presence // guarded by mu
}

func (f *followers) app() znode.App {
	f.told = map[string][]*presencepb.Presence{}
	return znode.App{Name: "followers", Presence: []uint32{followerType}, Objects: func(*znode.Node) []zrouter.AnyKind {
		return []zrouter.AnyKind{zrouter.Kind[*chatpb.Members]{
			Type: followerType, Name: "followers", Version: 1,
			Create: func(zmsg.Key) (*chatpb.Members, error) { return &chatpb.Members{}, nil },
			Handlers: []zrouter.Handler[*chatpb.Members]{zrouter.HandleTell(func(_ *zrouter.Context[*chatpb.Members], p *presencepb.Presence) error {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.told[p.GetUser()] = append(f.told[p.GetUser()], p)
				return nil
			}, zrouter.ByKey())},
		}}
	}}
}

// heard is what was told of a user, without what came again, which the number says.
func (f *followers) heard(user string) (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := uint64(0)
	for _, p := range f.told[user] {
		if p.GetNumber() <= last {
			continue
		}
		last = p.GetNumber()
		now := "gone"
		if p.GetOnline() {
			now = "at " + p.GetNode()
		}
		if len(all) == 0 || all[len(all)-1] != now { // a new owner says anew what is so
			all = append(all, now)
		}
	}
	return all
}

func (f *followers) until(t *testing.T, user string, want ...string) {
	t.Helper()
	ztest.Eventually(t, fmt.Sprint(user, " is told of"), func() bool { return len(f.heard(user)) >= len(want) })
	if got := f.heard(user); !slices.Equal(got, want) {
		t.Fatalf("%s is told as %q, want %q", user, got, want)
	}
}

func presenceOf(t *testing.T, c *ztest.Nodes, k int, user string) (*presencepb.Presence, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return c.Node(k).Users().Presence(ctx, user)
}

// Users come and go: by a login, a goodbye, a connection that is lost for longer than the window, a kick, a second login elsewhere, another gate, a gate that dies. Each is told
// once, and can be asked for from every node.
func TestPresence(t *testing.T) {
	t.Parallel()
	var f followers
	const window = time.Second
	c := ztest.Cluster(t, 3, f.app(), ztest.Settings(func(k int, s *znode.Settings) {
		gateAlone(k, s)
		s.Gate.ResumeWindow = window
	}))
	if _, err := presenceOf(t, c, 0, "ann"); !errors.Is(err, zuser.ErrNotInServer) {
		t.Errorf("nobody knows ann: %v", err)
	}
	ann := c.Client("ann", 0)
	f.until(t, "ann", "at n1")
	for k := range 3 {
		if p, err := presenceOf(t, c, k, "ann"); err != nil || !p.GetOnline() || p.GetNode() != "n1" || p.GetSinceMs() == 0 {
			t.Errorf("from node %d: %v, %v", k, p, err)
		}
	}
	_ = ann.Close()
	f.until(t, "ann", "at n1", "gone")
	if p, err := presenceOf(t, c, 1, "ann"); err != nil || p.GetOnline() || p.GetSinceMs() == 0 {
		t.Errorf("when she has gone: %v, %v", p, err)
	}

	bob, w := wired(t, c, "bob", 1)
	f.until(t, "bob", "at n2")
	for i := range 5 { // breaks that nobody hears of
		if err := bob.Request(t.Context(), &chatpb.Who{}, nil); !errors.Is(err, zmsg.ErrNoRoute) { // it has its token
			t.Error(err)
		}
		w.cut(false)
		ztest.Eventually(t, "bob is back", func() bool { return bob.Stats().Connects > uint64(i+1) })
	}
	w.cut(true)
	f.until(t, "bob", "at n2", "gone")

	cyd := c.Client("cyd", 0)
	f.until(t, "cyd", "at n1")
	c.Client("cyd", 2)
	f.until(t, "cyd", "at n1", "at n3")
	if r := closedBy(t, cyd); r.Code != 3504 {
		t.Errorf("the first cyd ended by %v", r)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if n, err := c.Node(1).Users().Kick(ctx, "cyd", 4001, ""); n != 1 || err != nil {
		t.Errorf("kicked %d, %v", n, err)
	}
	f.until(t, "cyd", "at n1", "at n3", "gone")

	fay := roam(t, c, "fay", 1) // her session goes from gate to gate
	f.until(t, "fay", "at n2")
	if err := fay.Request(t.Context(), &chatpb.Who{}, nil); !errors.Is(err, zmsg.ErrNoRoute) { // she has her token
		t.Error(err)
	}
	fay.lead(c, 0)
	f.until(t, "fay", "at n2", "at n1")

	c.Client("dan", 2)
	c.Client("eve", 0)
	f.until(t, "dan", "at n3")
	f.until(t, "eve", "at n1")
	c.Kill(2) // dan's gate, and the owner of some of these users
	f.until(t, "dan", "at n3", "gone")
	c.Restart(1)
	if got := f.heard("eve"); !slices.Equal(got, []string{"at n1"}) {
		t.Errorf("eve, whose gate lives, was told as %v", got)
	}
}

// Fifty logins of one user at two gates at once: one session is bound, and everybody else is told why.
func TestFiftyLoginsAtOnce(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"replace", "reject"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			c := users(t, none, func(s *znode.Settings) { s.Gate.SecondLogin = policy })
			const n = 50
			want := 3504
			if policy == "reject" {
				want = 3505
			}
			var all [n]*zclient.Client
			var wg sync.WaitGroup
			begin := make(chan struct{})
			for i := range all {
				wg.Go(func() {
					<-begin
					cl, err := dial(t, c, "ann", i%2)
					if r := (*zclient.Reason)(nil); err != nil && (!errors.As(err, &r) || r.Code != want || r.Text == "") {
						t.Errorf("login %d: %v", i, err)
					}
					if err == nil {
						all[i] = cl
					}
				})
			}
			close(begin)
			wg.Wait()
			var left *zclient.Client
			ztest.Eventually(t, "one is left", func() bool {
				open := 0
				for _, cl := range all {
					if cl != nil && cl.State().Phase != zclient.Closed {
						open, left = open+1, cl
					}
				}
				return open == 1
			})
			for i, cl := range all {
				if cl != nil && cl != left {
					if r := cl.State().Reason; r == nil || r.Code != want || r.Text == "" {
						t.Errorf("login %d ended by %v", i, r)
					}
				}
			}
			ztest.Eventually(t, "the directory has that one alone", func() bool {
				got := sessionsOf(t, c, 2, "ann")
				return len(got) == 1 && got[0] == left.Session().Ref
			})
		})
	}
}
