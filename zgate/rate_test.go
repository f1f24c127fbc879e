package zgate

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// warning returns the text of a Warning, "" of any other frame.
func warning(t *testing.T, f *zmsg.Frame) string {
	t.Helper()
	var m wirepb.Control
	if f.Control == nil || proto.Unmarshal(f.Control, &m) != nil || m.GetWarning() == nil {
		return ""
	}
	if m.GetWarning().GetCode() != uint32(CloseRate) {
		t.Errorf("a warning of code %d", m.GetWarning().GetCode())
	}
	return m.GetWarning().GetText()
}

// L1: above the rate requests are refused, the client is warned once, then the connection is closed; heartbeats are exempt, others not affected.
func TestRate(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Rate, c.Burst = 1, 20 })
	c, other := r.login("ann"), r.login("other")
	began := time.Now()
	for seq := range uint64(25) {
		c.send(request(idEcho, seq+1, ""))
	}
	codes, warnings := map[zmsg.Code]int{}, 0
	for n := 0; n < 25; {
		f := c.next()
		if w := warning(t, &f); w != "" {
			if warnings++; !strings.Contains(w, "1 requests per second") || codes[zmsg.CodeRateLimited] > 0 {
				t.Errorf("warning %q behind %v", w, codes)
			}
			continue
		}
		codes[f.Code]++
		n++
	}
	most := 21 + int(time.Since(began)/time.Second) // one more for each second that it took
	if codes[zmsg.CodeOK] < 20 || codes[zmsg.CodeOK] > most || codes[zmsg.CodeRateLimited]+codes[zmsg.CodeOK] != 25 || warnings != 1 {
		t.Fatalf("codes %v, %d warnings", codes, warnings)
	}
	c.control(&wirepb.Control{Control: &wirepb.Control_Ping{Ping: &wirepb.Ping{}}})
	if f := c.next(); f.Control == nil {
		t.Errorf("no Pong: %+v", f)
	}
	var b []byte
	for range 40 {
		b = zmsg.AppendPacketFrame(b, &zmsg.Frame{Kind: 1, ID: idEcho})
	}
	_ = c.ws.write(opBinary, b)
	if text, _ := c.closedWith(CloseRate); !strings.Contains(text, "1 requests per second") {
		t.Errorf("text %q does not name the limit", text)
	}
	other.echo("x")
	if n := r.counter("messages_total", "rate_limited"); n < 15 {
		t.Errorf("%v counted", n)
	}
	if n := r.counter("warnings_total"); n != 1 {
		t.Errorf("%v warnings counted", n)
	}
}

// The bytes of messages have a bucket too: what is above it is refused, warned of once, and then closed. One message of any
// allowed size is never too much by itself.
func TestByteRate(t *testing.T) {
	r := newRig(t, func(c *Config) { c.ByteRate, c.ByteBurst = 1, 64<<10 })
	c := r.login("ann")
	c.echo(strings.Repeat("x", 50_000))
	refused, warnings := 0, 0
	for seq := uint64(10); ; seq++ {
		if c.ws.write(opBinary, zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: 1, ID: idEcho, Seq: seq, Body: make([]byte, 30_000)})) != nil || seq == 12 {
			break
		}
		f := c.next()
		if warning(t, &f) != "" {
			warnings++
			f = c.next()
		}
		if f.Seq == seq && f.Code == zmsg.CodeRateLimited {
			refused++
		}
		c.control(&wirepb.Control{Control: &wirepb.Control_Ping{Ping: &wirepb.Ping{}}})
		if f := c.next(); f.Control == nil {
			t.Errorf("no Pong: %+v", f)
		}
	}
	if text, _ := c.closedWith(CloseRate); !strings.Contains(text, "1 bytes per second") {
		t.Errorf("text %q", text)
	}
	if refused != 2 || warnings != 1 {
		t.Errorf("%d refused, %d warnings", refused, warnings)
	}
}

// A client that keeps to its limits again for a while is warned anew the next time, and strikes do not add up.
func TestRateForgives(t *testing.T) {
	g := newRig(t).Gate
	a := &allowance{rate: 10, burst: 20, byteRate: 100, byteBurst: 200, inFlight: 1}
	c := &conn{g: g, nc: &deafConn{}, tr: &deafConn{}}
	c.corked.Store(true)
	s := &Session{g: g, rate: newRates(a, 0)}
	s.c.Store(c)
	now := g.born
	for round := range 5 {
		for range 20 + 10 { // half of what closes
			s.rate.message(s, 1, now)
			s.rate.request(s, now)
		}
		if !s.rate.warned || c.closingNow.Load() {
			t.Fatalf("round %d: warned %v, closed %v", round, s.rate.warned, c.closingNow.Load())
		}
		now = now.Add(2 * time.Second)
		if s.rate.message(s, 1, now); !s.rate.request(s, now) || s.rate.warned {
			t.Fatalf("round %d: not forgiven", round)
		}
		now = now.Add(time.Second)
	}
}

// L1: 100 clients that flood end by code, with a bounded number of log lines, and do not keep others from being served.
func TestFlood(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Rate, c.Burst = 100, 200 })
	other := r.login("other")
	var b []byte
	for range 60 {
		b = zmsg.AppendPacketFrame(b, &zmsg.Frame{Kind: 1, ID: idUnknown, Seq: 1})
	}
	flood := bytes.Repeat(maskedFrame(0x82, b), 170) // 10,000
	const clients = 100
	codes := make(chan CloseCode, clients)
	for range clients {
		c := r.dialRaw(true)
		c.hello("flood")
		go func() { _, _ = c.Write(flood) }() // ends with the connection
		go func() {
			for {
				b0, p, err := c.wsRead()
				if err != nil {
					codes <- 0
					return
				}
				if b0 == 0x88 && len(p) >= 2 {
					codes <- CloseCode(p[0])<<8 | CloseCode(p[1])
					return
				}
			}
		}()
	}
	for range clients {
		other.echo("still here")
		if code := <-codes; code != CloseRate {
			t.Errorf("closed with %d", code)
		}
	}
	warn := 0
	for line := range strings.Lines(r.log.String()) {
		if !strings.Contains(line, "level=DEBUG") {
			warn++
		}
	}
	if most := 10 + 3*int(time.Since(r.born)/time.Second); warn > most {
		t.Errorf("%d log lines above debug, expected at most %d:\n%.3000s", warn, most, r.log)
	}
}

func TestHeartbeatFlood(t *testing.T) {
	r := newRig(t)
	for _, kind := range []string{"websocket ping", "websocket pong", "Ping"} {
		c := r.dialRaw(true)
		c.hello("ann")
		var ping []byte
		switch kind {
		case "websocket ping":
			ping = maskedFrame(0x89, []byte("x"))
		case "websocket pong":
			ping = maskedFrame(0x8a, []byte("x"))
		default:
			ping = maskedFrame(0x82, zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: 4, Control: control(
				&wirepb.Control{Control: &wirepb.Control_Ping{Ping: &wirepb.Ping{Nonce: 1}}})}))
		}
		go func() { _, _ = c.Write(bytes.Repeat(ping, 1000)) }()
		if code, _ := c.closeCode(); code != CloseRate {
			t.Errorf("%s: closed with %d", kind, code)
		}
	}
}

// L2: connections beyond the accept rate are closed at once, and counted; those of an address that is at its limit do not use up
// the tokens of others.
func TestAcceptRate(t *testing.T) {
	r := newRig(t, func(c *Config) { c.AcceptRate, c.AcceptBurst, c.MaxPerIP = 1, 3, 2 })
	a, b := r.login("a"), r.login("b")
	for range 20 { // refused for their address
		c := r.dialRaw(false)
		_, err := c.Read(make([]byte, 1))
		if ne, ok := errors.AsType[net.Error](err); err == nil || ok && ne.Timeout() {
			t.Fatalf("not closed: %v", err)
		}
	}
	if r.counter("refused_total", "accept_rate") != 0 || r.counter("refused_total", "address") != 20 {
		t.Errorf("refused: %v, %v", r.counter("refused_total", "accept_rate"), r.counter("refused_total", "address"))
	}
	a.echo("x")
	b.echo("x")

	r = newRig(t, func(c *Config) { c.AcceptRate, c.AcceptBurst = 1, 3 })
	for range 40 {
		r.dialRaw(false)
	}
	eventually(t, "counted", func() bool { return r.counter("refused_total", "accept_rate") >= 1 })
	eventually(t, "let in again", func() bool {
		c, err := r.tryDial(dialing{})
		if err == nil {
			c.hello("late")
		}
		return err == nil
	})
}
