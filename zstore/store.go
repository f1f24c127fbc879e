package zstore

import (
	"context"
	"errors"

	"zgame/zmsg"
)

// Errors of a Store. Every error is one of these (wrapped), or a definite failure: nothing was written.
var (
	// ErrConflict: the record is not as the caller said (owner, route version, revision, or it exists already).
	ErrConflict = errors.New("zstore: conflict")
	// ErrNotFound: there is no record, or it is deleted.
	ErrNotFound = errors.New("zstore: not found")
	// ErrUnknown: the write may have landed. Read, compare WID with the id of the write, then decide; or issue the
	// same write with the same WriteID again.
	ErrUnknown = errors.New("zstore: outcome unknown")
	// ErrTooLarge: the state is above the driver's limit; nothing was written.
	ErrTooLarge = errors.New("zstore: state above the store's limit")
	// ErrUnavailable: the store is not reachable; nothing was written.
	ErrUnavailable = errors.New("zstore: not reachable")
)

// WriteID names one write, so that a writer who got no answer can find out whether it landed. Random, never zero.
type WriteID [16]byte

// Own says who may write a record: a node's epoch, and the route version that rose when it became the owner.
// A zero Node is no owner.
type Own struct {
	Node    zmsg.NodeRef
	Version zmsg.RouteVersion
	Pending bool // moved to Node, which has not confirmed yet
}

// Done is a request that the object has run, remembered with its state so that it is not run again.
type Done struct {
	Origin string // who asked
	Seq    uint64
	Reply  []byte
}

// Record is one object's document: ownership and state together, so that one compare-and-set guards both.
type Record struct {
	Key     zmsg.Key
	Own     Own
	Rev     uint64 // rises by one with each write, from 1
	WID     WriteID
	Schema  uint32 // version of the state's encoding
	State   []byte
	Done    []Done
	Deleted bool
}

// Write is what Save and Move put into a record.
type Write struct {
	Schema uint32
	State  []byte
	Done   []Done
}

// Store keeps records. Every write is one atomic, durable compare-and-set. zstoretest holds drivers to it.
// All methods may be called from any goroutine. State slices are neither kept nor changed by the driver, and what it
// returns belongs to the caller.
type Store interface {
	// Read returns the record, as fresh as the last acknowledged write of anybody. A deleted record is returned
	// with ErrNotFound (its Own.Version says where to go on). Errors: ErrNotFound, ErrUnavailable, ctx's.
	Read(ctx context.Context, k zmsg.Key) (Record, error)
	// Create makes the record with owner me, route version 1 (one more than the tombstone's if it was deleted),
	// revision 1 (likewise). me may be zero: nobody owns it yet. Errors: ErrConflict when it exists, ErrTooLarge,
	// ErrUnknown, ErrUnavailable.
	Create(ctx context.Context, k zmsg.Key, me zmsg.NodeRef, w Write, wid WriteID) (Record, error)
	// Claim makes me the owner, if owner and revision are exactly as seen; the caller has made sure that it may
	// (nobody owns it, or the owner's epoch is dead, or it is an earlier self). Route version and revision rise by
	// one. It returns the record after the write. Errors: ErrConflict, ErrNotFound, ErrUnknown, ErrUnavailable.
	Claim(ctx context.Context, k zmsg.Key, seen Own, rev uint64, me zmsg.NodeRef, wid WriteID) (Record, error)
	// Save writes state, if owner and revision are exactly as given; it returns the new revision and clears
	// Pending. Errors: ErrConflict, ErrTooLarge, ErrUnknown, ErrUnavailable.
	Save(ctx context.Context, k zmsg.Key, me Own, rev uint64, w Write, wid WriteID) (uint64, error)
	// Move writes state and hands ownership to another node (pending), or to nobody where to is zero. Route version
	// and revision rise by one. Errors as Save.
	Move(ctx context.Context, k zmsg.Key, me Own, rev uint64, w Write, to zmsg.NodeRef, wid WriteID) (Own, uint64, error)
	// Delete leaves a tombstone: no state, no owner, route version and revision risen by one. Errors as Save.
	Delete(ctx context.Context, k zmsg.Key, me Own, rev uint64, wid WriteID) error
	// Scan calls yield for every record that owner owns, in no order, until yield returns false. What changes
	// meanwhile may or may not be seen. Errors: ErrUnavailable, ctx's.
	Scan(ctx context.Context, owner zmsg.NodeRef, yield func(zmsg.Key, Own) bool) error
	// Ping asks the server for a sign of life. Errors: ErrUnavailable, ctx's.
	Ping(ctx context.Context) error
	// MaxState is the largest state in bytes.
	MaxState() int
	// Close ends the driver's connections. It may be called more than once.
	Close(ctx context.Context) error
}
