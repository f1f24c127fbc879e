package zmsg

import "google.golang.org/protobuf/encoding/protowire"

// FieldKey finds a field of an encoded body without the body's Go type: raw is the value of a string or bytes field
// (aliasing body), num that of a number as it is on the wire. Where a field is there more than once the last counts,
// as in protobuf. ok is false when the field is not there (it may have its default value) or body is malformed.
// It does not allocate.
func FieldKey(body []byte, number protowire.Number) (raw []byte, num uint64, ok bool) {
	var f field
	for len(body) > 0 {
		n := f.next(body)
		if n < 0 {
			return nil, 0, false
		}
		body = body[n:]
		if f.number == number && f.typ != protowire.StartGroupType {
			raw, num, ok = f.data, f.num, true
		}
	}
	return raw, num, ok
}

// KeyHash hashes the value that FieldKey finds, equally on every node. A field that is not there has no hash.
func KeyHash(body []byte, number uint32) (uint64, bool) {
	raw, num, ok := FieldKey(body, protowire.Number(number))
	switch {
	case !ok:
		return 0, false
	case raw != nil:
		return HashBytes(raw), true
	default:
		return Mix(num ^ 0x6b65796e756d6265), true // apart from the hashes of strings
	}
}

// HashBytes is the hash that KeyHash gives for a string or bytes field with the value b: FNV-1a, finished by Mix.
func HashBytes[T ~string | ~[]byte](b T) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(b) {
		h = (h ^ uint64(b[i])) * 1099511628211
	}
	return Mix(h)
}
