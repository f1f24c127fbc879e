package ztest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/zclient"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/ztest"
	"zgame/zuser"
)

// users is a cluster of three nodes, of which the first is a gate alone, all with the settings.
func users(t *testing.T, app znode.App, set func(s *znode.Settings), opts ...ztest.Option) *ztest.Nodes {
	t.Helper()
	return ztest.Cluster(t, 3, app, append(opts, ztest.Settings(func(k int, s *znode.Settings) {
		gateAlone(k, s)
		if set != nil {
			set(s)
		}
	}))...)
}

// closedBy waits until the client is closed for good, and returns why.
func closedBy(t *testing.T, l *zclient.Client) *zclient.Reason {
	t.Helper()
	ztest.Eventually(t, "the client is closed", func() bool { return l.State().Phase == zclient.Closed })
	return l.State().Reason
}

// dial connects a client that may be refused.
func dial(t *testing.T, c *ztest.Nodes, name string, k int) (*zclient.Client, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cl, err := zclient.Dial(ctx, zclient.Config{URL: c.Node(k).GateURL(), Token: name, RequestTimeout: patience})
	if err == nil {
		t.Cleanup(func() {
			_ = cl.Close()
			<-cl.Done()
		})
	}
	return cl, err
}

// line pushes a line of that number to a user, from node k.
func line(t *testing.T, c *ztest.Nodes, k int, user string, n uint64) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return c.Node(k).Users().Push(ctx, user, &chatpb.Line{Seq: n})
}

// sessionsOf asks node k for the sessions of a user: none where that cannot be told now.
func sessionsOf(t *testing.T, c *ztest.Nodes, k int, user string) []zmsg.SessionRef {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	refs, err := c.Node(k).Users().Sessions(ctx, user)
	if err != nil && !errors.Is(err, zuser.ErrNotInServer) {
		t.Logf("asking %v for %s: %v", c.Node(k).Self(), user, err)
	}
	return refs
}

// S2, S3: a second login at another gate replaces the first, whose late end does not touch it.
func TestSecondLoginReplaces(t *testing.T) {
	t.Parallel()
	c := users(t, none, nil)
	first := listen(t, c.Client("ann", 0))
	if err := line(t, c, 2, "ann", 1); err != nil {
		t.Fatal(err)
	}
	ztest.Eventually(t, "a push comes", func() bool { return len(first.heard()) == 1 })
	second := listen(t, c.Client("ann", 1))
	if r := closedBy(t, first.Client); r.Code != 3504 || r.Text == "" {
		t.Errorf("the first ended by %v", r)
	}
	ztest.Eventually(t, "one session is left", func() bool { return len(sessionsOf(t, c, 2, "ann")) == 1 })
	for n := range uint64(50) {
		if err := line(t, c, int(n%3), "ann", n+1); err != nil {
			t.Fatal(err)
		}
		ztest.Eventually(t, "a push comes", func() bool { return len(second.heard()) == int(n)+1 })
	}
	if got := sessionsOf(t, c, 0, "ann"); len(got) != 1 || got[0] != second.Session().Ref {
		t.Errorf("the directory has %v, not %v", got, second.Session().Ref)
	}
	if n := second.Stats().Connects; n != 1 || len(first.heard()) != 1 {
		t.Errorf("connected %d times; the first heard %v", n, first.heard())
	}
}

// However many logins of a user race at however many gates, one is left, and it is the one that is bound.
func TestLoginsRace(t *testing.T) {
	t.Parallel()
	c := users(t, none, nil)
	for round := range 15 {
		name := fmt.Sprint("user", round)
		var all [6]*listener
		var wg sync.WaitGroup
		for i := range all {
			wg.Go(func() {
				if cl, err := dial(t, c, name, i%3); err == nil {
					all[i] = listen(t, cl)
				} else if r := (*zclient.Reason)(nil); !errors.As(err, &r) || r.Code != 3504 {
					t.Errorf("login %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		var last *listener
		ztest.Eventually(t, "one is left", func() bool {
			n := 0
			for _, l := range all {
				if l != nil && l.State().Phase != zclient.Closed {
					n, last = n+1, l
				}
			}
			return n == 1 && len(sessionsOf(t, c, 0, name)) == 1
		})
		for _, l := range all {
			if l != nil && l != last && l.State().Reason.Code != 3504 {
				t.Errorf("one ended by %v", l.State().Reason)
			}
		}
		if got := sessionsOf(t, c, round%3, name); len(got) != 1 || got[0] != last.Session().Ref {
			t.Errorf("%s: the directory has %v, not %v", name, got, last.Session().Ref)
		}
		if err := line(t, c, round%3, name, 7); err != nil {
			t.Error(err)
		}
		ztest.Eventually(t, "a push comes", func() bool { return len(last.heard()) == 1 })
	}
}

// With reject the new login is turned away, until there is room.
func TestSecondLoginRejected(t *testing.T) {
	t.Parallel()
	c := users(t, none, func(s *znode.Settings) { s.Gate.SecondLogin, s.Gate.UserSessions = "reject", 2 })
	first, second := c.Client("ann", 0), c.Client("ann", 1)
	var r *zclient.Reason
	if _, err := dial(t, c, "ann", 2); !errors.As(err, &r) || r.Kind != zclient.KindRefused || r.Code != 3505 || r.Text == "" {
		t.Errorf("the third login: %v", err)
	}
	if len(sessionsOf(t, c, 0, "ann")) != 2 || first.State().Phase != zclient.Online || second.State().Phase != zclient.Online {
		t.Errorf("the directory has %v; %v, %v", sessionsOf(t, c, 0, "ann"), first.State(), second.State())
	}
	_ = first.Close() // the next login may come before the word of this end, by more than it waits for that on a busy machine
	ztest.Eventually(t, "there is room", func() bool { _, err := dial(t, c, "ann", 2); return err == nil })
}

// S4, S7: a kick from any node closes all sessions of a user, who reads code and text; pushes to who is not there say so, and make nothing.
func TestKickUser(t *testing.T) {
	t.Parallel()
	c := users(t, none, func(s *znode.Settings) { s.Gate.UserSessions = 3 })
	all := []*listener{listen(t, c.Client("ann", 0)), listen(t, c.Client("ann", 1)), listen(t, c.Client("ann", 2))}
	if err := line(t, c, 1, "ann", 5); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if n, err := c.Node(2).Users().Kick(ctx, "ann", 4001, "see you"); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for _, l := range all {
		if r := closedBy(t, l.Client); r.Code != 4001 || r.Text != "see you" {
			t.Errorf("kicked by %v", r)
		}
		<-l.Done() // the last handler has returned
		if got := l.heard(); len(got) != 1 || got[0] != 5 {
			t.Errorf("heard %v before", got)
		}
	}
	for k := range 3 {
		for _, name := range []string{"ann", "nobody"} {
			if err := line(t, c, k, name, 1); !errors.Is(err, zuser.ErrNotInServer) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
				t.Errorf("a push to %s: %v", name, err)
			}
		}
		if _, err := c.Node(k).Users().Kick(ctx, "nobody", 4001, ""); !errors.Is(err, zuser.ErrNotInServer) {
			t.Errorf("a kick of nobody: %v", err)
		}
	}
	if at := c.OwnerOf(zuser.Key("nobody")); at != -1 {
		t.Errorf("a push has made nobody an object at %d", at)
	}
}

// An actor and an object push to users by their Context, in order.
func TestPushUserFromActors(t *testing.T) {
	t.Parallel()
	app := none
	app.Setup = func(n *znode.Node) error {
		if n.Self().ID == "n1" {
			return nil
		}
		_, err := n.Spawn("", func() zactor.Actor {
			return &actor{handlers: []zactor.Handler{zactor.Handle(func(c *zactor.Context, req *chatpb.Say) (*chatpb.Said, error) {
				for i := range uint64(20) {
					if err := zuser.Push(c, req.GetRoom(), &chatpb.Line{Seq: i + 1}); err != nil {
						return nil, err
					}
				}
				return &chatpb.Said{}, zuser.Kick(c, req.GetText(), 4002, "out")
			}, zactor.FromClients())}}
		})
		return err
	}
	c := users(t, app, nil)
	ann, bob, eve := listen(t, c.Client("ann", 0)), listen(t, c.Client("bob", 1)), c.Client("eve", 2)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, to := range []string{"ann", "bob", "nobody"} {
		if err := ann.Request(ctx, &chatpb.Say{Room: to, Text: "eve"}, new(chatpb.Said)); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range []*listener{ann, bob} {
		ztest.Eventually(t, "all have come", func() bool { return len(l.heard()) >= 20 })
		if got := l.heard(); len(got) != 20 || got[19] != 20 || got[0] != 1 {
			t.Errorf("heard %v", got)
		}
	}
	if r := closedBy(t, eve); r.Code != 4002 {
		t.Errorf("kicked by %v", r)
	}
}

// The node of users' objects dies: the gates bind their sessions again, nobody is disconnected, a second login replaces the first as before.
func TestUsersOfAKilledOwner(t *testing.T) {
	t.Parallel()
	c := users(t, none, nil)
	const n = 12
	var all [n]*listener
	at := map[int]int{}
	for i := range all {
		name := fmt.Sprint("u", i)
		all[i] = listen(t, c.Client(name, 0))
		at[c.OwnerOf(zuser.Key(name))]++
	}
	if at[1] == 0 || at[2] == 0 || len(at) != 2 {
		t.Fatalf("the objects are at %v", at)
	}
	c.Kill(1)
	for i, l := range all {
		name := fmt.Sprint("u", i)
		ztest.Eventually(t, "the directory has him", func() bool {
			got := sessionsOf(t, c, 2, name)
			return len(got) == 1 && got[0] == l.Session().Ref
		})
		ztest.Eventually(t, "pushes come", func() bool { return line(t, c, 2, name, 1) == nil })
		ztest.Eventually(t, "a push comes", func() bool { return len(l.heard()) > 0 })
		if got := l.Stats().Connects; got != 1 {
			t.Errorf("%s connected %d times", name, got)
		}
	}
	again := c.Client("u3", 2)
	if r := closedBy(t, all[3].Client); r.Code != 3504 {
		t.Errorf("ended by %v", r)
	}
	if got := sessionsOf(t, c, 2, "u3"); len(got) != 1 || got[0] != again.Session().Ref {
		t.Errorf("the directory has %v", got)
	}
}

// The nodes of users' objects are replaced one by one: all pushes come, once and in order.
func TestUsersMove(t *testing.T) {
	t.Parallel()
	c := users(t, none, nil)
	const n = 6
	var all [n]*listener
	for i := range all {
		all[i] = listen(t, c.Client(fmt.Sprint("u", i), 0))
	}
	var sent [n]atomic.Uint64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				if err := line(t, c, 0, fmt.Sprint("u", i), sent[i].Load()+1); err != nil {
					t.Errorf("a push to u%d: %v", i, err)
					return
				}
				sent[i].Add(1)
			}
		})
	}
	for k := 1; k < 3; k++ {
		c.Restart(k)
	}
	close(stop)
	wg.Wait()
	for i, l := range all {
		ztest.Eventually(t, "all have come", func() bool { return len(l.heard()) >= int(sent[i].Load()) })
		for j, got := range l.heard() {
			if got != uint64(j)+1 {
				t.Fatalf("u%d heard %d as number %d", i, got, j+1)
			}
		}
		if l.missed() != 0 || l.Stats().Connects != 1 {
			t.Errorf("u%d: %d gaps, connected %d times", i, l.missed(), l.Stats().Connects)
		}
	}
}

// N8: a gate is killed. Its users are not there any more, which pushes say by a typed error; what is logged is bounded; who comes back at another
// gate is there.
func TestUsersOfAKilledGate(t *testing.T) {
	t.Parallel()
	log := &logLines{}
	c := users(t, none, nil, ztest.Logger(slog.New(log)))
	const n = 10
	for i := range n {
		c.Client(fmt.Sprint("u", i), 0)
	}
	c.Kill(0)
	for i := range n {
		ztest.Eventually(t, "he is not there", func() bool {
			return errors.Is(line(t, c, 1+i%2, fmt.Sprint("u", i), 1), zuser.ErrNotInServer)
		})
	}
	before := log.n.Load()
	for i := range 2000 {
		if err := line(t, c, 1+i%2, fmt.Sprint("u", i%n), 1); !errors.Is(err, zuser.ErrNotInServer) {
			t.Fatal(err)
		}
	}
	if got := log.n.Load() - before; got > 20 {
		t.Errorf("%d lines are logged for 2,000 pushes to nobody", got)
	}
	back := listen(t, c.Client("u1", 1))
	if err := line(t, c, 2, "u1", 1); err != nil {
		t.Error(err)
	}
	ztest.Eventually(t, "a push comes", func() bool { return len(back.heard()) == 1 })
}
