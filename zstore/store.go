package zstore

import (
	"context"

	"zgame/zmsg"
)

// Errors of a Store. Every error is one of these (wrapped), or a definite failure: this call wrote nothing. Where an
// earlier issue of the same write had an unknown outcome, "this call wrote nothing" says nothing about that one; see
// Resolve. Each wraps a *zmsg.Error, so that a handler may return it as it is: who asked then learns a code that says
// whether to try again, and that a write may have landed.
var (
	// ErrInvalid: the call is malformed (see Change.Check); nothing was sent.
	ErrInvalid error = &codedError{"zstore: invalid call", zmsg.Error{Code: zmsg.CodeInternal}}
	// ErrConflict: the record is not as the caller said (owner, route version, revision, or it exists already).
	ErrConflict error = &codedError{"zstore: conflict", zmsg.Error{Code: zmsg.CodeConflict, Text: "somebody else has written"}}
	// ErrNotFound: there is no record, or it is deleted.
	ErrNotFound error = &codedError{"zstore: not found", zmsg.Error{Code: zmsg.CodeNotFound}}
	// ErrUnknown: the write may have landed. Read, compare WID with the id of the write, then decide; or issue the
	// same write with the same WriteID again.
	ErrUnknown error = &codedError{
		"zstore: outcome unknown",
		zmsg.Error{Code: zmsg.CodeUnavailable, Outcome: zmsg.Unknown, Text: "the store did not say whether it has written"},
	}
	// ErrTooLarge: state and attachment are above MaxState, or the remembered requests above MaxDone; nothing was written.
	ErrTooLarge error = &codedError{"zstore: state above the store's limit", zmsg.Error{Code: zmsg.CodeTooLarge}}
	// ErrUnavailable: the store is not reachable; nothing was written.
	ErrUnavailable error = &codedError{
		"zstore: not reachable", zmsg.Error{Code: zmsg.CodeUnavailable, Outcome: zmsg.NotExecuted, Text: "the store is not reachable"},
	}
)

// codedError is an error of a Store: itself for errors.Is, and what a client is told.
type codedError struct {
	text string
	told zmsg.Error
}

// Error says what went wrong, for logs.
func (e *codedError) Error() string { return e.text }

// Unwrap returns what a client is told.
func (e *codedError) Unwrap() error { return &e.told }

// Own says who may write a record: a node's epoch, and the route version that rose when it became the owner.
// A zero Node is no owner.
//
// Where a write names the owner that it has seen, Pending is not compared: version and revision pin it.
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

// Size is what d counts of MaxDone.
func (d *Done) Size() int { return doneOverhead + len(d.Origin) + len(d.Reply) }

// Record is one object's document: ownership and state together, so that one compare-and-set guards both.
type Record struct {
	Key    zmsg.Key
	Own    Own
	Rev    uint64 // rises by one with each write, from 1; a deleted record keeps it, and Create goes on from there
	WID    WriteID
	Schema uint32 // version of the state's encoding
	State  []byte
	Done   []Done
	// Attachment is what the owner before handed over besides the state, with Move. It stays in the record through a Claim, and goes
	// with the next Save, Delete or Move, which has one of its own or none.
	Attachment []byte
	Deleted    bool
}

// Write is what Create, Save and Move put into a record.
type Write struct {
	Schema     uint32
	State      []byte
	Done       []Done
	Attachment []byte // of a Move alone; see Record
}

// Store keeps records. Every write is one atomic, durable compare-and-set. zstoretest holds drivers to it.
//
// A write that is issued again with the same WriteID gives the same result again, as long as nothing else was written
// to the record since; after that it gives ErrConflict, whether or not it once landed.
//
// Every method may fail with ErrInvalid. A context that is over before anything was sent gives the context's error;
// one that ends while a write is on its way gives ErrUnknown, which wraps the context's error too.
//
// All methods may be called from any goroutine. State slices are neither kept nor changed by the driver once the
// method has returned, and what it returns belongs to the caller.
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
	// one. It returns the record after the write. me must not be zero.
	// Errors: ErrConflict, ErrNotFound, ErrUnknown, ErrUnavailable.
	Claim(ctx context.Context, k zmsg.Key, seen Own, rev uint64, me zmsg.NodeRef, wid WriteID) (Record, error)
	// Save writes state, if owner and revision are exactly as given; it returns the new revision and clears
	// Pending. A record without an owner is saved with a zero me.Node.
	// Errors: ErrConflict (also where there is no record), ErrTooLarge, ErrUnknown, ErrUnavailable.
	Save(ctx context.Context, k zmsg.Key, me Own, rev uint64, w Write, wid WriteID) (uint64, error)
	// Move writes state and attachment, and hands ownership to another node (Pending), or to nobody where to is zero. Route
	// version and revision rise by one. Errors as Save.
	Move(ctx context.Context, k zmsg.Key, me Own, rev uint64, w Write, to zmsg.NodeRef, wid WriteID) (Own, uint64, error)
	// Delete leaves a tombstone: no state, no owner, route version and revision risen by one. Errors as Save.
	Delete(ctx context.Context, k zmsg.Key, me Own, rev uint64, wid WriteID) error
	// Scan calls yield once for every record that owner (the ID and the epoch) owns, in no order, until yield returns
	// false. What changes owner meanwhile may or may not be seen. yield must not call the store.
	// Errors: ErrUnavailable, ctx's.
	Scan(ctx context.Context, owner zmsg.NodeRef, yield func(zmsg.Key, Own) bool) error
	// Ping asks the server for a sign of life. Errors: ErrUnavailable, ctx's.
	Ping(ctx context.Context) error
	// MaxState is the largest state in bytes, an attachment included.
	MaxState() int
	// Close ends the driver's connections; every later call fails with ErrUnavailable. It may be called more than
	// once.
	Close(ctx context.Context) error
}
