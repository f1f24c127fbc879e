package zgate

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"

	"zgame/zmsg"
)

// A resume token names a session and proves that its bearer is the client that has had it. It is good for one resume: each Welcome brings a new one.
//
//	version 1 | epoch uvarint | session 8 bytes | generation uvarint | secret 16 bytes | node id
//
// To clients it is an opaque string, base64 without padding.
type token struct {
	ref    zmsg.SessionRef
	secret secret
}

// secret is what cannot be guessed of a token.
type secret [16]byte

const (
	tokenVersion = 1
	maxToken     = 512 // characters
)

var errToken = errors.New("not a resume token")

// newSecret returns 128 random bits.
func newSecret() (s secret, err error) {
	_, err = rand.Read(s[:])
	return s, err
}

// is compares in a time that tells nothing.
func (s *secret) is(t *secret) bool { return subtle.ConstantTimeCompare(s[:], t[:]) == 1 }

// proof is a hash of the secret, for who is to recognise it and not to know it.
func (s *secret) proof() []byte {
	h := sha256.Sum256(s[:])
	return h[:]
}

// among reports whether s is the secret of now or, while that is good as well, the one before.
func (s *secret) among(now, before *secret, two bool) bool { return now.is(s) || two && before.is(s) }

// String encodes the token.
func (t *token) String() string {
	b := make([]byte, 0, 64)
	b = append(b, tokenVersion)
	b = binary.AppendUvarint(b, t.ref.Gate.Epoch)
	b = binary.LittleEndian.AppendUint64(b, t.ref.ID)
	b = binary.AppendUvarint(b, uint64(t.ref.Gen))
	b = append(b, t.secret[:]...)
	b = append(b, t.ref.Gate.ID...)
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseToken decodes what String has encoded, or says errToken.
func parseToken(s string) (t token, err error) {
	if len(s) > maxToken {
		return t, errToken
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) == 0 || b[0] != tokenVersion {
		return t, errToken
	}
	b = b[1:]
	var n int
	if t.ref.Gate.Epoch, n = binary.Uvarint(b); n <= 0 || len(b)-n < 8 {
		return t, errToken
	}
	b = b[n:]
	t.ref.ID, b = binary.LittleEndian.Uint64(b), b[8:]
	gen, n := binary.Uvarint(b)
	if n <= 0 || gen > 1<<32-1 || len(b)-n < len(t.secret) {
		return t, errToken
	}
	t.ref.Gen = uint32(gen)
	b = b[n+copy(t.secret[:], b[n:]):]
	t.ref.Gate.ID = string(b)
	if t.ref.ID == 0 || t.ref.Gate.ID == "" {
		return t, errToken
	}
	return t, nil
}
