package zstore

import (
	"context"

	"zgame/zmsg"
)

// Writer makes the five writing methods of Store out of one function that takes a write as a value; drivers embed it. It
// is called from any goroutine.
type Writer func(ctx context.Context, c *Change) (Record, error)

// Create implements Store.
func (w Writer) Create(ctx context.Context, k zmsg.Key, me zmsg.NodeRef, write Write, wid WriteID) (Record, error) {
	return w(ctx, &Change{Op: OpCreate, Key: k, Node: me, Write: write, WID: wid})
}

// Claim implements Store.
func (w Writer) Claim(ctx context.Context, k zmsg.Key, seen Own, rev uint64, me zmsg.NodeRef, wid WriteID) (Record, error) {
	return w(ctx, &Change{Op: OpClaim, Key: k, Own: seen, Rev: rev, Node: me, WID: wid})
}

// Save implements Store.
func (w Writer) Save(ctx context.Context, k zmsg.Key, me Own, rev uint64, write Write, wid WriteID) (uint64, error) {
	rec, err := w(ctx, &Change{Op: OpSave, Key: k, Own: me, Rev: rev, Write: write, WID: wid})
	return rec.Rev, err
}

// Move implements Store.
func (w Writer) Move(ctx context.Context, k zmsg.Key, me Own, rev uint64, write Write, to zmsg.NodeRef, wid WriteID) (Own, uint64, error) {
	rec, err := w(ctx, &Change{Op: OpMove, Key: k, Own: me, Rev: rev, Write: write, Node: to, WID: wid})
	return rec.Own, rec.Rev, err
}

// Delete implements Store.
func (w Writer) Delete(ctx context.Context, k zmsg.Key, me Own, rev uint64, wid WriteID) error {
	_, err := w(ctx, &Change{Op: OpDelete, Key: k, Own: me, Rev: rev, WID: wid})
	return err
}
