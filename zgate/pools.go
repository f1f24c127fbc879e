package zgate

import (
	"bufio"
	"bytes"
	"sync"

	"google.golang.org/protobuf/proto"
)

// maxPooled is the largest buffer that goes back to a pool.
const maxPooled = 64 << 10

// messages are buffers of incoming messages.
var messages = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// scratch is memory for one outgoing frame.
type scratch struct{ body, frame []byte }

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func (b *scratch) marshal(m proto.Message) ([]byte, error) {
	out, err := proto.MarshalOptions{}.MarshalAppend(b.body[:0], m)
	if err == nil {
		b.body = out
	}
	return out, err
}

func (b *scratch) free() {
	if cap(b.body) <= maxPooled && cap(b.frame) <= maxPooled {
		scratches.Put(b)
	}
}

// requestReaders are for the HTTP part of the handshake.
var requestReaders = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4<<10) }}
