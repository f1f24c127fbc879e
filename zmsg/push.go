package zmsg

import "google.golang.org/protobuf/proto"

// Class says what may happen to a push when a client is slow.
type Class uint8

// The classes.
const (
	Reliable Class = iota // never dropped in silence: a client whose queue is full of them is closed
	Latest                // a newer push of the same id replaces it while it waits
	Volatile              // may be dropped, counted
)

// Push is a message for clients that nobody asked for.
type Push struct {
	ID    uint32
	Body  []byte        // encoded; may be nil where Value is set
	Value proto.Message // not changed after sending
	Class Class
}

// EncodedBody returns the body, encoding Value if there are no bytes yet.
func (p *Push) EncodedBody() ([]byte, error) {
	if p.Body != nil || p.Value == nil {
		return p.Body, nil
	}
	return proto.Marshal(p.Value)
}
