package zclient

import (
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// packet handles one message of the server; it runs on the reading goroutine. The bytes belong to the frames.
func (cn *conn) packet(packet []byte) error {
	for rest := packet; len(rest) > 0; {
		var f zmsg.Frame
		var err error
		if rest, err = zmsg.NextFrame(rest, &f); err != nil {
			return &Reason{Kind: KindProtocol, Err: err}
		}
		if err = cn.frame(&f); err != nil {
			return err
		}
	}
	return nil
}

func (cn *conn) frame(f *zmsg.Frame) error {
	if f.Kind == wirepb.FrameKind_FRAME_KIND_CONTROL {
		return cn.control(f)
	}
	if cn.welcomed.IsZero() {
		return &Reason{Kind: KindProtocol, Text: "a frame before Welcome"}
	}
	switch f.Kind {
	case wirepb.FrameKind_FRAME_KIND_RESPONSE:
		l := cn.forget(f.Seq)
		cn.client.session.response.Store(f.Seq)
		cn.came()
		if l != nil {
			l.done <- *f
		} else {
			cn.client.stats.late.Add(1)
		}
	case wirepb.FrameKind_FRAME_KIND_PUSH:
		if !cn.client.handlers.push(f.ID, f.Body) {
			return &Reason{Kind: KindSlow, Text: "handlers do not keep up with pushes"}
		}
		cn.client.session.push.Store(f.Seq)
		cn.came()
	default: // kinds of later versions are skipped
	}
	return nil
}

func (cn *conn) control(f *zmsg.Frame) error {
	var c wirepb.Control
	if err := proto.Unmarshal(f.Control, &c); err != nil {
		return &Reason{Kind: KindProtocol, Err: err}
	}
	switch c := c.GetControl().(type) {
	case *wirepb.Control_Welcome:
		if !cn.welcomed.IsZero() {
			return &Reason{Kind: KindProtocol, Text: "a second Welcome"}
		}
		cn.welcomed = time.Now()
		cn.client.welcomed(cn, c.Welcome)
		cn.mu.Lock()
		cn.session = sessionOf(c.Welcome)
		cn.mu.Unlock()
		cn.net.timeout.Store(int64(cn.session.Timeout))
	case *wirepb.Control_Ping:
		select {
		case cn.pong <- c.Ping.GetNonce():
		default: // a flood of pings: the pongs that wait are enough
		}
	case *wirepb.Control_Pong:
		if sent := cn.pingSent.Swap(0); sent != 0 && c.Pong.GetNonce() == uint64(sent) {
			cn.client.rtt.Store(max(1, time.Now().UnixNano()-sent))
		}
	case *wirepb.Control_Gap:
		k := zmsg.Key{Type: c.Gap.GetKeyType(), Zone: c.Gap.GetKeyZone(), ID: c.Gap.GetKeyId()}
		cn.client.stats.gaps.Add(1)
		if !cn.client.handlers.gap(Gap{k, c.Gap.GetMissed(), c.Gap.GetFirst(), c.Gap.GetLast()}) {
			return &Reason{Kind: KindSlow, Text: "handlers do not keep up with pushes"}
		}
		if last := c.Gap.GetLast(); last > 0 {
			cn.client.session.push.Store(last)
		}
	case *wirepb.Control_Warning:
		cn.client.stats.warnings.Add(1)
		cn.client.cfg.Logger.Warn("warned by the gate", "code", c.Warning.GetCode(), "text", c.Warning.GetText())
		if !cn.client.handlers.warning(Warning{int(c.Warning.GetCode()), c.Warning.GetText()}) {
			return &Reason{Kind: KindSlow, Text: "handlers do not keep up with pushes"}
		}
	case *wirepb.Control_Closing:
		cn.ending.delay = serverDelay(c.Closing.GetDelayMs())
		cn.ending.reason = &Reason{Kind: cn.closedKind(), Code: int(c.Closing.GetCode()), Text: c.Closing.GetText()}
	case *wirepb.Control_Goaway:
		if cn.ending.address = c.Goaway.GetAddress(); cn.ending.reason == nil {
			cn.goaway(serverDelay(c.Goaway.GetDelayMs()), c.Goaway.GetText())
		}
	}
	return nil
}

func serverDelay(ms uint32) time.Duration {
	return min(time.Duration(ms)*time.Millisecond, maxGoaway)
}

// goaway leaves the connection: after the delay no new requests begin, and when those in flight have ended, or had
// time to, it closes.
func (cn *conn) goaway(delay time.Duration, text string) {
	reason := &Reason{Kind: KindGoaway, Text: text}
	cn.mu.Lock()
	cn.leaving = reason
	cn.mu.Unlock()
	// Both timers are harmless on a connection that has ended: end only closes it once more.
	time.AfterFunc(delay, func() {
		if cn.drain() {
			cn.end(reason)
			return
		}
		time.AfterFunc(cn.client.cfg.DrainTimeout, func() { cn.end(reason) })
	})
}

// drain refuses new requests from now on; true when none is in flight.
func (cn *conn) drain() bool {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if cn.state == open {
		cn.state = draining
	}
	return cn.client.session.inFlight() == 0
}
