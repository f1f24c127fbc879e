package zdiscovery

import (
	"slices"
	"strings"

	"zgame/zmsg"
)

// Gone reports whether s proves that ref never serves again: it joined before s, and is not on it any more. False says nothing: ref may
// have joined after s, or s may be nil. Once it is true it stays so with every later Snapshot.
//
// The proof rests on what Snapshot.Revision and Member.ServeUntil promise: by the end of its lease a node has stopped. A record that is deleted by
// hand while its node lives breaks it, until the node hears of that.
func Gone(ref zmsg.NodeRef, s *Snapshot) bool {
	if s == nil || ref.IsZero() || s.Revision < 0 || ref.Epoch > uint64(s.Revision) {
		return false
	}
	i, found := slices.BinarySearchFunc(s.Nodes, ref.ID, func(n Node, id string) int { return strings.Compare(n.Ref.ID, id) })
	if found && s.Nodes[i].Ref == ref {
		return false
	}
	return !slices.Contains(s.Unreadable, ref)
}
