package faultproxy

import "time"

// Dir is a direction, or both of them.
type Dir uint8

// The directions.
const (
	Up   Dir = 1 << iota // from the one who dialed to the target
	Down                 // from the target to the one who dialed
	Both = Up | Down
)

// Fault is what is wrong with a direction; the zero Fault is nothing. Where several are set, Stall comes first, then Delay,
// Swallow, Rate and CutAfter.
type Fault struct {
	// Stall holds everything back. What came meanwhile passes when it is over.
	Stall bool
	// Delay is how much later everything arrives. With Buffer it bounds the throughput.
	Delay time.Duration
	// Swallow has everything vanish, as a black hole does: the sender's bytes are acknowledged, and nobody gets them.
	Swallow bool
	// Rate is how many bytes pass in a second; 0 is no limit.
	Rate int
	// CutAfter ends the connection when so many bytes have passed, counted from when the fault was set or, for a new
	// connection, from its beginning: the receiver gets exactly these, then the end of the stream, the sender a reset. 0 is
	// never.
	CutAfter int64
}

// Buffer bounds what waits in a direction of a connection, in bytes.
const Buffer = 256 << 10

// Bytes counts those of one direction or both.
type Bytes struct {
	Passed   int64 // written to the receiver's socket
	Vanished int64 // acknowledged to the sender and thrown away
	Waiting  int64 // held back now
}

func (b *Bytes) add(o Bytes) {
	b.Passed += o.Passed
	b.Vanished += o.Vanished
	b.Waiting += o.Waiting
}
