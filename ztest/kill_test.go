package ztest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"zgame/examples/chat/chatpb"
	"zgame/internal/embedded"
	"zgame/zactor"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/ztest"
)

// killLease is the lease of nodes in processes of their own, which are killed.
const killLease = 3 * time.Second

// servers starts NATS and etcd, and returns the settings of nodes that use them.
func servers(t *testing.T) (env []string, etcd *embedded.Etcd) {
	t.Helper()
	nats, err := embedded.StartNATS(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nats.Stop)
	if etcd, err = embedded.StartEtcd(t.TempDir(), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Stop)
	return []string{
		"ZGAME_NATS_URL=" + nats.URL(), "ZGAME_ETCD_ENDPOINTS=http://" + etcd.Endpoint(), "ZGAME_ETCD_LEASE=" + killLease.String(),
		"ZGAME_NODE_LOCK_DIR=" + t.TempDir(),
		"ZGAME_STORE_DRIVER=kv", "ZGAME_GATE_ENABLED=false", "ZGAME_ADMIN_ADDRESS=", "ZGAME_PAGE_ADDRESS=",
	}, etcd
}

// here starts a node in this process, which is not to lose its lease on a busy machine.
func here(ctx context.Context, t *testing.T, env ...string) *znode.Node {
	t.Helper()
	s, err := znode.LoadSettings("", env)
	if err != nil {
		t.Fatal(err)
	}
	s.Etcd.Lease = patience
	n, err := znode.New(znode.Config{Settings: s, App: none})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Stop(context.Background()) })
	return n
}

// process starts a node in a process of its own, with one of nodeApps.
func process(ctx context.Context, t *testing.T, its string, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	other := exec.CommandContext(ctx, self)
	other.Env = append(append(os.Environ(), env...), asNode+"="+its)
	other.Stderr = os.Stderr
	return other
}

// withProcess starts the servers, a node n1 here, and a node n2 in a process of its own that runs one of nodeApps.
func withProcess(ctx context.Context, t *testing.T, its string) (n *znode.Node, other *exec.Cmd, etcd *embedded.Etcd) {
	t.Helper()
	env, etcd := servers(t)
	n = here(ctx, t, append(env, "ZGAME_NODE_ID=n1")...)
	other = process(ctx, t, its, append(env, "ZGAME_NODE_ID=n2")...)
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
	return n, other, etcd
}

// A process that is killed and started again on its machine has its id again at once, however long the old lease lasts: the lock of its
// predecessor is free.
func TestKilledProcessComesBack(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux says which boot of the machine a lock belongs to; elsewhere a node waits for the lease")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	env, _ := servers(t)
	env = append(env, "ZGAME_ETCD_LEASE=600s")
	n := here(ctx, t, append(env, "ZGAME_NODE_ID=n1")...)
	epoch := uint64(0)
	for range 3 {
		other := process(ctx, t, "mute", append(env, "ZGAME_NODE_ID=n2")...)
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
		ztest.Eventually(t, "n2 is there, under a new epoch", func() bool {
			for _, r := range n.Nodes() {
				if r.Ref.ID == "n2" && r.State == "ready" && r.Ref.Epoch > epoch {
					epoch = r.Ref.Epoch
					return true
				}
			}
			return false
		})
		if err := other.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = other.Wait()
	}
}

// withinLease tells how long after a kill something came: within the lease and the half second that etcd may see its end late, if the
// machine is not busy; the bound is for one that is.
func withinLease(t *testing.T, what string, since time.Time) {
	t.Helper()
	if took := time.Since(since); took > killLease+patience {
		t.Errorf("%s %v after the kill, with a lease of %v", what, took, killLease)
	} else {
		t.Logf("%s %v after the kill, with a lease of %v", what, took.Round(time.Millisecond), killLease)
	}
}

// Kill -9 of a node's process, with the real servers: its watchers and askers learn it when its lease ends, and what it watched
// is forgotten.
func TestWatchedProcessIsKilled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	n, other, _ := withProcess(ctx, t, "mute")
	watched := spawn(t, n, actor{})
	var target zactor.Ref
	ztest.Eventually(t, "n1 knows n2's actor", func() bool {
		for _, r := range n.Nodes() {
			if r.Ref.ID == "n2" && r.State == "ready" && len(r.Actors) == 1 {
				target = n.Group().Ref(zmsg.Address{Node: r.Ref, Actor: r.Actors[0].ID})
				return true
			}
		}
		return false
	})

	asked := make(chan error, 1)
	go func() { // ends with the outcome
		w := watched.Address()
		_, err := zactor.Ask[chatpb.Members](ctx, target, &chatpb.Who{Room: fmt.Sprint(w.Node.ID, " ", w.Node.Epoch, " ", w.Actor)})
		asked <- err
	}()
	ztest.Eventually(t, "n2 watches an actor of n1", watchesWith(n, 1))
	_, downs := watch(t, n, target)
	killed := time.Now()
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	isDown(t, downs, target, zactor.LostNode)
	withinLease(t, "Down came", killed)
	if err := <-asked; !errors.Is(err, zmsg.ErrNodeLost) || zmsg.OutcomeOf(err) != zmsg.Unknown {
		t.Errorf("the request ended with %v (%v), want node_lost, unknown", err, zmsg.OutcomeOf(err))
	}
	ztest.Eventually(t, "nothing is left", watchesWith(n, 0))
}

// P12, E11: kill -9 of the process that runs a singleton, beside 10,000 actors. It had one lease, with it go all of its keys, and the
// singleton runs again, in a later term.
func TestSingletonsProcessIsKilled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	n, other, etcd := withProcess(ctx, t, "crown")
	raw, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	leader := func(id string) func() bool {
		return func() bool { l, err := n.Leader(ctx, "crown"); return err == nil && l.Node.ID == id }
	}
	ztest.Eventually(t, "n2 leads", leader("n2"))
	if err := n.Singleton("crown", func(term uint64) zactor.Actor {
		return &actor{handlers: []zactor.Handler{
			zactor.Handle(func(*zactor.Context, *chatpb.Say) (*chatpb.Said, error) { return &chatpb.Said{Seq: term}, nil }),
		}}
	}); err != nil {
		t.Fatal(err)
	}
	term := func() (term uint64) {
		ztest.Eventually(t, "the singleton answers", func() bool {
			once, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			said, err := zactor.Ask[chatpb.Said](once, n.Group().ByID(), &chatpb.Say{})
			term = said.GetSeq()
			return err == nil
		})
		return term
	}
	keys := func(nodes int) func() bool { // for each node its record, its candidacy, one lease
		return func() bool {
			leases, err := raw.Leases(ctx)
			if err != nil {
				t.Fatal(err)
			}
			keys, err := raw.Get(ctx, "/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil {
				t.Fatal(err)
			}
			return len(leases.Leases) == nodes && keys.Count == int64(2*nodes)
		}
	}
	for _, r := range n.Nodes() { // actors that handle no message ids are nobody else's business
		if r.Ref.ID == "n2" && len(r.Actors) > 1 {
			t.Errorf("n2's record names %d actors", len(r.Actors))
		}
	}
	first := term()
	ztest.Eventually(t, "both campaign, under one lease each", keys(2))
	killed := time.Now()
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ztest.Eventually(t, "n1 leads", leader("n1"))
	withinLease(t, "n1 leads", killed)
	if second := term(); second <= first {
		t.Errorf("term %d after %d", second, first)
	}
	withinLease(t, "the singleton answers", killed)
	ztest.Eventually(t, "nothing is left", keys(1))
}
