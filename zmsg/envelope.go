package zmsg

import "zgame/zmsg/wirepb"

// BatchMagic opens every batch: "zg1" and the major version.
const BatchMagic = 0x7a673101

// Envelope is what nodes exchange, decoded. Its fields are those of wirepb.Envelope. Strings and bytes alias the bytes
// it was decoded from: they are valid as long as those are not changed.
type Envelope struct {
	Kind      wirepb.EnvelopeKind
	To        uint64
	FromActor uint64
	Request   uint64
	ID        uint32
	Seq       uint64
	Code      Code
	Outcome   Outcome
	Text      string
	Body      []byte
	Session   SessionRef
	User      string
	Client    bool
	TimeoutMs uint32
	Trace     Trace
	Chain     []uint64
	Hops      uint32
	Op        wirepb.SessionOp
	Sessions  []uint64
	Group     string
	Class     Class
	Key       Key
	Version   RouteVersion
	Owner     NodeRef
	Once      string
	PushNo    uint64
	Of        string
	Resent    bool
}

// BatchHead is the head of a batch: who sent it, and which of the sender's batches to this subject it is, from 1. The
// upper 24 bits are the series: a sender that forgot how far a subject was begins the next.
type BatchHead struct {
	From   NodeRef
	Number uint64
}
