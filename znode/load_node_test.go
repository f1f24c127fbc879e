package znode_test

import (
	"testing"
	"time"

	"zgame/zdiscovery"
	"zgame/znode"
)

// What the settings say about a node, and how busy it is, reaches the others.
func TestRecordOfANode(t *testing.T) {
	r := newRig()
	cfg := r.config("a", znode.App{Load: func(*znode.Node) uint32 { return 700 }})
	cfg.Settings.Node.Zone, cfg.Settings.Node.Weight, cfg.Settings.Node.Version = "z1", 50, "v7"
	cfg.Settings.Node.Labels, cfg.Settings.Node.LoadInterval = []string{"disk=fast"}, time.Second
	start(t, cfg)
	plain := r.config("b", znode.App{})
	plain.Settings.Node.LoadInterval = 0
	start(t, plain)
	watch, err := r.disc.Discovery().Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	limit := time.After(patience)
	for {
		var s *zdiscovery.Snapshot
		select {
		case s = <-watch:
		case <-limit:
			t.Fatal("the load is not announced")
		}
		a, b := s.Nodes[0], s.Nodes[1]
		if a.Zone != "z1" || a.Weight != 50 || a.Version != "v7" || a.Labels["disk"] != "fast" || a.State != zdiscovery.Ready {
			t.Fatalf("got %+v", a)
		}
		if b.Weight != zdiscovery.DefaultWeight || b.Version != znode.Version() || b.Load != 0 {
			t.Fatalf("got %+v", b)
		}
		if a.Load == 700 {
			return
		}
	}
}
