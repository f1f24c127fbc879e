package zdiscovery_test

import (
	"testing"

	"zgame/zdiscovery"
	"zgame/zmsg"
)

func TestGone(t *testing.T) {
	t.Parallel()
	s := &zdiscovery.Snapshot{
		Revision: 20, Nodes: []zdiscovery.Node{node("a", 5, "ready"), node("b", 20, "draining"), node("d", 7, "ready")},
		Unreadable: []zmsg.NodeRef{{ID: "c", Epoch: 9}},
	}
	for _, tt := range []struct {
		id    string
		epoch uint64
		gone  bool
	}{
		{"a", 5, false},
		{"a", 4, true},
		{"a", 20, true},  // it came and went, after the one that is listed
		{"a", 21, false}, // it may have joined after the list
		{"b", 20, false},
		{"b", 19, true},
		{"c", 9, false}, // there, with a record of a newer version
		{"c", 8, true},
		{"e", 20, true},
		{"e", 21, false},
		{"", 0, false},
	} {
		if got := zdiscovery.Gone(zmsg.NodeRef{ID: tt.id, Epoch: tt.epoch}, s); got != tt.gone {
			t.Errorf("%s of epoch %d: gone is %v", tt.id, tt.epoch, got)
		}
	}
	if zdiscovery.Gone(zmsg.NodeRef{ID: "a", Epoch: 1}, nil) {
		t.Error("gone without a list")
	}
}
