package zmsg

import (
	"encoding/hex"
	"fmt"
	"strconv"

	"zgame/zmsg/wirepb"
)

// NodeRef names one start of one node. Epoch is new at every start of the same ID and greater than all before, so a
// node that came back is never taken for its predecessor. The zero NodeRef is no node.
type NodeRef struct {
	ID    string
	Epoch uint64
}

// IsZero reports whether n names no node.
func (n NodeRef) IsZero() bool { return n == NodeRef{} }

// String returns ID@epoch in base 36, for logs.
func (n NodeRef) String() string {
	if n.IsZero() {
		return "-"
	}
	return n.ID + "@" + strconv.FormatUint(n.Epoch, 36)
}

// Address is the place of an actor: a node and the actor's id on it. The zero Address is nobody.
type Address struct {
	Node  NodeRef
	Actor uint64
}

// IsZero reports whether a is nobody's address.
func (a Address) IsZero() bool { return a == Address{} }

// String returns node/actor, for logs.
func (a Address) String() string { return a.Node.String() + "/" + strconv.FormatUint(a.Actor, 10) }

// UID returns one number for the actor that is unique in the cluster for all practical purposes; call chains are
// made of it.
func (a Address) UID() uint64 {
	// FNV-1a over the node id, then two rounds of splitmix64 finalisation: ids and epochs are small and regular.
	h := uint64(14695981039346656037)
	for i := range len(a.Node.ID) {
		h = (h ^ uint64(a.Node.ID[i])) * 1099511628211
	}
	return Mix(Mix(h^a.Node.Epoch) ^ a.Actor)
}

// Mix is the splitmix64 finaliser (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): a cheap
// bijection that spreads every input bit over the whole word.
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb
	return x ^ (x >> 31)
}

// SessionRef names a session: the gate's node, an id that is unique across gates and restarts, and a generation that
// rises each time the session changes its socket or its user. The zero SessionRef is no session.
type SessionRef struct {
	Gate NodeRef
	ID   uint64
	Gen  uint32
}

// IsZero reports whether s names no session.
func (s SessionRef) IsZero() bool { return s == SessionRef{} }

// SessionClosedID is the message id of wirepb.SessionClosed, by which gates tell watchers of the end of a session.
const SessionClosedID = 10

// FenceID is the message id of a request without a body that every actor answers when it has handled what it got before, whatever
// state it is in: by it others know that nothing waits there any more.
const FenceID = 11

// ClosedSession returns which session c says has ended.
func ClosedSession(c *wirepb.SessionClosed) SessionRef { return sessionOf(c) }

// Key names a stateful actor: its kind's number, the zone it lives in, and its id within both.
type Key struct {
	Type uint32
	Zone uint32
	ID   string
}

// String returns type/zone/id, for logs.
func (k Key) String() string {
	return strconv.FormatUint(uint64(k.Type), 10) + "/" + strconv.FormatUint(uint64(k.Zone), 10) + "/" + k.ID
}

// NumKey returns the Key whose id is the number n in base 10.
func NumKey(typ, zone uint32, n uint64) Key {
	return Key{Type: typ, Zone: zone, ID: strconv.FormatUint(n, 10)}
}

// RouteVersion counts the changes of an object's owner, from 1; it is the fencing token of the owner. It is never
// mixed up with the revision of the stored document, which counts writes.
type RouteVersion uint64

// Trace says what a message is part of.
type Trace struct {
	ID   TraceID
	Span uint64 // the span in which it was sent; 0: the trace is not recorded
}

// IsZero reports whether t names no trace.
func (t Trace) IsZero() bool { return t.ID.IsZero() }

// TraceID follows one request through the cluster. Zero means that it is not traced.
type TraceID [16]byte

// IsZero reports whether t is no trace.
func (t TraceID) IsZero() bool { return t == TraceID{} }

// String returns hex, "" for none.
func (t TraceID) String() string {
	if t.IsZero() {
		return ""
	}
	return hex.EncodeToString(t[:])
}

// MarshalText implements encoding.TextMarshaler: hex.
func (t TraceID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, t[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *TraceID) UnmarshalText(b []byte) error {
	var id TraceID
	if n, err := hex.Decode(id[:], b); len(b) != 2*len(id) || err != nil || n != len(id) {
		return fmt.Errorf("trace %q: want %d bytes of hex", b, len(id))
	}
	*t = id
	return nil
}

// Advert says that an actor handles a message id. The names of its JSON are part of what nodes tell each other.
type Advert struct {
	ID uint32 `json:"id"`
	// Client: clients may call it; without, the id counts as no route for messages with the client mark.
	Client bool `json:"client,omitempty"`
	// Sharded: every node's actors that advertise the id are candidates together, one is picked by key.
	Sharded bool `json:"sharded,omitempty"`
	// KeyField is the number of the body's field that holds the key of a sharded id, 0 for the session's id.
	KeyField uint32 `json:"keyfield,omitempty"`
}
