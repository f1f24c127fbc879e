package zmsg

import (
	"google.golang.org/protobuf/proto"

	"zgame/zmsg/wirepb"
)

// Binding is a change of which sessions, all at one gate, are bound to an object.
type Binding struct {
	Key     Key
	Version RouteVersion // of the ownership
	Owner   Address      // the object's actor, which is told of the ends of sessions
	Gate    NodeRef
	// Sessions are at Gate.
	Sessions []SessionRef
	// Last is the number of the object's last push to the gate.
	Last uint64
	// Base is that of the last push before the first session at the gate was bound: a gate that has not heard of the object waits for what
	// stands between Base and Last, which an owner before may have sent.
	Base uint64
	// Since is the version of the owner that has begun to count the pushes to the gate, from 1: this one, or that from which it has come by
	// moves. What owners before it have sent, this one does not know.
	Since RouteVersion
	// Again says that it was told before, and that Last is of then.
	Again bool
}

// EncodeSessions returns Sessions, Base, Since and Again as the body of an envelope.
func (b *Binding) EncodeSessions() ([]byte, error) {
	w := wirepb.Binding{Base: b.Base, Since: uint64(b.Since), Again: b.Again, Sessions: make([]uint64, len(b.Sessions)), Generations: make([]uint32, len(b.Sessions))}
	for i, s := range b.Sessions {
		w.Sessions[i], w.Generations[i] = s.ID, s.Gen
	}
	return proto.Marshal(&w)
}

// DecodeSessions sets what EncodeSessions encodes by the body of an envelope. Gate must be set. Errors wrap ErrMalformed.
func (b *Binding) DecodeSessions(body []byte) error {
	var w wirepb.Binding
	if err := proto.Unmarshal(body, &w); err != nil {
		return malformed("binding: " + err.Error())
	}
	if len(w.GetSessions()) != len(w.GetGenerations()) {
		return malformed("binding: sessions and generations are not as many")
	}
	b.Base, b.Since, b.Again = w.GetBase(), RouteVersion(w.GetSince()), w.GetAgain()
	b.Sessions = make([]SessionRef, len(w.GetSessions()))
	for i, id := range w.GetSessions() {
		b.Sessions[i] = SessionRef{Gate: b.Gate, ID: id, Gen: w.GetGenerations()[i]}
	}
	return nil
}
