package zmsg

import (
	"encoding/binary"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of wirepb.Batch.
const (
	batchMagic     = 1
	batchNode      = 2
	batchEpoch     = 3
	batchNumber    = 4
	batchEnvelopes = 5
)

// AppendBatchHead opens a wirepb.Batch: envelopes follow by AppendBatchEnvelope. The bytes of the whole are those of
// deterministic proto.Marshal.
func AppendBatchHead(dst []byte, h BatchHead) []byte {
	node := h.From.ID
	if !utf8.ValidString(node) {
		node = clean(node)
	}
	dst = protowire.AppendTag(dst, batchMagic, protowire.Fixed32Type)
	dst = binary.LittleEndian.AppendUint32(dst, BatchMagic)
	dst = appendString(dst, batchNode, node)
	dst = appendUint(dst, batchEpoch, h.From.Epoch)
	return appendUint(dst, batchNumber, h.Number)
}

// AppendBatchEnvelope appends e to the batch in dst. Like AppendEnvelope otherwise.
func AppendBatchEnvelope(dst []byte, e *Envelope) []byte {
	if !e.valid() {
		c := e.cleaned()
		e = &c
	}
	// The length stands in front of what it is of. To find it out first costs more than to guess how many bytes it takes, and
	// to move the envelope where that was wrong.
	guess := 1
	if len(e.Body) > 100 {
		guess = 2
	}
	dst = append(dst, batchEnvelopes<<3|byte(protowire.BytesType))
	at := len(dst)
	dst = append(dst, 0, 0)[:at+guess]
	dst = appendEnvelope(dst, e)
	size := len(dst) - at - guess
	if width := protowire.SizeVarint(uint64(size)); width != guess {
		dst = moved(dst, at+guess, width-guess)
	}
	protowire.AppendVarint(dst[:at], uint64(size))
	return dst
}

// moved returns b with what begins at i moved by some bytes to the right, or to the left.
func moved(b []byte, i, by int) []byte {
	for range by { // room
		b = append(b, 0)
	}
	copy(b[i+by:], b[i:])
	return b[:len(b)+min(by, 0)]
}

// BatchEnvelopeSize is the number of bytes that AppendBatchEnvelope appends, where e's strings are UTF-8.
func BatchEnvelopeSize(e *Envelope) int {
	return tagSize(batchEnvelopes) + protowire.SizeBytes(e.Size())
}

// DecodeBatchHead reads the head of a batch and returns what follows it: empty, or envelopes for NextEnvelope.
// h.From.ID aliases batch.
//
// The magic must be the first field, and the head must precede the envelopes, as AppendBatchHead writes them: this is
// stricter than protobuf is, because nobody else writes batches. ErrForeign (wrapped) says that the magic is missing
// or that of another major version, ErrMalformed that the rest of the head is bad.
func DecodeBatchHead(batch []byte) (h BatchHead, rest []byte, err error) {
	if len(batch) < 5 || batch[0] != batchMagic<<3|byte(protowire.Fixed32Type) ||
		binary.LittleEndian.Uint32(batch[1:]) != BatchMagic {
		return h, nil, ErrForeign
	}
	var f field
	for rest = batch[5:]; len(rest) > 0; {
		n := f.next(rest)
		if n < 0 {
			return h, nil, malformed("batch: bad field")
		}
		if f.number == batchEnvelopes && f.typ == protowire.BytesType {
			break
		}
		rest = rest[n:]
		switch {
		case f.number == batchMagic && f.typ == protowire.Fixed32Type && f.num != BatchMagic:
			return h, nil, ErrForeign
		case f.number == batchNode && f.typ == protowire.BytesType:
			var ok bool
			if h.From.ID, ok = alias(f.data); !ok {
				return h, nil, malformed("batch: node is not UTF-8")
			}
		case f.number == batchEpoch && f.typ == protowire.VarintType:
			h.From.Epoch = f.num
		case f.number == batchNumber && f.typ == protowire.VarintType:
			h.Number = f.num
		}
	}
	return h, rest, nil
}

// isHead reports whether f is a field of the head. Of another wire type it is an unknown field, which may stand anywhere.
func isHead(f *field) bool {
	switch f.number {
	case batchMagic:
		return f.typ == protowire.Fixed32Type
	case batchNode:
		return f.typ == protowire.BytesType
	case batchEpoch, batchNumber:
		return f.typ == protowire.VarintType
	default:
		return false
	}
}

// NextEnvelope takes the first envelope off rest, what DecodeBatchHead or NextEnvelope returned, and returns what
// follows it. Call it while rest is not empty. e aliases rest as in Envelope.Decode. Errors wrap ErrMalformed: the
// batch cannot be read further.
func NextEnvelope(rest []byte, e *Envelope) ([]byte, error) {
	var f field
	n := f.next(rest)
	if n < 0 || f.number != batchEnvelopes || f.typ != protowire.BytesType {
		return nil, malformed("batch: no envelope where one should be")
	}
	envelope := f.data
	rest = rest[n:]
	// Unknown fields behind the envelope go with it, so that a rest that is not empty has an envelope.
	for len(rest) > 0 && rest[0] != batchEnvelopes<<3|byte(protowire.BytesType) {
		if n = f.next(rest); n < 0 {
			return nil, malformed("batch: bad field")
		}
		if f.number == batchEnvelopes && f.typ == protowire.BytesType {
			break
		}
		if isHead(&f) {
			return nil, malformed("batch: its head goes on behind an envelope")
		}
		rest = rest[n:]
	}
	return rest, e.Decode(envelope)
}
