package zclient

import (
	"fmt"
	"time"

	"github.com/gorilla/websocket"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// submit queues a frame for writing; l is nil for a one-way message. It does not wait.
func (cn *conn) submit(f *zmsg.Frame, l *call) error {
	if len(f.Body) > cn.session.MaxMessage-maxFrameHead {
		return &zmsg.Error{Code: zmsg.CodeTooLarge, Outcome: zmsg.NotExecuted, Text: fmt.Sprintf(
			"the message has %d bytes, this session's limit is %d (gate.max_message)", len(f.Body), cn.session.MaxMessage-maxFrameHead)}
	}
	cn.mu.Lock()
	defer cn.mu.Unlock()
	switch {
	case cn.state != open:
		return &zmsg.Error{Code: zmsg.CodeUnavailable, Outcome: zmsg.NotExecuted, Text: "the connection is ending"}
	case l != nil && cn.client.session.inFlight() >= cn.session.MaxInFlight:
		return &zmsg.Error{Code: zmsg.CodeBusy, Outcome: zmsg.NotExecuted, Text: "too many requests are in flight"}
	}
	if len(cn.out) == cap(cn.out) { // who adds holds mu
		return &zmsg.Error{Code: zmsg.CodeBusy, Outcome: zmsg.NotExecuted, Text: "too much waits to be written"}
	}
	if l != nil {
		f.Seq = cn.client.seq.Add(1) // in the order in which they are written
		l.frame = *f
		cn.client.session.add(f.Seq, l)
	}
	cn.out <- outgoing{*f, l}
	return nil
}

// maxFrameHead is what a frame has around its body in a packet, at most.
const maxFrameHead = 64

// forget takes a request off the list of those in flight; nil when it is not there. The last one of a draining
// connection closes it.
func (cn *conn) forget(seq uint64) *call {
	cn.mu.Lock()
	l, left := cn.client.session.take(seq)
	last := cn.state == draining && left == 0
	reason := cn.leaving
	cn.mu.Unlock()
	if last {
		cn.end(reason)
	}
	return l
}

// hello opens the conversation. It runs before write does.
func (cn *conn) hello(token, name string) error {
	f, err := control(&wirepb.Control{Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{
		Token: token, Version: wireVersion, Client: name, ResumeWindowMs: uint32(max(0, cn.client.cfg.ResumeWindow.Milliseconds())),
		Resume: cn.client.session.resume(), LastPush: cn.client.session.push.Load(), LastSeq: cn.client.seq.Load(),
	}}})
	if err != nil {
		return &Reason{Kind: KindToken, Err: err}
	}
	return cn.send(zmsg.AppendPacketFrame(nil, &f), cn.client.cfg.HandshakeTimeout)
}

func (cn *conn) send(packet []byte, timeout time.Duration) error {
	if err := cn.ws.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	return cn.ws.WriteMessage(websocket.BinaryMessage, packet)
}

// write writes what is queued, heartbeats and pongs, until the connection ends. What waits goes out in one packet, so
// there is no wait when the connection is idle and few system calls when it is busy.
func (cn *conn) write() {
	heartbeat := time.NewTicker(cn.session.Heartbeat)
	defer heartbeat.Stop()
	acks := time.NewTimer(time.Hour) // runs while something waits for its Ack
	acks.Stop()
	defer acks.Stop()
	buf := cn.ping(cn.ack(nil)) // the first Ack shows that we have a token, the first Ping measures the round trip
	var err error
	for i, n := 0, 3; i < len(cn.first) && err == nil; i++ {
		buf, n, err = cn.add(buf, n, cn.first[i])
	}
	cn.first = nil
	if err == nil {
		err = cn.send(buf, cn.session.Timeout)
	}
	for err == nil {
		buf = buf[:0]
		select {
		case <-cn.gone:
			return
		case <-cn.bye:
			cn.sayGoodbye(buf)
			return
		case <-heartbeat.C:
			buf = cn.ping(buf)
		case <-cn.acks:
			acks.Reset(ackDelay)
		case <-acks.C:
			buf = cn.ack(buf)
		case nonce := <-cn.pong:
			f, e := control(&wirepb.Control{Control: &wirepb.Control_Pong{Pong: &wirepb.Pong{Nonce: nonce}}})
			if e == nil {
				buf = zmsg.AppendPacketFrame(buf, &f)
			}
		case o := <-cn.out:
			buf, err = cn.pack(buf, o)
		}
		if len(buf) > 0 && err == nil {
			err = cn.send(buf, cn.session.Timeout)
		}
	}
	_ = cn.ws.Close() // reading ends, and with it everything else
}

// pack appends o and what waits behind it to the packet in buf; a packet that is full is sent.
func (cn *conn) pack(buf []byte, o outgoing) ([]byte, error) {
	for n := 1; ; {
		var err error
		if buf, n, err = cn.add(buf, n, o); err != nil {
			return nil, err
		}
		select {
		case o = <-cn.out:
		default:
			return buf, nil
		}
	}
}

// add appends o as the n-th frame of the packet in buf, which is sent first where it is full. It returns the number of the next.
func (cn *conn) add(buf []byte, n int, o outgoing) ([]byte, int, error) {
	if n > maxFrames || (len(buf) > 0 && len(buf)+len(o.frame.Body)+maxFrameHead > cn.session.MaxMessage) {
		if err := cn.send(buf, cn.session.Timeout); err != nil {
			return nil, n, err
		}
		buf, n = buf[:0], 1
	}
	// From here on the request may run: it counts as written.
	if o.call == nil || o.call.write() {
		buf = zmsg.AppendPacketFrame(buf, &o.frame)
	}
	return buf, n + 1, nil
}

func (cn *conn) ping(buf []byte) []byte {
	now := time.Now().UnixNano()
	f, err := control(&wirepb.Control{Control: &wirepb.Control_Ping{Ping: &wirepb.Ping{Nonce: uint64(now)}}})
	if err != nil {
		return buf
	}
	cn.pingSent.Store(now)
	return zmsg.AppendPacketFrame(buf, &f)
}

// sayGoodbye writes what still waits and the close frame; the server's answer ends reading.
func (cn *conn) sayGoodbye(buf []byte) {
	select {
	case o := <-cn.out:
		if buf, err := cn.pack(buf, o); err == nil && len(buf) > 0 {
			_ = cn.send(buf, closeTimeout)
		}
	default:
	}
	err := cn.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""),
		time.Now().Add(closeTimeout))
	if err != nil {
		_ = cn.ws.Close()
	}
}
