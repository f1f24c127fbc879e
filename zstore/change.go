package zstore

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"zgame/zmsg"
)

// Limits that all drivers share.
const (
	// MaxID is the longest Key.ID, and the longest node id, in bytes.
	MaxID = 512
	// MaxDone is the most that a record's remembered requests may take together, in bytes: reply and origin, and
	// doneOverhead for each.
	MaxDone = 64 << 10
)

// doneOverhead is what a Done takes in a document besides its reply and its origin, rounded up for all encodings.
const doneOverhead = 48

// Op is a method of Store.
type Op uint8

// The methods.
const (
	OpRead Op = iota
	OpCreate
	OpClaim
	OpSave
	OpMove
	OpDelete
	OpScan
	OpPing

	numOps
)

var opNames = [numOps]string{"read", "create", "claim", "save", "move", "delete", "scan", "ping"}

// String returns the method's name in lower case, fit for a metric label.
func (o Op) String() string {
	if o < numOps {
		return opNames[o]
	}
	return "unknown"
}

// Writes reports whether the method writes.
func (o Op) Writes() bool { return o >= OpCreate && o <= OpDelete }

// Change is one write as a value: Create, Claim, Save, Move or Delete with its arguments. Apply is the whole meaning of
// a write, as a pure function; drivers whose server has a plain compare-and-set are a thin shell around it.
type Change struct {
	Op   Op
	Key  zmsg.Key
	Own  Own          // the owner that the record must have (not Create)
	Rev  uint64       // the revision that the record must have (not Create)
	Node zmsg.NodeRef // Create, Claim: who becomes the owner; Move: who gets it
	Write
	WID WriteID
}

// Do issues c once, by the method of s that Op names. It returns the record after the write; State and Done of it are
// c's own slices after a Save or Move, and so is Attachment.
func (c *Change) Do(ctx context.Context, s Store) (Record, error) {
	var err error
	next := c.next(Record{})
	switch c.Op {
	case OpCreate:
		return s.Create(ctx, c.Key, c.Node, c.Write, c.WID)
	case OpClaim:
		return s.Claim(ctx, c.Key, c.Own, c.Rev, c.Node, c.WID)
	case OpSave:
		next.Rev, err = s.Save(ctx, c.Key, c.Own, c.Rev, c.Write, c.WID)
	case OpMove:
		next.Own, next.Rev, err = s.Move(ctx, c.Key, c.Own, c.Rev, c.Write, c.Node, c.WID)
	case OpDelete:
		err = s.Delete(ctx, c.Key, c.Own, c.Rev, c.WID)
	default:
		return Record{}, fmt.Errorf("%w: %s is not a write", ErrInvalid, c.Op)
	}
	if err != nil {
		return Record{}, err
	}
	return next, nil
}

// Check reports what is wrong with c by itself: ErrInvalid for a key id that is empty, above MaxID or not UTF-8, for a
// zero WriteID, for a node with an epoch but no id (or an id as bad as such a key), for a Claim by nobody,
// and for an attachment of anything but a Move; ErrTooLarge for state and attachment above maxState, or remembered requests above
// MaxDone.
func (c *Change) Check(maxState int) error {
	if !c.Op.Writes() {
		return fmt.Errorf("%w: %s is not a write", ErrInvalid, c.Op)
	}
	err := errors.Join(CheckKey(c.Key), checkNode(c.Own.Node), checkNode(c.Node))
	if c.WID.IsZero() {
		err = errors.Join(err, fmt.Errorf("%w: the write id is zero; NewWriteID makes one", ErrInvalid))
	}
	if c.Op == OpClaim && c.Node.IsZero() {
		err = errors.Join(err, fmt.Errorf("%w: claim by nobody; Move gives ownership up", ErrInvalid))
	}
	if c.Op != OpMove && len(c.Attachment) > 0 {
		err = errors.Join(err, fmt.Errorf("%w: a %s has an attachment, which only a move may have", ErrInvalid, c.Op))
	}
	if err != nil {
		return err
	}
	if n := len(c.State) + len(c.Attachment); n > maxState {
		return fmt.Errorf("%w: state and attachment of %s have %d bytes, the limit is %d", ErrTooLarge, c.Key, n, maxState)
	}
	size := 0
	for i := range c.Done {
		size += c.Done[i].Size()
	}
	if size > MaxDone {
		return fmt.Errorf("%w: remembered requests of %s take %d bytes, the limit is %d", ErrTooLarge, c.Key, size, MaxDone)
	}
	return nil
}

// CheckKey returns ErrInvalid for a key whose id is empty, above MaxID bytes, or not UTF-8.
func CheckKey(k zmsg.Key) error {
	switch {
	case k.ID == "":
		return fmt.Errorf("%w: the key has no id", ErrInvalid)
	case len(k.ID) > MaxID:
		return fmt.Errorf("%w: the key's id has %d bytes, the limit is %d", ErrInvalid, len(k.ID), MaxID)
	case !utf8.ValidString(k.ID):
		return fmt.Errorf("%w: the key's id is not UTF-8", ErrInvalid)
	}
	return nil
}

// CheckOwner returns ErrInvalid for an owner that Scan cannot look for: nobody, or a node id that is malformed.
func CheckOwner(n zmsg.NodeRef) error {
	if n.IsZero() {
		return fmt.Errorf("%w: scan needs an owner", ErrInvalid)
	}
	return checkNode(n)
}

func checkNode(n zmsg.NodeRef) error {
	switch {
	case n.IsZero():
		return nil
	case n.ID == "":
		return fmt.Errorf("%w: a node has epoch %d but no id", ErrInvalid, n.Epoch)
	case len(n.ID) > MaxID || !utf8.ValidString(n.ID):
		return fmt.Errorf("%w: a node's id is longer than %d bytes or not UTF-8", ErrInvalid, MaxID)
	}
	return nil
}

// Apply decides what c does to the record cur; found says whether there is one (a tombstone counts). It returns the
// record after c and nil, or cur and the error. landed reports that cur is c's own result already: an earlier issue of
// the same write made it, nothing is left to write. Slices are shared with cur and c, not copied.
func (c *Change) Apply(cur Record, found bool) (next Record, landed bool, err error) {
	if found && c.made(&cur) {
		return cur, true, nil
	}
	switch {
	case c.Op == OpCreate:
		if found && !cur.Deleted {
			return cur, false, fmt.Errorf("%w: %s exists", ErrConflict, c.Key)
		}
	case c.Op == OpClaim && (!found || cur.Deleted):
		return cur, false, fmt.Errorf("%w: %s", ErrNotFound, c.Key)
	case !found || cur.Deleted:
		return cur, false, fmt.Errorf("%w: %s is not there", ErrConflict, c.Key)
	case cur.Own.Node != c.Own.Node || cur.Own.Version != c.Own.Version:
		return cur, false, fmt.Errorf("%w: %s is owned by %s since version %d, not by %s since %d",
			ErrConflict, c.Key, cur.Own.Node, cur.Own.Version, c.Own.Node, c.Own.Version)
	case cur.Rev != c.Rev:
		return cur, false, fmt.Errorf("%w: %s is at revision %d, not %d", ErrConflict, c.Key, cur.Rev, c.Rev)
	}
	return c.next(cur), false, nil
}

// next is the record after c. Of cur it uses what c does not say itself: Create takes version and revision of the
// tombstone, Claim keeps the state and what came with it.
func (c *Change) next(cur Record) Record {
	r := Record{Key: c.Key, Own: c.Own, Rev: c.Rev + 1, WID: c.WID}
	r.Own.Pending = false
	switch c.Op { //nolint:exhaustive // a Save changes no owner, the others are no writes
	case OpCreate:
		r.Own = Own{Node: c.Node, Version: cur.Own.Version + 1}
		r.Rev = cur.Rev + 1
	case OpClaim:
		r.Own = Own{Node: c.Node, Version: c.Own.Version + 1}
		r.Schema, r.State, r.Done, r.Attachment = cur.Schema, cur.State, cur.Done, cur.Attachment
		return r
	case OpMove:
		r.Own = Own{Node: c.Node, Version: c.Own.Version + 1, Pending: !c.Node.IsZero()}
	case OpDelete:
		r.Own = Own{Version: c.Own.Version + 1}
		r.Deleted = true
		return r
	}
	r.Schema, r.State, r.Done, r.Attachment = c.Schema, c.State, c.Done, c.Attachment
	return r
}

// made reports whether cur is what c made. The write id alone would do; the rest tells a caller who uses one id for two
// writes, which must not look like a success.
func (c *Change) made(cur *Record) bool {
	if cur.WID != c.WID {
		return false
	}
	if c.Op == OpCreate {
		return !cur.Deleted && cur.Own.Node == c.Node
	}
	want := c.next(Record{})
	return cur.Own == want.Own && cur.Rev == want.Rev && cur.Deleted == want.Deleted
}
