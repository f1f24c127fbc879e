package zmsg

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"zgame/zmsg/wirepb"
)

// Field numbers of wirepb.Envelope.
const (
	envKind       = 1
	envTo         = 2
	envFromActor  = 3
	envRequest    = 4
	envID         = 5
	envSeq        = 6
	envCode       = 7
	envOutcome    = 8
	envText       = 9
	envBody       = 10
	envSession    = 11
	envGeneration = 12
	envGate       = 13
	envGateEpoch  = 14
	envUser       = 15
	envClient     = 16
	envTimeout    = 17
	envTrace      = 18
	envChain      = 19
	envHops       = 20
	envOp         = 21
	envSessions   = 22
	envGroup      = 24
	envClass      = 25
	envKeyType    = 26
	envKeyZone    = 27
	envKeyID      = 28
	envVersion    = 29
	envOwner      = 30
	envOwnerEpoch = 31
	envOnce       = 32
	envPush       = 33
	envOf         = 34
	envSpan       = 35
	envResent     = 36
)

// AppendEnvelope appends e as one wirepb.Envelope: the bytes that deterministic proto.Marshal gives. Bytes of its
// strings that are not UTF-8 are replaced, since the other side would refuse the whole batch for them. It does not
// allocate where dst has the room.
func AppendEnvelope(dst []byte, e *Envelope) []byte {
	if !e.valid() {
		c := e.cleaned()
		return appendEnvelope(dst, &c)
	}
	return appendEnvelope(dst, e)
}

// Size is the number of bytes that AppendEnvelope appends, where e's strings are UTF-8.
func (e *Envelope) Size() int {
	n := sizeUint(envKind, uint64(e.Kind)) + sizeUint(envTo, e.To) + sizeUint(envFromActor, e.FromActor) +
		sizeUint(envRequest, e.Request) + sizeUint(envID, uint64(e.ID)) + sizeUint(envSeq, e.Seq) +
		sizeUint(envCode, uint64(e.Code)) + sizeUint(envOutcome, uint64(e.Outcome)) +
		sizeBytes(envText, len(e.Text)) + sizeBytes(envBody, len(e.Body)) +
		sizeUint(envSession, e.Session.ID) + sizeUint(envGeneration, uint64(e.Session.Gen)) +
		sizeBytes(envGate, len(e.Session.Gate.ID)) + sizeUint(envGateEpoch, e.Session.Gate.Epoch) +
		sizeBytes(envUser, len(e.User)) + sizeUint(envTimeout, uint64(e.TimeoutMs)) +
		sizeFixed64s(envChain, len(e.Chain)) + sizeUint(envHops, uint64(e.Hops)) +
		sizeUint(envOp, uint64(e.Op)) + sizeFixed64s(envSessions, len(e.Sessions)) +
		sizeBytes(envGroup, len(e.Group)) + sizeUint(envClass, uint64(e.Class)) +
		sizeUint(envKeyType, uint64(e.Key.Type)) + sizeUint(envKeyZone, uint64(e.Key.Zone)) +
		sizeBytes(envKeyID, len(e.Key.ID)) + sizeUint(envVersion, uint64(e.Version)) +
		sizeBytes(envOwner, len(e.Owner.ID)) + sizeUint(envOwnerEpoch, e.Owner.Epoch) +
		sizeBytes(envOnce, len(e.Once)) + sizeUint(envPush, e.PushNo) + sizeBytes(envOf, len(e.Of)) + sizeUint(envSpan, e.Trace.Span)
	if e.Client {
		n += tagSize(envClient) + 1
	}
	if e.Resent {
		n += tagSize(envResent) + 1
	}
	if !e.Trace.IsZero() {
		n += tagSize(envTrace) + protowire.SizeBytes(len(e.Trace.ID))
	}
	return n
}

func appendEnvelope(b []byte, e *Envelope) []byte {
	b = appendUint(b, envKind, uint64(e.Kind))
	b = appendUint(b, envTo, e.To)
	b = appendUint(b, envFromActor, e.FromActor)
	b = appendUint(b, envRequest, e.Request)
	b = appendUint(b, envID, uint64(e.ID))
	b = appendUint(b, envSeq, e.Seq)
	b = appendUint(b, envCode, uint64(e.Code))
	b = appendUint(b, envOutcome, uint64(e.Outcome))
	b = appendString(b, envText, e.Text)
	b = appendBytes(b, envBody, e.Body)
	b = appendUint(b, envSession, e.Session.ID)
	b = appendUint(b, envGeneration, uint64(e.Session.Gen))
	b = appendString(b, envGate, e.Session.Gate.ID)
	b = appendUint(b, envGateEpoch, e.Session.Gate.Epoch)
	b = appendString(b, envUser, e.User)
	if e.Client {
		b = appendUint(b, envClient, 1)
	}
	b = appendUint(b, envTimeout, uint64(e.TimeoutMs))
	if !e.Trace.IsZero() {
		b = append(appendHead(b, envTrace, len(e.Trace.ID)), e.Trace.ID[:]...)
	}
	b = appendFixed64s(b, envChain, e.Chain)
	b = appendUint(b, envHops, uint64(e.Hops))
	b = appendUint(b, envOp, uint64(e.Op))
	b = appendFixed64s(b, envSessions, e.Sessions)
	b = appendString(b, envGroup, e.Group)
	b = appendUint(b, envClass, uint64(e.Class))
	b = appendUint(b, envKeyType, uint64(e.Key.Type))
	b = appendUint(b, envKeyZone, uint64(e.Key.Zone))
	b = appendString(b, envKeyID, e.Key.ID)
	b = appendUint(b, envVersion, uint64(e.Version))
	b = appendString(b, envOwner, e.Owner.ID)
	b = appendUint(b, envOwnerEpoch, e.Owner.Epoch)
	b = appendString(b, envOnce, e.Once)
	b = appendUint(b, envPush, e.PushNo)
	b = appendString(b, envOf, e.Of)
	b = appendUint(b, envSpan, e.Trace.Span)
	if e.Resent {
		b = appendUint(b, envResent, 1)
	}
	return b
}

func (e *Envelope) valid() bool {
	return valid(e.Text) && valid(e.Session.Gate.ID) && valid(e.User) && valid(e.Group) && valid(e.Key.ID) && valid(e.Owner.ID) && valid(e.Once) && valid(e.Of)
}

func valid(s string) bool { return s == "" || utf8.ValidString(s) }

func (e *Envelope) cleaned() Envelope {
	c := *e
	c.Text, c.Session.Gate.ID, c.User = clean(c.Text), clean(c.Session.Gate.ID), clean(c.User)
	c.Group, c.Key.ID, c.Owner.ID, c.Once, c.Of = clean(c.Group), clean(c.Key.ID), clean(c.Owner.ID), clean(c.Once), clean(c.Of)
	return c
}

// Decode sets e to the wirepb.Envelope in b. Strings and Body alias b; Sessions and Chain reuse the memory that e had
// for them. Unknown fields are skipped, an unknown outcome is Unknown, an unknown class Reliable; a trace has 16 bytes
// or none. Errors wrap ErrMalformed; e is not to be used then, but for Decode.
func (e *Envelope) Decode(b []byte) error {
	*e = Envelope{Sessions: e.Sessions[:0], Chain: e.Chain[:0]}
	var f field
	for len(b) > 0 {
		// A small number of one of the fields up to 15: what most fields are.
		if t := b[0]; t < 0x80 && t&7 == byte(protowire.VarintType) && t > 7 && len(b) > 1 && b[1] < 0x80 {
			e.setNumber(protowire.Number(t>>3), uint64(b[1]))
			b = b[2:]
			continue
		}
		n := f.next(b)
		if n < 0 {
			return malformed("envelope: bad field")
		}
		b = b[n:]
		switch {
		case f.typ == protowire.VarintType:
			e.setNumber(f.number, f.num)
		case f.number == envChain || f.number == envSessions:
			list := &e.Chain
			if f.number == envSessions {
				list = &e.Sessions
			}
			var ok bool
			if *list, ok = decodeFixed64s(*list, &f); !ok {
				return malformed("envelope: length of a list of fixed64")
			}
		case f.typ == protowire.BytesType:
			if !e.setBytes(&f) {
				return malformed("envelope: a string that is not UTF-8, or a trace that has not 16 bytes")
			}
		}
	}
	return nil
}

func (e *Envelope) setNumber(n protowire.Number, v uint64) {
	switch n {
	case envKind:
		e.Kind = wirepb.EnvelopeKind(v)
	case envTo:
		e.To = v
	case envFromActor:
		e.FromActor = v
	case envRequest:
		e.Request = v
	case envID:
		e.ID = uint32(v)
	case envSeq:
		e.Seq = v
	case envCode:
		e.Code = Code(v)
	case envOutcome:
		e.Outcome = outcomeOf(v)
	case envSession:
		e.Session.ID = v
	case envGeneration:
		e.Session.Gen = uint32(v)
	case envGateEpoch:
		e.Session.Gate.Epoch = v
	case envClient:
		e.Client = v != 0
	case envTimeout:
		e.TimeoutMs = uint32(v)
	case envHops:
		e.Hops = uint32(v)
	case envOp:
		e.Op = wirepb.SessionOp(v)
	case envClass:
		e.Class = classOf(v)
	case envKeyType:
		e.Key.Type = uint32(v)
	case envKeyZone:
		e.Key.Zone = uint32(v)
	case envVersion:
		e.Version = RouteVersion(v)
	case envOwnerEpoch:
		e.Owner.Epoch = v
	case envPush:
		e.PushNo = v
	case envSpan:
		e.Trace.Span = v
	case envResent:
		e.Resent = v != 0
	default:
	}
}

func (e *Envelope) setBytes(f *field) (ok bool) {
	var s *string
	switch f.number {
	case envText:
		s = &e.Text
	case envGate:
		s = &e.Session.Gate.ID
	case envUser:
		s = &e.User
	case envGroup:
		s = &e.Group
	case envKeyID:
		s = &e.Key.ID
	case envOwner:
		s = &e.Owner.ID
	case envOnce:
		s = &e.Once
	case envOf:
		s = &e.Of
	case envBody:
		e.Body = f.data
		return true
	case envTrace:
		if len(f.data) != len(e.Trace.ID) && len(f.data) != 0 {
			return false
		}
		e.Trace.ID = TraceID{}
		copy(e.Trace.ID[:], f.data)
		return true
	default:
		return true
	}
	*s, ok = alias(f.data)
	return ok
}
