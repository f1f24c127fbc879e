//go:build linux

package main

import (
	"context"

	"zgame/test/chaos/seam"
	"zgame/zmsg"
	"zgame/zstore"
)

// steppedStore tells the seam of the writes that change owners, before and after.
type steppedStore struct {
	zstore.Store

	seam *seam.Process
}

func (s *steppedStore) Claim(ctx context.Context, k zmsg.Key, seen zstore.Own, rev uint64, me zmsg.NodeRef, wid zstore.WriteID) (zstore.Record, error) {
	s.seam.Reach(seam.Claim, k.ID)
	defer s.seam.Reach(seam.Claimed, k.ID)
	return s.Store.Claim(ctx, k, seen, rev, me, wid)
}

func (s *steppedStore) Move(ctx context.Context, k zmsg.Key, me zstore.Own, rev uint64, w zstore.Write, to zmsg.NodeRef, wid zstore.WriteID) (zstore.Own, uint64, error) {
	s.seam.Reach(seam.Move, k.ID)
	defer s.seam.Reach(seam.Moved, k.ID)
	return s.Store.Move(ctx, k, me, rev, w, to, wid)
}
