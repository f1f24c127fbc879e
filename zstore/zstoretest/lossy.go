package zstoretest

import (
	"context"
	"sync/atomic"

	"zgame/zmsg"
	"zgame/zstore"
)

// lossy loses the answers of two writes of three: the first is not even sent, the second lands.
type lossy struct {
	zstore.Store
	n atomic.Uint64
}

func (l *lossy) lose(write func() error) error {
	switch l.n.Add(1) % 3 {
	case 1:
		return zstore.ErrUnknown
	case 2:
		_ = write() // whatever came of it, the answer is lost
		return zstore.ErrUnknown
	default:
		return write()
	}
}

func (l *lossy) Create(ctx context.Context, k zmsg.Key, me zmsg.NodeRef, w zstore.Write, wid zstore.WriteID) (rec zstore.Record, err error) {
	err = l.lose(func() (err error) { rec, err = l.Store.Create(ctx, k, me, w, wid); return err })
	return rec, err
}

func (l *lossy) Claim(ctx context.Context, k zmsg.Key, seen zstore.Own, rev uint64, me zmsg.NodeRef, wid zstore.WriteID) (rec zstore.Record, err error) {
	err = l.lose(func() (err error) { rec, err = l.Store.Claim(ctx, k, seen, rev, me, wid); return err })
	return rec, err
}

func (l *lossy) Save(ctx context.Context, k zmsg.Key, me zstore.Own, rev uint64, w zstore.Write, wid zstore.WriteID) (n uint64, err error) {
	err = l.lose(func() (err error) { n, err = l.Store.Save(ctx, k, me, rev, w, wid); return err })
	return n, err
}

func (l *lossy) Move(ctx context.Context, k zmsg.Key, me zstore.Own, rev uint64, w zstore.Write, to zmsg.NodeRef, wid zstore.WriteID) (own zstore.Own, n uint64, err error) {
	err = l.lose(func() (err error) { own, n, err = l.Store.Move(ctx, k, me, rev, w, to, wid); return err })
	return own, n, err
}

func (l *lossy) Delete(ctx context.Context, k zmsg.Key, me zstore.Own, rev uint64, wid zstore.WriteID) error {
	return l.lose(func() error { return l.Store.Delete(ctx, k, me, rev, wid) })
}
