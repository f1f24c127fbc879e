package zmsg

import "sync/atomic"

// Self is a node's own identity. It changes while the node runs when the node lost its place in the cluster and joined
// again: the id stays, the epoch rises. All methods may be called from any goroutine; Set before the others.
type Self struct {
	first uint64 // epoch of the process' first join
	now   atomic.Pointer[NodeRef]
}

// Set makes ref the identity, for the first time or after joining again, when its epoch is greater and its ID the same.
func (s *Self) Set(ref NodeRef) {
	if s.now.Load() == nil {
		s.first = ref.Epoch
	}
	s.now.Store(&ref)
}

// Ref returns the identity as it is now, zero before Set.
func (s *Self) Ref() NodeRef {
	if n := s.now.Load(); n != nil {
		return *n
	}
	return NodeRef{}
}

// Is reports whether ref is this process: its identity as it is now, or one it had before. An address of the process may
// have been kept from before.
func (s *Self) Is(ref NodeRef) bool {
	n := s.now.Load()
	return n != nil && ref.Epoch <= n.Epoch && ref.Epoch >= s.first && ref.ID == n.ID
}
