package zmsg

import "google.golang.org/protobuf/proto"

// Class says what may happen to a push when a client is slow.
type Class uint8

// The classes.
const (
	Reliable Class = iota // never dropped in silence: a client whose queue is full of them is closed
	Latest                // a newer push of the same id, and the same Push.Of, replaces it while it waits
	Volatile              // may be dropped, counted
)

// MaxOf is how long Push.Of may be, in bytes.
const MaxOf = 128

// Push is a message for clients that nobody asked for.
type Push struct {
	ID    uint32
	Body  []byte        // encoded; may be nil where Value is set
	Value proto.Message // not changed after sending
	Class Class
	Of    string // of class Latest: what it tells the latest of, such as an entity, at most MaxOf bytes; "": the id says it all

	// Of an object's push to sessions that are bound to it, all at one gate: whose it is, since when, and its number there, from 1. The
	// gate keeps the order by them while the object moves. Version 0: of no object.
	Key     Key
	Version RouteVersion
	No      uint64

	Trace Trace // in whose turn it was sent
}

// EncodedBody returns the body, encoding Value if there are no bytes yet.
func (p *Push) EncodedBody() ([]byte, error) {
	if p.Body != nil || p.Value == nil {
		return p.Body, nil
	}
	return proto.Marshal(p.Value)
}
