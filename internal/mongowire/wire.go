// Package mongowire is enough of MongoDB's wire protocol for tests: it cuts a byte stream into messages, tells the name
// of a command, and frames replies. Documents stay bytes. A scripted server (tests of mongostore) and a proxy (module
// zgame/test) are made of it.
//
// A message is a header of four little-endian int32 (length of all, request id, response to, opcode) and a body:
//
//	OP_MSG   2013  flags uint32, then sections: 0x00 document, 0x01 int32 size, name cstring, documents
//	OP_QUERY 2004  flags uint32, collection cstring, skip int32, limit int32, document (the first hello alone)
//	OP_REPLY 1     flags uint32, cursor int64, start int32, number int32, documents (the answer to it)
//
// Specification: https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol/
package mongowire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	opReply = 1
	opQuery = 2004
	opMsg   = 2013

	headerLen = 16
	maxLen    = 48_000_000 // what servers announce as maxMessageSizeBytes

	flagChecksum   = 1 << 0
	flagMoreToCome = 1 << 1
)

// ErrMalformed says that the bytes are no message that this package knows.
var ErrMalformed = errors.New("mongowire: malformed message")

// Message is one message with its header.
type Message []byte

// Read reads one message.
func Read(r io.Reader) (Message, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := int(int32(binary.LittleEndian.Uint32(head[:])))
	if n < headerLen || n > maxLen {
		return nil, fmt.Errorf("%w: length %d", ErrMalformed, n)
	}
	m := make(Message, n)
	copy(m, head[:])
	if _, err := io.ReadFull(r, m[4:]); err != nil {
		return nil, err
	}
	return m, nil
}

func (m Message) int32(at int) int32 { return int32(binary.LittleEndian.Uint32(m[at:])) }

func (m Message) op() int32 { return m.int32(12) }

// MoreToCome reports a request whose sender does not want a reply.
func (m Message) MoreToCome() bool {
	return m.op() == opMsg && len(m) >= headerLen+4 && m.int32(headerLen)&flagMoreToCome != 0
}

// Command returns the command's document; of an OP_MSG without the document sequences beside it.
func (m Message) Command() ([]byte, error) {
	b := m[headerLen:]
	switch m.op() {
	case opQuery:
		if len(b) < 4 {
			return nil, ErrMalformed
		}
		name := bytes.IndexByte(b[4:], 0)
		if name < 0 || len(b) < 4+name+1+8 {
			return nil, ErrMalformed
		}
		return document(b[4+name+1+8:])
	case opMsg:
		if len(b) < 4 {
			return nil, ErrMalformed
		}
		end := len(b)
		if binary.LittleEndian.Uint32(b)&flagChecksum != 0 {
			end -= 4
		}
		for at := 4; at < end; {
			kind, rest := b[at], b[at+1:end]
			if kind == 0 {
				return document(rest)
			}
			if kind != 1 || len(rest) < 4 {
				return nil, ErrMalformed
			}
			size := int(binary.LittleEndian.Uint32(rest))
			if size < 5 || size > len(rest) {
				return nil, ErrMalformed
			}
			at += 1 + size
		}
	}
	return nil, fmt.Errorf("%w: opcode %d without a document", ErrMalformed, m.op())
}

func document(b []byte) ([]byte, error) {
	if len(b) < 5 {
		return nil, ErrMalformed
	}
	n := int(int32(binary.LittleEndian.Uint32(b)))
	if n < 5 || n > len(b) {
		return nil, ErrMalformed
	}
	return b[:n], nil
}

// Name returns the command's name, which is the name of the document's first element; "" for anything else.
func (m Message) Name() string {
	doc, err := m.Command()
	if err != nil || len(doc) < 6 {
		return ""
	}
	name, _, ok := bytes.Cut(doc[5:], []byte{0}) // after the length and the element's type
	if !ok {
		return ""
	}
	return string(name)
}

// Reply frames doc as the answer to m, in the form that m's sender understands.
func (m Message) Reply(doc []byte) Message {
	out := make(Message, headerLen, headerLen+20+len(doc))
	if m.op() == opQuery {
		binary.LittleEndian.PutUint32(out[12:], opReply)
		out = append(out, make([]byte, 16)...)
		out = binary.LittleEndian.AppendUint32(out, 1)
	} else {
		binary.LittleEndian.PutUint32(out[12:], opMsg)
		out = append(out, 0, 0, 0, 0, 0)
	}
	out = append(out, doc...)
	binary.LittleEndian.PutUint32(out, uint32(len(out)))
	copy(out[8:], m[4:8]) // response to
	return out
}
