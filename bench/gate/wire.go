//go:build linux

package gate

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/bench/benchpb"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// messageBytes is the size of a message's body.
const messageBytes = 64

// stamp writes when a message was published, and its number.
func stamp(body []byte, at, number int64) {
	binary.LittleEndian.PutUint64(body, uint64(at))
	binary.LittleEndian.PutUint64(body[8:], uint64(number))
}

func stampOf(body []byte) (at, number int64) {
	return int64(binary.LittleEndian.Uint64(body)), int64(binary.LittleEndian.Uint64(body[8:]))
}

// kind is what a message from a server is.
type kind int

const (
	answer  kind = iota // to the request with number
	push                // what was published, in body
	welcome             // the connection is ready
	other               // heartbeats and the like
	closed              // the server ends the connection
)

// message is what came from a server; body is valid until the next read.
type message struct {
	kind   kind
	number uint64
	body   []byte
	delay  time.Duration // of closed: the client is to wait so long before it connects again
}

// wire is how a client speaks to a server.
type wire interface {
	// request appends request number n, from 0.
	request(b []byte, n uint64) []byte
	// heartbeat is what an idle client sends now and then.
	heartbeat() []byte
	// next reads the first message of b; size 0 says that b holds no whole one.
	next(b []byte) (m message, size int, err error)
}

// tcpWire is 64 bytes, which begin with a number; pushed is the size of what is published, where that is what is read.
type tcpWire struct{ pushed int }

func (w *tcpWire) request(b []byte, n uint64) []byte {
	b = binary.LittleEndian.AppendUint64(b, n)
	return append(b, make([]byte, messageBytes-8)...)
}

func (w *tcpWire) heartbeat() []byte { return w.request(nil, 0) }

func (w *tcpWire) next(b []byte) (m message, size int, err error) {
	if w.pushed > 0 {
		if len(b) < w.pushed {
			return m, 0, nil
		}
		return message{kind: push, body: b[:w.pushed]}, w.pushed, nil
	}
	if len(b) < messageBytes {
		return m, 0, nil
	}
	return message{kind: answer, number: binary.LittleEndian.Uint64(b)}, messageBytes, nil
}

// gateWire is websocket, packet and frame. Requests are made before; only the number is put in.
type gateWire struct {
	stays    bool // the session is to outlive its connection, so the client says what has arrived
	template []byte
	at       int // of the number in it
	want     []byte
}

// firstSeq is the seq of request 0: from it on, for more than anybody sends, seqs take four bytes.
const firstSeq = 1 << 21

// newGateWire makes a wire whose requests have this id and body, which is what the answers are to have.
func newGateWire(id uint32, body []byte) *gateWire {
	const most = 1<<28 - 1
	b := masked(zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_REQUEST, ID: id, Seq: most, Body: body}))
	return &gateWire{template: b, at: bytes.Index(b, []byte{0xff, 0xff, 0xff, 0x7f}), want: body}
}

// rawBody and typedBody are 64 bytes, for an actor that looks at them and for one that has them decoded.
func rawBody() []byte { return make([]byte, messageBytes) }

func typedBody() []byte {
	b, _ := proto.Marshal(&benchpb.Parcel{Body: make([]byte, messageBytes-2)}) // it has no strings that could be wrong
	return b
}

// masked makes a client's websocket frame of a payload, with a mask of zeros.
func masked(payload []byte) []byte {
	b := []byte{0x82}
	if n := len(payload); n < 126 {
		b = append(b, 0x80|byte(n))
	} else {
		b = append(b, 0x80|126, byte(n>>8), byte(n))
	}
	return append(append(b, 0, 0, 0, 0), payload...)
}

func (w *gateWire) request(b []byte, n uint64) []byte {
	b = append(b, w.template...)
	seq := n + firstSeq
	p := b[len(b)-len(w.template)+w.at:]
	p[0], p[1], p[2], p[3] = byte(seq)|0x80, byte(seq>>7)|0x80, byte(seq>>14)|0x80, byte(seq>>21)
	return b
}

func (w *gateWire) heartbeat() []byte { return ping }

func (w *gateWire) next(b []byte) (m message, size int, err error) {
	if len(b) < 2 {
		return m, 0, nil
	}
	head, n := 2, int(b[1])
	switch {
	case n == 126 && len(b) < 4, n == 127 && len(b) < 10:
		return m, 0, nil
	case n == 126:
		head, n = 4, int(binary.BigEndian.Uint16(b[2:]))
	case n == 127:
		head, n = 10, int(binary.BigEndian.Uint64(b[2:]))
	}
	if len(b) < head+n {
		return m, 0, nil
	}
	payload := b[head : head+n]
	switch b[0] {
	case 0x82:
	case 0x88:
		return message{kind: closed, body: payload}, head + n, nil
	default:
		return message{kind: other}, head + n, nil
	}
	var f zmsg.Frame
	rest, err := zmsg.NextFrame(payload, &f)
	switch {
	case err != nil:
		return m, 0, err
	case len(rest) > 0:
		return m, 0, errors.New("bench: a message with two frames")
	}
	m, err = w.frame(&f)
	return m, head + n, err
}

func (w *gateWire) frame(f *zmsg.Frame) (m message, err error) {
	switch f.Kind {
	case wirepb.FrameKind_FRAME_KIND_RESPONSE:
		if f.Code != zmsg.CodeOK {
			return m, fmt.Errorf("bench: request %d was answered %v %s", f.Seq, f.Code, f.Text)
		}
		if f.Seq >= firstSeq && !bytes.Equal(f.Body, w.want) {
			return m, fmt.Errorf("bench: request %d was answered with %x", f.Seq, f.Body)
		}
		return message{kind: answer, number: f.Seq - firstSeq}, nil
	case wirepb.FrameKind_FRAME_KIND_PUSH:
		return message{kind: push, number: f.Seq, body: f.Body}, nil
	case wirepb.FrameKind_FRAME_KIND_CONTROL:
		var c wirepb.Control
		if err := proto.Unmarshal(f.Control, &c); err != nil {
			return m, err
		}
		switch c := c.GetControl().(type) {
		case *wirepb.Control_Welcome:
			return message{kind: welcome}, nil
		case *wirepb.Control_Closing:
			return message{kind: closed, delay: time.Duration(c.Closing.GetDelayMs()) * time.Millisecond}, nil
		}
		return message{kind: other}, nil
	default:
		return m, fmt.Errorf("bench: a frame of kind %d", f.Kind)
	}
}

// ackEvery is after how many answers a client whose session outlives its connection says what has arrived.
const ackEvery = 256

// ack appends that what has arrived has, if one of the last k of so many answers is one after which that is said.
func (w *gateWire) ack(b []byte, answers, k uint64) []byte {
	if !w.stays || answers/ackEvery == (answers-min(answers, k))/ackEvery {
		return b
	}
	return append(b, control(&wirepb.Control{Control: &wirepb.Control_Ack{Ack: &wirepb.Ack{Response: answers - 1 + firstSeq}}})...)
}

// control is a client's control frame on the wire.
func control(c *wirepb.Control) []byte {
	b, _ := proto.Marshal(c) // it has no strings that could be wrong
	return masked(zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_CONTROL, Control: b}))
}

// What a client sends besides requests.
var (
	upgrade = []byte("GET /ws HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: zgame.v1.pb\r\n\r\n")
	hello = control(&wirepb.Control{Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{Token: "ann"}}})
	stays = control(&wirepb.Control{Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{Token: "ann", ResumeWindowMs: 30_000}}})
	bye   = append([]byte{0x88, 0x82, 0, 0, 0, 0}, 0x03, 0xe8) // 1000
	ping  = control(&wirepb.Control{Control: &wirepb.Control_Ping{Ping: &wirepb.Ping{}}})
)

// joins is the request to get what is published, to all or to the slow ones.
func joins(id uint32) []byte {
	return masked(zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_REQUEST, ID: id, Seq: 1}))
}
