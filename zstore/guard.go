package zstore

import (
	"context"
	"fmt"
	"runtime/debug"

	"zgame/zmsg"
)

// Guard returns a store that does what s does, but for panics of what reads and writes records: of a write they are ErrUnknown, since nobody
// knows whether it landed; of Read and Scan ErrUnavailable. panicked is told each, with what the method panicked with and the stack; it is
// called on the goroutine of the call, and returns without waiting.
func Guard(s Store, panicked func(op Op, v any, stack []byte)) Store { return &guard{s, panicked} }

type guard struct {
	Store
	panicked func(Op, any, []byte)
}

// caught is deferred by each method: it makes an error of a panic, with the given sentinel.
func (g *guard) caught(op Op, sentinel error, err *error) {
	if v := recover(); v != nil {
		g.panicked(op, v, debug.Stack())
		*err = fmt.Errorf("%w: the store panicked in %s: %v", sentinel, op, v)
	}
}

func (g *guard) Read(ctx context.Context, k zmsg.Key) (rec Record, err error) {
	defer g.caught(OpRead, ErrUnavailable, &err)
	return g.Store.Read(ctx, k)
}

func (g *guard) Create(ctx context.Context, k zmsg.Key, me zmsg.NodeRef, w Write, wid WriteID) (rec Record, err error) {
	defer g.caught(OpCreate, ErrUnknown, &err)
	return g.Store.Create(ctx, k, me, w, wid)
}

func (g *guard) Claim(ctx context.Context, k zmsg.Key, seen Own, rev uint64, me zmsg.NodeRef, wid WriteID) (rec Record, err error) {
	defer g.caught(OpClaim, ErrUnknown, &err)
	return g.Store.Claim(ctx, k, seen, rev, me, wid)
}

func (g *guard) Save(ctx context.Context, k zmsg.Key, me Own, rev uint64, w Write, wid WriteID) (next uint64, err error) {
	defer g.caught(OpSave, ErrUnknown, &err)
	return g.Store.Save(ctx, k, me, rev, w, wid)
}

func (g *guard) Move(ctx context.Context, k zmsg.Key, me Own, rev uint64, w Write, to zmsg.NodeRef, wid WriteID) (own Own, next uint64, err error) {
	defer g.caught(OpMove, ErrUnknown, &err)
	return g.Store.Move(ctx, k, me, rev, w, to, wid)
}

func (g *guard) Delete(ctx context.Context, k zmsg.Key, me Own, rev uint64, wid WriteID) (err error) {
	defer g.caught(OpDelete, ErrUnknown, &err)
	return g.Store.Delete(ctx, k, me, rev, wid)
}

func (g *guard) Scan(ctx context.Context, owner zmsg.NodeRef, yield func(zmsg.Key, Own) bool) (err error) {
	defer g.caught(OpScan, ErrUnavailable, &err)
	return g.Store.Scan(ctx, owner, yield)
}
