package ztest_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"zgame/zactor"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/ztest"
)

// A second process with a node's id is refused, by the holder's address, as long as that answers; the holder does not notice.
func TestSecondProcessIsRefused(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	env, _ := servers(t)
	env = append(env, "ZGAME_NODE_ID=n1")
	n := here(ctx, t, append(env, "ZGAME_ADMIN_ADDRESS=127.0.0.1:0")...)
	before := n.Self()
	var said strings.Builder
	second := process(ctx, t, "mute", env...)
	second.Stderr = &said
	err := second.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
		t.Errorf("the second process ended with %v, want exit code 1", err)
	}
	for _, want := range []string{"n1", "taken", n.AdminAddr()} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, said.String())
		}
	}
	if n.Self() != before || n.Ready(ctx) != nil {
		t.Errorf("the holder: %v, %v", n.Self(), n.Ready(ctx))
	}
}

// E10: somebody deletes a node's key by hand. It is a member again, with a new epoch, once, and what it runs goes on.
func TestOwnKeyIsDeleted(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 2, none, ztest.RealServers(), ztest.Settings(func(k int, s *znode.Settings) {
		quick(k, s)
		s.Etcd.Lease = 5 * time.Second // it is waited for: the record goes at once, the lease with its time
	}))
	a, b := c.Node(0), c.Node(1)
	if _, err := a.Spawn("service", func() zactor.Actor { return &counts{} }); err != nil {
		t.Fatal(err)
	}
	raw, err := clientv3.New(clientv3.Config{Endpoints: a.Settings().Etcd.Endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	byID := b.Group().ByID()
	for range 2 {
		ztest.Eventually(t, "b routes to a", func() bool { _, err := asked(t, byID); return err == nil })
		before := a.Self()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if r, err := raw.Delete(ctx, "/zgame/nodes/n1"); err != nil || r.Deleted != 1 {
			t.Fatalf("%d keys deleted, %v", r.Deleted, err)
		}
		ztest.Eventually(t, "a is somebody new", func() bool {
			count := map[string]int{}
			for _, n := range b.Nodes() {
				count[n.Ref.ID]++
			}
			if count["n1"] > 1 || count["n2"] != 1 {
				t.Errorf("the list has %v", count)
			}
			return a.Self().Epoch > before.Epoch
		})
		c.Settle()
		ztest.Eventually(t, "b knows the new a only", knowsAs(b, a))
		leases, err := raw.Leases(ctx)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%v was deleted, %v is there; %d leases", before, a.Self(), len(leases.Leases))
	}
	ztest.Eventually(t, "the leases of the deleted have ended", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		leases, err := raw.Leases(ctx)
		return err == nil && len(leases.Leases) == 2
	})
	if got := a.Self(); got == (zmsg.NodeRef{}) || len(b.Nodes()) != 2 {
		t.Errorf("%v of %d nodes", got, len(b.Nodes()))
	}
}
