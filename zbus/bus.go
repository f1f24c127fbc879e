package zbus

import (
	"context"
	"errors"
)

// Errors of a Bus. Drivers wrap them; test with errors.Is.
var (
	ErrDown     = errors.New("zbus: bus is down")                   // not connected now; nothing was sent
	ErrFull     = errors.New("zbus: out of buffer")                 // too much waits to be sent; nothing was sent
	ErrTooLarge = errors.New("zbus: message above the bus's limit") // nothing was sent
	ErrClosed   = errors.New("zbus: closed")
)

// Bus is the contract of a driver: publish and subscribe by subject, at most once, in order for each publisher and
// subscriber, over all subjects. Subjects are dot-separated tokens of letters, digits, '-' and '_' (see Token).
// zbustest holds drivers to it.
//
// All methods may be called from any goroutine.
type Bus interface {
	// Publish hands data to the bus and keeps neither it nor the subjects. It does not wait for an answer, but may
	// wait for room in the socket. With a reply subject, the bus sends this bus an empty message with NoResponders
	// to it when nobody subscribes to subject. A bus that is down does not keep anything for later.
	// Errors: ErrDown, ErrFull, ErrTooLarge, ErrClosed; with each of them nothing was sent.
	Publish(subject, reply string, data []byte) error
	// Receive opens a receiver: h gets the messages of all its subscriptions, one at a time, in order of
	// arrival over all subjects. h must not block for long; what the driver has to drop meanwhile is reported by
	// Events.Dropped.
	Receive(h func(Msg)) (Receiver, error)
	// Observe has e called for what happens to the connection from now on, until stop is called. One event is told
	// at a time, in order. Functions of e must not block, nor wait for Close.
	Observe(e Events) (stop func())
	// MaxPayload is the largest data in bytes, as the connected server says.
	MaxPayload() int
	// Up reports whether the bus is connected now.
	Up() bool
	// Flush waits until what was published before has reached the server.
	Flush(ctx context.Context) error
	// Close flushes within ctx, ends all receivers and closes the connection. It may be called more than once.
	Close(ctx context.Context) error
}

// Direct is a Bus that does without the wake of a goroutine where a lone message is sent or comes.
type Direct interface {
	Bus
	// TryPublish is Publish where that does not wait. Else it does nothing and reports false.
	TryPublish(subject, reply string, data []byte) (published bool, err error)
	// ReceiveDirect is Receive for an h that never blocks, waits for nothing that the bus brings, and may run on the goroutine that
	// reads the connection. It is still called by one goroutine at a time.
	ReceiveDirect(h func(Msg)) (Receiver, error)
}

// Receiver is an ordered stream of messages from several subjects.
type Receiver interface {
	// Subscribe adds a subject; once it returns, a message published anywhere afterwards is received. The last
	// token may be "*": any one token. A message that several subscriptions match is received once for each of them.
	// A subject subscribed twice is received once and needs as many Unsubscribe calls. With an error (ErrDown,
	// ErrClosed, ctx's) nothing was added. Subscriptions outlive the loss of the connection.
	Subscribe(ctx context.Context, subject string) error
	// Unsubscribe takes a subject away. What has arrived already may still be received.
	Unsubscribe(subject string) error
	// Close ends the subscriptions, waits within ctx until h has had what already arrived, and ends the goroutine.
	Close(ctx context.Context) error
}

// Msg is a message from the bus. Data belongs to the handler and is not changed by anybody afterwards.
type Msg struct {
	Subject      string
	Reply        string
	Data         []byte
	NoResponders bool // the answer of the bus itself: nobody subscribes to the subject that was published to
}
