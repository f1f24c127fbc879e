package zdiscovery_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"zgame/zdiscovery"
	"zgame/zmsg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func node(id string, epoch uint64, state zdiscovery.State) zdiscovery.Node {
	return zdiscovery.Node{Ref: zmsg.NodeRef{ID: id, Epoch: epoch}, State: state}
}

func list(nodes ...zdiscovery.Node) *zdiscovery.Snapshot { return &zdiscovery.Snapshot{Nodes: nodes} }

func TestDiff(t *testing.T) {
	t.Parallel()
	a1, a2, b1, b1r, c1 := node("a", 1, "ready"), node("a", 2, "ready"), node("b", 1, "starting"), node("b", 1, "ready"), node("c", 1, "ready")
	for _, tt := range []struct {
		name                  string
		old, new              *zdiscovery.Snapshot
		joined, left, changed string
	}{
		{"nothing", nil, nil, "", "", ""},
		{"first", nil, list(a1, b1), "a1 b1", "", ""},
		{"all go", list(a1, b1), list(), "", "a1 b1", ""},
		{"same", list(a1, b1), list(a1, b1), "", "", ""},
		{"changed", list(a1, b1), list(a1, b1r), "", "", "b1"},
		{"restart", list(a1, b1), list(a2, b1), "a2", "a1", ""},
		{"all at once", list(a1, b1), list(a2, b1r, c1), "a2 c1", "a1", "b1"},
	} {
		joined, left, changed := zdiscovery.Diff(tt.old, tt.new)
		if names(joined) != tt.joined || names(left) != tt.left || names(changed) != tt.changed {
			t.Errorf("%s: joined %q left %q changed %q", tt.name, names(joined), names(left), names(changed))
		}
	}
}

func names(nodes []zdiscovery.Node) string {
	var s []string
	for _, n := range nodes {
		s = append(s, fmt.Sprintf("%s%d", n.Ref.ID, n.Ref.Epoch))
	}
	return strings.Join(s, " ")
}

// TestDiffAgainstMaps compares with the plain way to do it.
func TestDiffAgainstMaps(t *testing.T) {
	t.Parallel()
	snapshot := rapid.Custom(func(t *rapid.T) *zdiscovery.Snapshot {
		s := &zdiscovery.Snapshot{}
		for id := 'a'; id < 'h'; id++ {
			if rapid.Bool().Draw(t, "present") {
				s.Nodes = append(s.Nodes, node(string(id), rapid.Uint64Range(1, 2).Draw(t, "epoch"),
					rapid.SampledFrom([]zdiscovery.State{"ready", "draining"}).Draw(t, "state")))
			}
		}
		return s
	})
	rapid.Check(t, func(t *rapid.T) {
		old, new := snapshot.Draw(t, "old"), snapshot.Draw(t, "new")
		joined, left, changed := zdiscovery.Diff(old, new)
		before, after := make(map[zmsg.NodeRef]zdiscovery.Node), make(map[zmsg.NodeRef]zdiscovery.Node)
		for _, n := range old.Nodes {
			before[n.Ref] = n
		}
		for _, n := range new.Nodes {
			after[n.Ref] = n
		}
		var wantJoined, wantLeft, wantChanged []zdiscovery.Node
		for _, n := range new.Nodes {
			if o, ok := before[n.Ref]; !ok {
				wantJoined = append(wantJoined, n)
			} else if o.State != n.State {
				wantChanged = append(wantChanged, n)
			}
		}
		for _, n := range old.Nodes {
			if _, ok := after[n.Ref]; !ok {
				wantLeft = append(wantLeft, n)
			}
		}
		if names(joined) != names(wantJoined) || names(left) != names(wantLeft) || names(changed) != names(wantChanged) {
			t.Fatalf("joined %v left %v changed %v", joined, left, changed)
		}
	})
}

func TestTakenError(t *testing.T) {
	t.Parallel()
	var err error = &zdiscovery.TakenError{Holder: zdiscovery.Node{Ref: zmsg.NodeRef{ID: "n", Epoch: 3}, State: zdiscovery.Ready, Admin: "10.0.0.1:9090"}}
	if !errors.Is(err, zdiscovery.ErrTaken) || !strings.Contains(err.Error(), "10.0.0.1:9090") || !strings.Contains(err.Error(), `"n"`) {
		t.Error(err)
	}
}

func TestLatestKeepsTheNewest(t *testing.T) {
	t.Parallel()
	l := zdiscovery.NewLatest()
	for i := range int64(3) {
		l.Put(&zdiscovery.Snapshot{Revision: i})
	}
	if s := <-l; s.Revision != 2 {
		t.Errorf("revision %d, want the newest", s.Revision)
	}
	select {
	case s := <-l:
		t.Errorf("an older one was kept: %d", s.Revision)
	default:
	}
}
