package zstore

import (
	"crypto/rand"
	"encoding/hex"
)

// WriteID names one write, so that a writer who got no answer can find out whether it landed. Random, never zero.
type WriteID [16]byte

// NewWriteID returns a new random id.
func NewWriteID() WriteID {
	var w WriteID
	for w.IsZero() {
		_, _ = rand.Read(w[:]) // never fails (crypto/rand since Go 1.24)
	}
	return w
}

// IsZero reports whether w names no write.
func (w WriteID) IsZero() bool { return w == WriteID{} }

// String returns w in hexadecimal, for logs.
func (w WriteID) String() string { return hex.EncodeToString(w[:]) }
