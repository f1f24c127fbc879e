package zmsg_test

import (
	"testing"

	"zgame/zmsg"
)

func TestSelf(t *testing.T) {
	t.Parallel()
	var s zmsg.Self
	if !s.Ref().IsZero() || s.Is(zmsg.NodeRef{}) {
		t.Error("a node without an identity is somebody")
	}
	s.Set(zmsg.NodeRef{ID: "n1", Epoch: 5})
	s.Set(zmsg.NodeRef{ID: "n1", Epoch: 9})
	if got, want := s.Ref(), (zmsg.NodeRef{ID: "n1", Epoch: 9}); got != want {
		t.Errorf("Ref is %v, want %v", got, want)
	}
	for ref, want := range map[zmsg.NodeRef]bool{
		{ID: "n1", Epoch: 9}: true, {ID: "n1", Epoch: 5}: true,
		{ID: "n1", Epoch: 4}:  false, // a process of the same id before this one
		{ID: "n1", Epoch: 10}: false,
		{ID: "n2", Epoch: 9}:  false,
	} {
		if got := s.Is(ref); got != want {
			t.Errorf("Is(%v) is %v, want %v", ref, got, want)
		}
	}
}
