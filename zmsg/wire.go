package zmsg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
)

// Errors of the decoders. They are wrapped with what was wrong; test with errors.Is.
var (
	ErrMalformed = errors.New("zmsg: malformed")   // not the protobuf that it should be
	ErrForeign   = errors.New("zmsg: not a batch") // not from a node of this major version
)

// malformed wraps ErrMalformed. It is kept out of the decoders' hot loops.
func malformed(what string) error { return fmt.Errorf("%w %s", ErrMalformed, what) }

// field is one field of an encoded message: its number, its wire type and its value, which is num for numbers and
// data for bytes (aliasing the input). Groups are skipped and carry no value.
type field struct {
	number protowire.Number
	typ    protowire.Type
	num    uint64
	data   []byte
}

// next takes the first field off b and returns how many bytes it had, or a negative number when b does not start with
// a well-formed field. It accepts exactly what the generated code accepts.
func (f *field) next(b []byte) int {
	tag, n := uvarint(b)
	if n <= 0 || tag>>3 < uint64(protowire.MinValidNumber) || tag>>3 > uint64(protowire.MaxValidNumber) {
		return -1
	}
	f.number, f.typ = protowire.Number(tag>>3), protowire.Type(tag&7)
	f.num, f.data = 0, nil
	b = b[n:]
	switch f.typ {
	case protowire.VarintType:
		v, m := uvarint(b)
		if m <= 0 {
			return -1
		}
		f.num = v
		return n + m
	case protowire.BytesType:
		l, m := uvarint(b)
		// The comparison is made unsigned: a length of 2^63 and more must not become a negative int.
		if m <= 0 || l > uint64(len(b)-m) {
			return -1
		}
		f.data = b[m : m+int(l) : m+int(l)]
		return n + m + int(l)
	case protowire.Fixed64Type:
		if len(b) < 8 {
			return -1
		}
		f.num = binary.LittleEndian.Uint64(b)
		return n + 8
	case protowire.Fixed32Type:
		if len(b) < 4 {
			return -1
		}
		f.num = uint64(binary.LittleEndian.Uint32(b))
		return n + 4
	default: // a group, or not a wire type
		m := protowire.ConsumeFieldValue(f.number, f.typ, b)
		if m < 0 {
			return -1
		}
		return n + m
	}
}

// wellFormed reports whether b is a sequence of whole fields.
func wellFormed(b []byte) bool {
	var f field
	for len(b) > 0 {
		n := f.next(b)
		if n < 0 {
			return false
		}
		b = b[n:]
	}
	return true
}

// uvarint is protowire.ConsumeVarint with the common one-byte case inlined.
func uvarint(b []byte) (uint64, int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return protowire.ConsumeVarint(b)
}

// alias returns b as a string without copying; ok is false when it is not UTF-8.
func alias(b []byte) (s string, ok bool) {
	if len(b) == 0 {
		return "", true
	}
	if !utf8.Valid(b) {
		return "", false
	}
	return unsafe.String(unsafe.SliceData(b), len(b)), true
}

// clean returns s with what is not UTF-8 replaced: receivers refuse a whole packet or batch for one bad string, and
// the text of an error may come from anywhere.
func clean(s string) string { return strings.ToValidUTF8(s, string(utf8.RuneError)) }

// putUvarint writes v into b, which has the room, at i, and returns where it ends.
func putUvarint(b []byte, i int, v uint64) int {
	for v >= 0x80 {
		b[i] = byte(v) | 0x80
		v >>= 7
		i++
	}
	b[i] = byte(v)
	return i + 1
}

// tagSize is the size of a field's tag.
func tagSize(n protowire.Number) int {
	if n < 16 {
		return 1
	}
	return 2 // up to 2047, more than any message here has
}

func sizeUint(n protowire.Number, v uint64) int {
	if v == 0 {
		return 0
	}
	return tagSize(n) + protowire.SizeVarint(v)
}

func sizeBytes(n protowire.Number, l int) int {
	if l == 0 {
		return 0
	}
	return tagSize(n) + protowire.SizeBytes(l)
}

func sizeFixed64s(n protowire.Number, l int) int { return sizeBytes(n, 8*l) }

// appendUint is small enough to be inlined: most fields of most envelopes are not there.
func appendUint(b []byte, n protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return appendNumber(b, n, v)
}

func appendNumber(b []byte, n protowire.Number, v uint64) []byte {
	if n < 16 && v < 0x80 {
		return append(b, byte(n)<<3|byte(protowire.VarintType), byte(v))
	}
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
}

func appendHead(b []byte, n protowire.Number, l int) []byte {
	if n < 16 && l < 0x80 {
		return append(b, byte(n)<<3|byte(protowire.BytesType), byte(l))
	}
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.BytesType), uint64(l))
}

func appendBytes(b []byte, n protowire.Number, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return append(appendHead(b, n, len(v)), v...)
}

func appendString(b []byte, n protowire.Number, v string) []byte {
	if len(v) == 0 {
		return b
	}
	return appendText(b, n, v)
}

func appendText(b []byte, n protowire.Number, v string) []byte {
	return append(appendHead(b, n, len(v)), v...)
}

func appendFixed64s(b []byte, n protowire.Number, v []uint64) []byte {
	if len(v) == 0 {
		return b
	}
	return appendList(b, n, v)
}

func appendList(b []byte, n protowire.Number, v []uint64) []byte {
	b = appendHead(b, n, 8*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b
}

// decodeFixed64s adds the elements of a repeated fixed64 field, packed or not, to v.
func decodeFixed64s(v []uint64, f *field) ([]uint64, bool) {
	switch f.typ {
	case protowire.Fixed64Type:
		return append(v, f.num), true
	case protowire.BytesType:
		if len(f.data)%8 != 0 {
			return v, false
		}
		for b := f.data; len(b) > 0; b = b[8:] {
			v = append(v, binary.LittleEndian.Uint64(b))
		}
	default:
	}
	return v, true
}

// Mapping of small enumerations that this version may not know in full.
func outcomeOf(v uint64) Outcome {
	if uint32(v) > uint32(Unknown) {
		return Unknown // the one that promises nothing
	}
	return Outcome(uint32(v))
}

func classOf(v uint64) Class {
	if uint32(v) > uint32(Volatile) {
		return Reliable // the one that drops nothing
	}
	return Class(uint32(v))
}
