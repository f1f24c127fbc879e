package zgate

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"

	"zgame/zmsg"
)

// A resume token names a session and proves that its bearer is the client that has had it. It is good for one resume: each Welcome brings a new one.
// Its secret is another one each time; its key is the session's, for the directory of users, which is to know a token of a gate that is gone, and so had no time to say which
// were its last: docs/decisions/0029.
//
//	version 2 | epoch uvarint | session 8 bytes | generation uvarint | secret 16 bytes | key 16 bytes | node id
//
// To clients it is an opaque string, base64 without padding.
type token struct {
	ref    zmsg.SessionRef
	secret secret
	key    secret
}

// secret is what cannot be guessed of a token.
type secret [16]byte

const (
	tokenVersion = 2
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

// secrets are those of the tokens that a client may have, the newest last: the one that it was heard to have last, and all that it was sent since. Which
// of the Welcomes with these have arrived nobody knows, nor in which order gates hear of it that the client comes with one of them.
type secrets []secret

// maxSecrets is how many tokens of one session are good: a client that does not get as many Welcomes in a row comes with the one that it has, which stays.
const maxSecrets = 8

// has compares in a time that tells nothing.
func (t secrets) has(s *secret) bool {
	found := false
	for i := range t {
		found = t[i].is(s) || found
	}
	return found
}

// bytes is t for the wire.
func (t secrets) bytes() (all [][]byte) {
	for i := range t {
		all = append(all, t[i][:])
	}
	return all
}

// newest is that of the token that was sent last.
func (t secrets) newest() *secret { return &t[len(t)-1] }

// shown forgets those that are older than s, which the client has.
func (t secrets) shown(s *secret) secrets {
	for i := range t {
		if t[i].is(s) {
			return t[i:]
		}
	}
	return t
}

// with adds that of a token that is about to be sent. The first is the one that the client was heard to have.
func (t secrets) with(s secret) secrets {
	if len(t) >= maxSecrets {
		t = slices.Delete(t, 1, 2)
	}
	return append(t, s)
}

// String encodes the token.
func (t *token) String() string {
	b := make([]byte, 0, 80)
	b = append(b, tokenVersion)
	b = binary.AppendUvarint(b, t.ref.Gate.Epoch)
	b = binary.LittleEndian.AppendUint64(b, t.ref.ID)
	b = binary.AppendUvarint(b, uint64(t.ref.Gen))
	b = append(b, t.secret[:]...)
	b = append(b, t.key[:]...)
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
	if n <= 0 || gen > 1<<32-1 || len(b)-n < len(t.secret)+len(t.key) {
		return t, errToken
	}
	t.ref.Gen = uint32(gen)
	b = b[n+copy(t.secret[:], b[n:]):]
	b = b[copy(t.key[:], b):]
	t.ref.Gate.ID = string(b)
	if t.ref.ID == 0 || t.ref.Gate.ID == "" {
		return t, errToken
	}
	return t, nil
}
