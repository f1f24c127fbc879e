package zmsg

import (
	"encoding/binary"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"zgame/zmsg/wirepb"
)

// Tell is the envelope of a one-way message to an actor of which there is nothing more to say: no session, no user, no deadline, no
// call that waits. Most envelopes are such, so they have a codec of their own, on the same wire: an Envelope has thirty fields
// to look at, and its decoder as many to clear.
type Tell struct {
	To, From uint64 // actors, From at the batch's node, 0 if none; To is never 0
	ID       uint32
	Trace    TraceID // one that is not recorded
	Body     []byte
}

// Envelope returns t as the envelope that it is on the wire.
func (t *Tell) Envelope() Envelope {
	return Envelope{Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_ACTOR, To: t.To, FromActor: t.From, ID: t.ID, Trace: Trace{ID: t.Trace}, Body: t.Body}
}

const (
	tellKind  = envKind<<3 | byte(protowire.VarintType)
	tellTo    = envTo<<3 | byte(protowire.VarintType)
	tellFrom  = envFromActor<<3 | byte(protowire.VarintType)
	tellID    = envID<<3 | byte(protowire.VarintType)
	tellBody  = envBody<<3 | byte(protowire.BytesType)
	tellOf    = batchEnvelopes<<3 | byte(protowire.BytesType)
	tellActor = byte(wirepb.EnvelopeKind_ENVELOPE_KIND_ACTOR)

	// The tag of a trace has two bytes, in front of its length.
	tellTrace0, tellTrace1 = envTrace<<3&0x7f | byte(protowire.BytesType) | 0x80, envTrace >> 4
	tellTraceHead          = 3
)

// AppendBatchTell appends t to the batch in dst: the bytes of AppendBatchEnvelope(dst, t.Envelope()).
func AppendBatchTell(dst []byte, t *Tell) []byte {
	size := t.sizeWithout() + sizeBytes(envBody, len(t.Body))
	dst = slices.Grow(dst, 1+binary.MaxVarintLen64+size)
	dst = t.appendHead(appendSmall(append(dst, tellOf), uint64(size)))
	if len(t.Body) > 0 {
		dst = append(appendSmall(append(dst, tellBody), uint64(len(t.Body))), t.Body...)
	}
	return t.appendTrace(dst)
}

// AppendBatchTellOf is AppendBatchTell with the body that v encodes to, in place: Plain says that v's type is one for it. It returns dst as
// it was with an error, which is that of proto.Marshal.
func AppendBatchTellOf(dst []byte, t *Tell, v proto.Message) ([]byte, error) {
	without := t.sizeWithout()
	b := slices.Grow(dst, 128+without)
	// Both lengths stand in front of what they are of. To find them out first costs more than to leave a byte for each, and to
	// move what is behind where that was wrong.
	envelope := len(b) + 1
	b = t.appendHead(append(b, tellOf, 0))
	body := len(b) + 2
	b, err := marshalPlain(append(b, tellBody, 0), v)
	if err != nil {
		return dst, err
	}
	size := len(b) - body
	if size == 0 {
		b = b[:body-2]
	} else if size < 0x80 {
		b[body-1] = byte(size)
	} else {
		b = lengthen(b, body, size)
	}
	b = t.appendTrace(b)
	if size = len(b) - envelope - 1; size < 0x80 {
		b[envelope] = byte(size)
		return b, nil
	}
	return lengthen(b, envelope+1, size), nil
}

// lengthen writes a length that does not fit into the byte in front of b[at].
func lengthen(b []byte, at, n int) []byte {
	b = moved(b, at, protowire.SizeVarint(uint64(n))-1)
	protowire.AppendVarint(b[:at-1], uint64(n))
	return b
}

func (t *Tell) sizeWithout() int {
	size := 2 + sizeUint(envTo, t.To) + sizeUint(envFromActor, t.From) + sizeUint(envID, uint64(t.ID))
	if !t.Trace.IsZero() {
		size += tellTraceHead + len(t.Trace)
	}
	return size
}

// appendHead appends what stands before the body.
func (t *Tell) appendHead(dst []byte) []byte {
	dst = append(dst, tellKind, tellActor)
	if t.To != 0 {
		dst = appendSmall(append(dst, tellTo), t.To)
	}
	if t.From != 0 {
		dst = appendSmall(append(dst, tellFrom), t.From)
	}
	if t.ID != 0 {
		dst = appendSmall(append(dst, tellID), uint64(t.ID))
	}
	return dst
}

func (t *Tell) appendTrace(dst []byte) []byte {
	if t.Trace.IsZero() {
		return dst
	}
	return append(append(dst, tellTrace0, tellTrace1, byte(len(t.Trace))), t.Trace[:]...)
}

// appendSmall is binary.AppendUvarint with what most numbers are inlined.
func appendSmall(b []byte, v uint64) []byte {
	if v < 0x80 {
		return append(b, byte(v))
	}
	return binary.AppendUvarint(b, v)
}

// Arrival is a bus message that came from another node. It does not change.
type Arrival struct {
	From NodeRef
	Data []byte
}

// Told is a Tell of an Arrival that is not decoded yet.
type Told struct {
	To         uint64
	ID         uint32 // of the message
	At         uint32 // where it begins in Data
	Body, Size uint32 // where its body begins, and how long that is
	More       bool   // From or Trace is set
}

// NextTold takes the envelope that begins at a place in data, which is a batch, if it is a Tell in the form that AppendBatchTell writes. It
// returns where the next begins. Else ok is false, and it is for NextEnvelope to say what it is.
func NextTold(data []byte, at int, t *Told) (next int, ok bool) {
	if len(data) > math.MaxUint32 || len(data)-at < 2 || data[at] != tellOf {
		return at, false
	}
	size, i := small(data, at+1)
	if i == 0 || size > uint64(len(data)-i) {
		return at, false
	}
	next = i + int(size)
	b := data[:next]
	if next < len(data) && data[next] != tellOf || size < 4 || b[i] != tellKind || b[i+1] != tellActor || b[i+2] != tellTo {
		return at, false
	}
	*t = Told{At: uint32(at)}
	if t.To, i = small(b, i+3); i == 0 || t.To == 0 {
		return at, false
	}
	if i < next && b[i] == tellFrom {
		var from uint64
		if from, i = small(b, i+1); i == 0 {
			return at, false
		}
		t.More = from != 0
	}
	if i < next && b[i] == tellID {
		var id uint64
		if id, i = small(b, i+1); i == 0 {
			return at, false
		}
		t.ID = uint32(id)
	}
	if i < next && b[i] == tellBody {
		if size, i = small(b, i+1); i == 0 || size > uint64(next-i) {
			return at, false
		}
		t.Body, t.Size = uint32(i), uint32(size)
		i += int(size)
	}
	if next-i == tellTraceHead+len(TraceID{}) && b[i] == tellTrace0 && b[i+1] == tellTrace1 && b[i+2] == byte(len(TraceID{})) {
		t.More = true
		return next, true
	}
	return next, i == next
}

// Tell decodes t. The body aliases the batch.
func (a *Arrival) Tell(t Told) (d Tell) {
	d = Tell{To: t.To, ID: t.ID}
	if t.Size > 0 {
		end := t.Body + t.Size
		d.Body = a.Data[t.Body:end:end]
	}
	if t.More {
		d.From, d.Trace = a.more(t)
	}
	return d
}

// more reads what is not in t. The envelope is well-formed: NextTold has looked.
func (a *Arrival) more(t Told) (from uint64, trace TraceID) {
	b := a.Data
	_, i := small(b, int(t.At)+1) // the length
	_, i = small(b, i+3)          // behind the kind: To
	if i < len(b) && b[i] == tellFrom {
		from, i = small(b, i+1)
	}
	if i < len(b) && b[i] == tellID {
		_, i = small(b, i+1)
	}
	if i < len(b) && b[i] == tellBody {
		_, i = small(b, i+1)
		i += int(t.Size)
	}
	if i < len(b) && b[i] == tellTrace0 { // another envelope begins with another byte
		copy(trace[:], b[i+tellTraceHead:])
	}
	return from, trace
}

// Open makes m the message of t. Its body aliases a.Data. m belongs to nobody else, and nobody has changed it but Open, or its trace.
func (m *Message) Open(a *Arrival, t Told) {
	m.ID = t.ID
	if t.Size > 0 {
		end := t.Body + t.Size
		m.body = a.Data[t.Body:end:end]
	} else {
		m.body = nil
	}
	if m.From.Actor != 0 {
		m.From = Address{}
	}
	m.Trace = Trace{}
	if t.More {
		var from uint64
		if from, m.Trace.ID = a.more(t); from != 0 {
			m.From = Address{Node: a.From, Actor: from}
		}
	}
}

// Close undoes Open.
func (m *Message) Close() {
	if m.ID != 0 {
		*m = Message{}
	}
}

// OpenMessage returns the message of t. It is one of NewMessage.
func OpenMessage(a *Arrival, t Told) *Message {
	m := NewMessage(0)
	m.Open(a, t)
	return m
}

// small reads the varint at b[i] and returns what follows it, 0 where there is none. What most are is inlined.
func small(b []byte, i int) (v uint64, next int) {
	if i < len(b) && b[i] < 0x80 {
		return uint64(b[i]), i + 1
	}
	return large(b, i)
}

func large(b []byte, i int) (v uint64, next int) {
	if i >= len(b) {
		return 0, 0
	}
	v, n := protowire.ConsumeVarint(b[i:])
	if n < 0 {
		return 0, 0
	}
	return v, i + n
}
