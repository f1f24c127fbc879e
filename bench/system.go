package bench

import "sync/atomic"

// System is one way to run actors. Each brings the workloads' actors to life in its own idiom, so that none pays for
// an adapter that another does not need; the workloads that drive them are the same code for all.
type System interface {
	Name() string
	// Open makes a runtime for one measurement. queue is how many messages may wait for an actor, for systems whose
	// mailboxes have a bound.
	Open(queue int) (Runtime, error)
}

// Runtime hosts the actors of one measurement. Its methods are called from one goroutine; the functions it returns
// from any, unless they say otherwise.
type Runtime interface {
	// Sinks prepares n actors, each of which adds 1 to handled for each Note.
	Sinks(n int, handled *atomic.Int64) Sinks
	// PingPong makes two actors. play lets one message go to and fro until n messages have been handled, and returns
	// the number that were. One play at a time.
	PingPong() (play func(n int) int, err error)
	// Echo makes an actor that answers each Ping with a Pong. ask sends one and waits for the answer.
	Echo() (ask func() error, err error)
	// Phoenix makes an actor that panics on crash, which does not wait, and starts again with fresh state. ask is answered
	// with how many requests the present instance has had, this one included, and with how many instances there have been.
	Phoenix() (crash func() error, ask func() (requests, instances int64, err error), err error)
	// Blocked makes n actors and has each of them wait in its handler until the channel is closed. It returns when
	// all of them do.
	Blocked(n int, until <-chan struct{}) error
	// Close ends the actors.
	Close() error
}

// Sinks are actors that count.
type Sinks struct {
	// Spawn makes actor i, with a name of its own.
	Spawn func(i int) error
	// Started returns when all actors that were spawned have started; nil where Spawn does not return before.
	Started func() error
	// Tell sends a Note to actor i. It returns when the system has taken it, which it may refuse for a while: then
	// the sender yields and tries again.
	Tell func(i int)
}

// spawnAll spawns n sinks.
func (s Sinks) spawnAll(n int) error {
	for i := range n {
		if err := s.Spawn(i); err != nil {
			return err
		}
	}
	if s.Started == nil {
		return nil
	}
	return s.Started()
}
