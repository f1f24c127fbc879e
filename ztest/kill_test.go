package ztest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/internal/embedded"
	"zgame/zactor"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/ztest"
)

// Kill -9 of a node's process, with the real servers: its watchers and askers learn it when its lease ends, and what it watched
// is forgotten.
func TestWatchedProcessIsKilled(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	nats, err := embedded.StartNATS(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nats.Stop)
	etcd, err := embedded.StartEtcd(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Stop)
	env := []string{
		"ZGAME_NATS_URL=" + nats.URL(), "ZGAME_ETCD_ENDPOINTS=http://" + etcd.Endpoint(), "ZGAME_ETCD_LEASE=" + lease.String(),
		"ZGAME_STORE_DRIVER=kv", "ZGAME_GATE_ENABLED=false", "ZGAME_ADMIN_ADDRESS=", "ZGAME_PAGE_ADDRESS=",
	}
	s, err := znode.LoadSettings("", append(env, "ZGAME_NODE_ID=n1"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := znode.New(znode.Config{Settings: s, App: none})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	if err := n.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Stop(context.Background()) })

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	other := exec.CommandContext(ctx, self)
	other.Env = append(append(os.Environ(), env...), asNode+"=1", "ZGAME_NODE_ID=n2")
	other.Stderr = os.Stderr
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
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
	// Etcd sees the end of a lease up to half a second late; the bound leaves room for a busy machine.
	if took := time.Since(killed); took > lease+10*time.Second {
		t.Errorf("Down came %v after the kill, with a lease of %v", took, lease)
	} else {
		t.Logf("Down came %v after the kill, with a lease of %v", took.Round(time.Millisecond), lease)
	}
	if err := <-asked; !errors.Is(err, zmsg.ErrNodeLost) || zmsg.OutcomeOf(err) != zmsg.Unknown {
		t.Errorf("the request ended with %v (%v), want node_lost, unknown", err, zmsg.OutcomeOf(err))
	}
	ztest.Eventually(t, "nothing is left", watchesWith(n, 0))
}
