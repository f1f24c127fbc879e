package zgate

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// The bytes of a push are those that the codec would make of its frame, in both codecs.
func TestPushBytesAreTheCodecs(t *testing.T) {
	r := newRig(t)
	for _, text := range []bool{false, true} {
		for _, id := range []uint32{0, 1, 300, 1 << 31} {
			for _, n := range []int{0, 1, 100, 126, 1023, 1024, 70_000} {
				c := &conn{g: r.Gate, nc: &deafConn{}}
				c.text.Store(text)
				c.corked.Store(true)
				s := &Session{g: r.Gate, pushes: 127}
				s.c.Store(c)
				body := bytes.Repeat([]byte{'x'}, n)
				e, err := r.encode(&zmsg.Push{ID: id, Body: body}, true)
				if err != nil {
					t.Fatal(err)
				}
				c.q.mu.Lock()
				s.appendPushLocked(c, &e)
				var got []byte
				for _, seg := range c.q.segs {
					got = append(got, seg.b...)
				}
				if len(got) != c.q.queued {
					t.Errorf("%d bytes, accounted %d", len(got), c.q.queued)
				}
				c.q.mu.Unlock()
				f := zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_PUSH, ID: id, Seq: 128, Body: body}
				if !text {
					payload := zmsg.AppendPacketFrame(nil, &f)
					if want := append(appendWSHeader(nil, opBinary, len(payload)), payload...); !bytes.Equal(got, want) {
						t.Errorf("id %d, %d bytes: %x..., expected %x...", id, n, got[:20], want[:20])
					}
					continue
				}
				h := len(got) - int(payloadSize(got))
				frames, err := zmsg.DecodeText(got[h:], nil)
				if err != nil || len(frames) != 1 || frames[0].Err != nil || frames[0].Frame.Seq != 128 ||
					frames[0].Frame.ID != id || !bytes.Equal(frames[0].Frame.Body, body) || frames[0].Frame.Kind != f.Kind {
					t.Errorf("text, id %d, %d bytes: %.100q %v", id, n, got, err)
				}
			}
		}
	}
}

func payloadSize(frame []byte) uint64 {
	switch frame[1] {
	case 126:
		return uint64(binary.BigEndian.Uint16(frame[2:]))
	case 127:
		return binary.BigEndian.Uint64(frame[2:])
	}
	return uint64(frame[1])
}

// A broadcast is encoded once for each codec, whatever the number of members, and its input is not changed (F8).
func TestBroadcastIsEncodedOnce(t *testing.T) {
	reg, err := zmsg.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(c *Config) { c.Registry = reg })
	var all []*client
	for i := range 20 {
		c := r.login("ann", dialing{text: i%2 == 1})
		c.reg = reg
		if err := r.Join(c.ref(), "room"); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	value := &wirepb.SessionClosed{Session: 42, Reason: strings.Repeat("r", 2000)}
	before := proto.Clone(value)
	const n = 50
	for range n {
		if ok, failed := r.PublishLocal("room", &zmsg.Push{ID: zmsg.SessionClosedID, Value: value}); ok != 20 || failed != 0 {
			t.Fatalf("delivered %d, failed %d", ok, failed)
		}
	}
	for _, c := range all {
		for i := range n {
			f := c.next()
			var got wirepb.SessionClosed
			if err := proto.Unmarshal(f.Body, &got); err != nil || f.Seq != uint64(i+1) || !proto.Equal(&got, before) {
				t.Fatalf("text %v: push %d: %+v", c.text, i, f)
			}
		}
	}
	if !proto.Equal(value, before) {
		t.Error("the value was changed")
	}
	for _, codec := range []string{"pb", "text"} {
		if got := r.counter("push_encodes_total", codec); got != n {
			t.Errorf("%s: %v encodes", codec, got)
		}
	}
}

// W1: a kick while others push: whatever the moment, the last thing that the client reads is the reason.
func TestKickIsTheLastThing(t *testing.T) {
	r := newRig(t)
	rounds := 100
	if testing.Short() {
		rounds = 20
	}
	for i := range rounds {
		c := r.login("ann")
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for range 3000 { // less than the queue holds
					if r.Push(c.ref(), &zmsg.Push{ID: 1, Body: []byte("x")}) != nil {
						return
					}
				}
			})
		}
		if i%2 == 0 {
			c.next()
		}
		wg.Go(func() { _ = r.Kick(c.ref(), 4000+uint32(i), "reason") })
		if text, _ := c.closedWith(CloseCode(4000 + i)); text != "reason" {
			t.Fatalf("text %q", text)
		}
		wg.Wait()
		c.ws.end()
	}
}

// W2: a hundred pushers, pings, and a close: every frame is whole, every number is there, each pusher's order holds.
func TestManyWriters(t *testing.T) {
	r := newRig(t, func(c *Config) { c.QueueBytes = 64 << 20 })
	for _, o := range []dialing{{}, {coder: true}, {text: true}} {
		c := r.login("ann", o)
		const pushers, each = 100, 30
		var wg sync.WaitGroup
		for p := range pushers {
			wg.Go(func() {
				for i := range each {
					if err := r.Push(c.ref(), &zmsg.Push{ID: uint32(p + 1), Body: fmt.Appendf(nil, "%d%s", i, strings.Repeat(".", i*20))}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		next := map[uint32]int{}
		for n := range pushers * each {
			f := c.next()
			if f.Seq != uint64(n+1) {
				t.Fatalf("push %d has number %d", n+1, f.Seq)
			}
			if want := fmt.Sprintf("%d%s", next[f.ID], strings.Repeat(".", next[f.ID]*20)); string(f.Body) != want {
				t.Fatalf("pusher %d: %q, expected %q", f.ID, f.Body, want)
			}
			next[f.ID]++
		}
		wg.Wait()
		_ = r.Kick(c.ref(), 0, "")
		c.closedWith(CloseKicked)
	}
}

// W5, W9: a client that does not read is closed as slow when its queue is full, and never blocks a sender. Nothing
// reliable is lost before: what it reads in the end is whole and without a hole, up to the reason or the end.
func TestStalledClientIsClosed(t *testing.T) {
	r := newRig(t, withSmallBuffers(t), func(c *Config) { c.QueueBytes = 64 << 10 })
	c, ref := r.stall("ann")
	pushed := 0
	for i := range 70_000 {
		err := r.Push(ref, &zmsg.Push{ID: 1, Body: []byte("tiny")})
		if err != nil {
			if !errors.Is(err, ErrSlow) {
				t.Fatalf("push %d: %v", i, err)
			}
			break
		}
		pushed++
	}
	if pushed == 70_000 {
		t.Fatal("never closed")
	}
	if err := r.Push(ref, &zmsg.Push{ID: 1}); !errors.Is(err, ErrClosed) && !errors.Is(err, ErrNoSession) {
		t.Errorf("push after the end: %v", err)
	}
	_ = c.tcp.SetReadBuffer(1 << 20)
	var seq uint64
	for {
		b0, p, err := c.wsRead()
		if err != nil {
			t.Fatalf("after %d of %d pushes: %v", seq, pushed, err)
		}
		if b0 == 0x88 {
			if code := CloseCode(binary.BigEndian.Uint16(p)); code != CloseSlow {
				t.Errorf("closed with %d", code)
			}
			break
		}
		var f zmsg.Frame
		if _, err := zmsg.NextFrame(p, &f); err != nil {
			t.Fatal(err)
		}
		if f.Control == nil {
			if seq++; f.Seq != seq {
				t.Fatalf("push %d has number %d", seq, f.Seq)
			}
		}
	}
	if seq != uint64(pushed) {
		t.Errorf("%d of %d pushes", seq, pushed)
	}
	_ = c.Close()
	eventually(t, "counted", func() bool { return r.counter("closes_total", "slow") == 1 })
}

// A client that goes on not reading is cut; its queue's age is a limit of its own, without a full queue.
func TestQueueAge(t *testing.T) {
	r := newRig(t, withSmallBuffers(t), func(c *Config) { c.QueueAge = 100 * time.Millisecond })
	_, ref := r.stall("ann")
	eventually(t, "closed as slow", func() bool {
		if r.Sessions() == 1 {
			r.fill(ref) // the kernel may still be making room
		}
		return r.counter("closes_total", "slow") == 1
	})
	eventually(t, "forgotten", func() bool { return r.Sessions() == 0 && r.counter("connections") == 0 })
}

// W6: with a client that does not read, Push, Reply, Kick and PublishLocal return at once; W9: what each class does.
func TestStalledClientBlocksNobody(t *testing.T) {
	r := newRig(t, withSmallBuffers(t), func(c *Config) { c.QueueBytes, c.CloseTimeout = 64<<10, 100*time.Millisecond })
	_, ref := r.stall("ann")
	healthy := r.login("bob")
	s := r.fill(ref)
	for _, f := range []zmsg.SessionRef{ref, healthy.ref()} {
		if err := r.Join(f, "room"); err != nil {
			t.Fatal(err)
		}
	}
	// Volatile: dropped from a quarter of the queue on, said and counted; the session lives.
	dropped := 0
	for range 1000 {
		switch err := s.Push(&zmsg.Push{ID: 2, Body: make([]byte, 100), Class: zmsg.Volatile}); {
		case errors.Is(err, ErrDropped):
			dropped++
		case err != nil:
			t.Fatal(err)
		}
	}
	if dropped == 0 || r.counter("drops_total", "volatile") != float64(dropped) {
		t.Errorf("%d dropped, %v counted", dropped, r.counter("drops_total", "volatile"))
	}
	// A broadcast reports it. The kernel may have made room since, so the queue is filled up to where pushes are dropped before.
	eventually(t, "a broadcast reports it", func() bool {
		for s.Push(&zmsg.Push{ID: 2, Body: make([]byte, 100), Class: zmsg.Volatile}) == nil {
		}
		ok, failed := r.PublishLocal("room", &zmsg.Push{ID: 3, Body: make([]byte, 100), Class: zmsg.Volatile})
		return ok == 1 && failed == 1
	})
	// Latest: the newest of an id stays, and they do not pile up.
	for i := range 10_000 {
		if err := s.Push(&zmsg.Push{ID: 4 + uint32(i%2), Body: []byte("state"), Class: zmsg.Latest}); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.counter("drops_total", "replaced"); n == 0 { // 9998 if the socket takes nothing more at all
		t.Errorf("%v replaced", n)
	}
	// A reply is never dropped in silence: the client is closed instead.
	for i := 0; ; i++ {
		s.respond(uint64(i), &zmsg.Reply{ID: 1, Body: make([]byte, 1000)}, false)
		if s.c.Load().closingNow.Load() {
			break
		}
		if i > 1000 {
			t.Fatal("not closed")
		}
	}
	if err := r.Kick(ref, 4000, "x"); err != nil && !errors.Is(err, ErrNoSession) {
		t.Fatal(err)
	}
	if f := healthy.next(); f.ID != 3 {
		t.Errorf("the healthy one got %+v", f)
	}
	healthy.echo("x")
	eventually(t, "the stalled one is gone", func() bool { return r.Sessions() == 1 })
	if n := r.counter("closes_total", "slow"); n != 1 {
		t.Errorf("closed: %v", n)
	}
}

// Latest pushes that waited arrive when the client reads again: the newest of each thing, behind what was queued, numbers without a
// hole.
func TestLatestArrives(t *testing.T) {
	r := newRig(t, withSmallBuffers(t))
	c, ref := r.stall("ann")
	s := r.fill(ref)
	for i := range 10 {
		for _, of := range []string{"a", "b", "c"} {
			if err := s.Push(&zmsg.Push{ID: 2, Body: fmt.Appendf(nil, "%s %d", of, i), Class: zmsg.Latest, Of: of}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Push(&zmsg.Push{ID: 2, Class: zmsg.Latest, Of: strings.Repeat("x", zmsg.MaxOf+1)}); !errors.Is(err, zmsg.ErrBadRequest) {
		t.Errorf("too long: %v", err)
	}
	var seq uint64
	for want := []string{"a 9", "b 9", "c 9"}; len(want) > 0; {
		_, p, err := c.wsRead()
		if err != nil {
			t.Fatal(err)
		}
		var f zmsg.Frame
		if _, err := zmsg.NextFrame(p, &f); err != nil {
			t.Fatal(err)
		}
		if seq++; f.Seq != seq {
			t.Fatalf("push %d has number %d", seq, f.Seq)
		}
		if f.ID == 2 {
			if string(f.Body) != want[0] {
				t.Errorf("got %q, want %q", f.Body, want[0])
			}
			want = want[1:]
		}
	}
	// The writer goroutine ends with the queue.
	eventually(t, "queue empty", func() bool {
		s.c.Load().q.mu.Lock()
		defer s.c.Load().q.mu.Unlock()
		return !s.c.Load().q.writer && s.c.Load().q.queued == 0
	})
}

// A frame larger than the queue fits when nothing else waits.
func TestLargePush(t *testing.T) {
	r := newRig(t, func(c *Config) { c.QueueBytes = 4 << 10 })
	c := r.login("ann")
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if err := r.Push(c.ref(), &zmsg.Push{ID: 1, Body: body}); err != nil {
		t.Fatal(err)
	}
	if f := c.next(); !bytes.Equal(f.Body, body) {
		t.Errorf("%d bytes", len(f.Body))
	}
	c.echo("x")
}

// What no client would take is not sent: its asker, or its sender, is told, and the connection goes on.
func TestMaxSend(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxSend = 4 << 10 })
	fits, above := bytes.Repeat([]byte("x"), 4<<10), bytes.Repeat([]byte("x"), 4<<10+1)
	for _, o := range []dialing{{}, {text: true}} {
		c := r.login("ann", o)
		if err := r.Push(c.ref(), &zmsg.Push{ID: 1, Body: above}); !errors.Is(err, zmsg.ErrTooLarge) {
			t.Errorf("push above the limit: %v", err)
		}
		if delivered, failed := r.PushIDs([]uint64{c.ref().ID}, &zmsg.Push{ID: 1, Body: above}); delivered != 0 || failed != 1 {
			t.Errorf("push by id above the limit: %d delivered, %d failed", delivered, failed)
		}
		c.send(request(idHeld, 1, ""), request(idHeld, 2, ""))
		(<-r.held).Reply(&zmsg.Reply{ID: 8, Body: above})
		if f := c.next(); f.Code != zmsg.CodeTooLarge || f.Outcome != zmsg.Executed || f.Seq != 1 || f.Text == "" {
			t.Errorf("response above the limit: %+v", f)
		}
		(<-r.held).Reply(&zmsg.Reply{ID: 8, Body: fits})
		if f := c.next(); f.Code != zmsg.CodeOK || len(f.Body) != len(fits) || f.Seq != 2 {
			t.Errorf("response at the limit: code %v, %d bytes", f.Code, len(f.Body))
		}
	}
}

func TestPushIDs(t *testing.T) {
	r := newRig(t)
	var ids []uint64
	var all []*client
	for range 12 {
		c := r.login("ann")
		all, ids = append(all, c), append(ids, c.ref().ID)
	}
	body := bytes.Repeat([]byte("b"), 2000)
	if ok, failed := r.PushIDs(append(ids, 1), &zmsg.Push{ID: 5, Body: body}); ok != 12 || failed != 1 {
		t.Errorf("delivered %d, failed %d", ok, failed)
	}
	clear(body) // it is the caller's again
	for _, c := range all {
		if f := c.next(); string(f.Body) != strings.Repeat("b", 2000) {
			t.Errorf("%.10q", f.Body)
		}
	}
}

// H8: however a client goes, its session ends once, with a reason; also while something is being written to it.
func TestClientGoes(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Tell = func(zmsg.Address, *zmsg.Message) error { return nil } })
	for name, tt := range map[string]struct {
		leave  func(c raw)
		reason string
	}{
		"close frame": {func(c raw) { c.frame(0x88, websocket.FormatCloseMessage(1001, "away")) }, "client"},
		"bare close":  {func(c raw) { c.frame(0x88, nil) }, "client"},
		"fin":         {func(c raw) { _ = c.tcp.CloseWrite() }, "lost"},
		"reset": {func(c raw) {
			_ = c.tcp.SetLinger(0)
			_ = c.Close()
		}, "lost"},
	} {
		for _, busy := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/busy=%v", name, busy), func(t *testing.T) {
				before := r.counter("closes_total", tt.reason)
				c := r.dialRaw(true)
				ref := c.hello("ann")
				stop := make(chan struct{})
				var wg sync.WaitGroup
				if busy {
					wg.Go(func() {
						for {
							select {
							case <-stop:
								return
							default:
								_ = r.Push(ref, &zmsg.Push{ID: 1, Body: make([]byte, 100), Class: zmsg.Volatile})
							}
						}
					})
					if _, _, err := c.wsRead(); err != nil {
						t.Fatal(err)
					}
				}
				tt.leave(c)
				if name == "close frame" || name == "bare close" {
					go func() { _, _ = io.Copy(io.Discard, c) }()
				}
				eventually(t, "session gone", func() bool { return r.Sessions() == 0 })
				close(stop)
				wg.Wait()
				eventually(t, "one close", func() bool { return r.counter("closes_total", tt.reason) == before+1 })
			})
		}
	}
	if n := r.counter("closes_total"); n != 8 {
		t.Errorf("%v closes of 8 sessions", n)
	}
}

// H7: close from fifty places at once, a reset and a heartbeat among them: one end, one reason, each watcher told once.
func TestCloseFromEverywhere(t *testing.T) {
	var mu sync.Mutex
	told := map[uint64]int{}
	r := newRig(t, func(c *Config) {
		c.Tell = func(_ zmsg.Address, m *zmsg.Message) error {
			if passing(m) {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			told[m.Value.(*wirepb.SessionClosed).GetSession()]++
			m.Release()
			return nil
		}
	})
	rounds := 100
	if testing.Short() {
		rounds = 10
	}
	for range rounds {
		c := r.dialRaw(true)
		ref := c.hello("ann")
		s, err := r.Session(ref)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Watch(ref, zmsg.Address{Node: testNode, Actor: 1}); err != nil {
			t.Fatal(err)
		}
		var first sync.Map
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				if s.Close(CloseCode(4000+i), "x") {
					first.Store(i, true)
				}
			})
		}
		wg.Go(func() { r.onTimer(s.c.Load(), r.now()+int64(time.Hour)) })
		wg.Go(func() { _ = c.tcp.SetLinger(0); _ = c.Close() })
		wg.Wait()
		n := 0
		first.Range(func(any, any) bool { n++; return true })
		if n > 1 {
			t.Fatalf("%d calls were first", n)
		}
	}
	eventually(t, "all gone", func() bool { return r.Sessions() == 0 })
	if n := r.counter("closes_total"); n != float64(rounds) {
		t.Errorf("%v closes", n)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(told) != rounds {
		t.Errorf("%d sessions told of", len(told))
	}
	for id, n := range told {
		if n != 1 {
			t.Errorf("session %d told of %d times", id, n)
		}
	}
}

// H3, H2: silence has an end; before it, the gate pings, and any byte counts. H4: a client that beats in time stays.
func TestSilence(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Heartbeat, c.Timeout = 200*time.Millisecond, 4*time.Second })
	silent := r.dialRaw(true)
	silent.hello("silent")
	ponging := r.login("ponging") // gorilla answers pings while it reads
	done := make(chan error, 1)
	go func() {
		_, err := ponging.tryNext()
		done <- err
	}()
	pings := 0
	for {
		b0, p, err := silent.wsRead()
		if err != nil {
			t.Fatal(err)
		}
		if b0 == 0x89 {
			pings++
		}
		if b0 == 0x88 {
			if code := CloseCode(binary.BigEndian.Uint16(p)); code != CloseSilent {
				t.Errorf("closed with %d", code)
			}
			break
		}
	}
	if pings != 1 {
		t.Errorf("%d pings", pings)
	}
	select {
	case err := <-done:
		t.Errorf("the one that answers pings was closed: %v", err)
	default:
	}
	_ = r.Kick(ponging.ref(), 0, "")
	if err := <-done; err != nil { // the Closing frame is the first thing it reads
		t.Error(err)
	}
}
