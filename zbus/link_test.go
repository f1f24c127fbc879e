package zbus_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"zgame/internal/embedded"
	"zgame/zbus"
	"zgame/zbus/membus"
	"zgame/zbus/natsbus"
	"zgame/zmetrics"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// within bounds every wait: generous, for busy machines.
const within = 60 * time.Second

// cluster is a bus server, real or in memory.
type cluster struct {
	bus   func(tb testing.TB) zbus.Bus
	setUp func(tb testing.TB, up bool)
}

func newMem() cluster {
	hub := membus.NewHub(membus.Config{Queue: 1 << 20})
	return cluster{
		bus:   func(testing.TB) zbus.Bus { return hub.Bus() },
		setUp: func(_ testing.TB, up bool) { hub.SetUp(up) },
	}
}

func newNATS(tb testing.TB) cluster {
	tb.Helper()
	dir := tb.TempDir()
	srv, err := embedded.StartNATS(dir, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { srv.Stop() })
	url, port := srv.URL(), srv.Port()
	return cluster{
		bus: func(tb testing.TB) zbus.Bus { tb.Helper(); return connectTo(tb, url) },
		setUp: func(tb testing.TB, up bool) {
			tb.Helper()
			if !up {
				srv.Stop()
				return
			}
			again, err := embedded.StartNATS(dir, port)
			if err != nil {
				tb.Fatal(err)
			}
			srv = again
		},
	}
}

// connectTo connects to a NATS server, and soon again when the connection is lost.
func connectTo(tb testing.TB, url string) zbus.Bus {
	tb.Helper()
	b, err := natsbus.New(natsbus.Config{URL: url, ReconnectWait: 5 * time.Millisecond})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := b.Ready(ctx); err != nil {
		tb.Fatal(err)
	}
	return b
}

// onBoth runs f on the bus in memory and on NATS.
func onBoth(t *testing.T, f func(t *testing.T, c cluster)) {
	t.Helper()
	t.Parallel()
	t.Run("mem", func(t *testing.T) { t.Parallel(); f(t, newMem()) })
	t.Run("nats", func(t *testing.T) { t.Parallel(); f(t, newNATS(t)) })
}

// node is a link with its bus.
type node struct {
	*zbus.Link
	ref zmsg.NodeRef
	bus zbus.Bus
	reg *prometheus.Registry
}

// start makes a node; set may change the configuration.
func (c cluster) start(tb testing.TB, id string, h zbus.Handlers, set ...func(*zbus.LinkConfig)) *node {
	tb.Helper()
	return startOn(tb, c.bus(tb), id, h, set...)
}

func startOn(tb testing.TB, bus zbus.Bus, id string, h zbus.Handlers, set ...func(*zbus.LinkConfig)) *node {
	tb.Helper()
	n := &node{ref: zmsg.NodeRef{ID: id, Epoch: 7}, bus: bus, reg: prometheus.NewRegistry()}
	cfg := zbus.LinkConfig{Self: n.ref, Bus: bus, Handlers: h, Direct: true, Metrics: zmetrics.NewBus(n.reg)}
	for _, s := range set {
		s(&cfg)
	}
	var err error
	if n.Link, err = zbus.NewLink(cfg); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := n.Start(ctx); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		if err := errors.Join(n.Close(ctx), bus.Close(ctx)); err != nil {
			tb.Errorf("close %s: %v", id, err)
		}
	})
	return n
}

// count is the sum of a counter or gauge over its labels, or those with the value.
func (n *node) count(tb testing.TB, name string, value ...string) int {
	tb.Helper()
	families, err := n.reg.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != "zgame_bus_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			ok := len(value) == 0
			for _, l := range m.GetLabel() {
				ok = ok || l.GetValue() == value[0]
			}
			if ok {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return int(sum)
}

// outcomes collects the outcomes of requests by token.
type outcomes struct {
	ch chan outcome
}

type outcome struct {
	token uint64
	code  zmsg.Code
	out   zmsg.Outcome
	text  string
	body  string

	owner       zmsg.NodeRef
	version     zmsg.RouteVersion
	undelivered bool
}

func newOutcomes(room int) *outcomes { return &outcomes{make(chan outcome, room)} }

func (o *outcomes) Reply(token uint64, r *zmsg.Reply) {
	select {
	case o.ch <- outcome{token, r.Code, r.Outcome, r.Text, string(r.Body), r.Owner, r.Version, r.Undelivered}:
	default:
		panic("more outcomes than requests")
	}
}

func (o *outcomes) next(tb testing.TB) outcome {
	tb.Helper()
	select {
	case x := <-o.ch:
		return x
	case <-time.After(within):
		tb.Fatal("no outcome")
		return outcome{}
	}
}

func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	end := time.Now().Add(within)
	for !ok() {
		if time.Now().After(end) {
			tb.Fatalf("never happened: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func message(body string) *zmsg.Message {
	m := zmsg.NewMessage(1)
	m.SetBody([]byte(body))
	return m
}

func echo(_ uint64, m *zmsg.Message) {
	m.Reply(&zmsg.Reply{ID: m.ID + 1, Body: m.Body()})
	m.Release()
}

func (n *node) request(tb testing.TB, to zmsg.Address, body string, timeout time.Duration) outcome {
	tb.Helper()
	o := newOutcomes(1)
	m := message(body)
	m.Deadline = time.Now().Add(timeout)
	if err := n.Send(to, m, o, 1); err != nil {
		tb.Fatalf("send: %v", err)
	}
	m.Release()
	return o.next(tb)
}

// sendUntil sends again while the outbox is full.
func (n *node) sendUntil(tb testing.TB, send func() error) {
	tb.Helper()
	for {
		err := send()
		if err == nil {
			return
		}
		if !errors.Is(err, zmsg.ErrBusy) {
			tb.Fatalf("send: %v", err)
		}
		time.Sleep(100 * time.Microsecond)
	}
}

func TestManyMessagesInOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		t.Helper()
		const total = 100_000
		done := make(chan struct{})
		var want uint64
		b := c.start(t, "b", zbus.Handlers{Actor: func(to uint64, m *zmsg.Message) {
			got := binary.BigEndian.Uint64(m.Body())
			if got != want || to != got%5 {
				t.Errorf("message %d for actor %d, want %d", got, to, want)
			}
			m.Release()
			if want = got + 1; want == total {
				close(done)
			}
		}})
		a := c.start(t, "a", zbus.Handlers{})
		m := zmsg.NewMessage(1)
		defer m.Release()
		for i := range uint64(total) {
			m.SetBody(binary.BigEndian.AppendUint64(nil, i))
			a.sendUntil(t, func() error { return a.Send(zmsg.Address{Node: b.ref, Actor: i % 5}, m, nil, 0) })
		}
		select {
		case <-done:
		case <-time.After(within):
			t.Fatal("not all arrived")
		}
		if n := b.count(t, "batch_gaps_total"); n != 0 {
			t.Errorf("%d gaps", n)
		}
	})
}

func TestEveryRequestHasOneOutcome(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		t.Helper()
		const callers, each = 64, 200
		b := c.start(t, "b", zbus.Handlers{Actor: echo})
		a := c.start(t, "a", zbus.Handlers{Actor: echo})
		o := newOutcomes(callers * each)
		var wg sync.WaitGroup
		for caller := range callers {
			wg.Go(func() {
				for i := range each {
					from, to := a, b
					if caller%2 == 1 {
						from, to = b, a
					}
					token := uint64(caller*each + i)
					m := message(fmt.Sprint(token))
					from.sendUntil(t, func() error { return from.Send(zmsg.Address{Node: to.ref, Actor: 1}, m, o, token) })
					m.Release()
				}
			})
		}
		wg.Wait()
		seen := make(map[uint64]bool)
		for range callers * each {
			x := o.next(t)
			if x.code != zmsg.CodeOK || x.body != fmt.Sprint(x.token) || seen[x.token] {
				t.Fatalf("outcome %+v, seen %v", x, seen[x.token])
			}
			seen[x.token] = true
		}
		if n := a.count(t, "late_replies_total") + b.count(t, "late_replies_total"); n != 0 {
			t.Errorf("%d late replies", n)
		}
		if n := a.count(t, "requests_total", "reply") + b.count(t, "requests_total", "reply"); n != callers*each {
			t.Errorf("counted %d replies, want %d", n, callers*each)
		}
	})
}

func TestNobodyListens(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		t.Helper()
		a := c.start(t, "a", zbus.Handlers{})
		ghost := zmsg.Address{Node: zmsg.NodeRef{ID: "ghost", Epoch: 1}, Actor: 1}
		for range 3 { // each message by itself could share a batch
			if err := a.Send(ghost, message("one way"), nil, 0); err != nil {
				t.Fatal(err)
			}
		}
		for range 20 {
			if x := a.request(t, ghost, "hello", time.Hour); x.code != zmsg.CodeUnavailable || x.out != zmsg.NotExecuted || !x.undelivered {
				t.Fatalf("outcome %+v, want Unavailable, NotExecuted, undelivered", x)
			}
		}
		if n := a.count(t, "dropped_total", "no_responders"); n != 3 {
			t.Errorf("counted %d one-way losses, want 3", n)
		}
	})
}

// logCount counts log records that contain a text.
type logCount struct {
	slog.Handler
	mu    sync.Mutex
	lines []string
}

func (l *logCount) Enabled(context.Context, slog.Level) bool { return true }
func (l *logCount) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logCount) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

func (l *logCount) matching(parts ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		ok := true
		for _, p := range parts {
			ok = ok && strings.Contains(line, p)
		}
		if ok {
			n++
		}
	}
	return n
}

// TestForeignBytes is fault F2: whatever is published to a subject of a node is dropped, counted and logged, not more.
func TestForeignBytes(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		t.Helper()
		log := &logCount{}
		b := c.start(t, "b", zbus.Handlers{Actor: echo, Session: func(e *zmsg.Envelope, _ zmsg.NodeRef) {
			t.Errorf("a session handler got %+v", e)
		}}, func(cfg *zbus.LinkConfig) { cfg.Logger = slog.New(log) })
		a := c.start(t, "a", zbus.Handlers{})
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		if err := b.JoinGroup(ctx, "g"); err != nil {
			t.Fatal(err)
		}
		head := zmsg.AppendBatchHead(nil, zmsg.BatchHead{From: a.ref, Number: 1})
		strangers := uint64(0)
		stranger := func() []byte { // each counts its own batches
			strangers++
			return zmsg.AppendBatchHead(nil, zmsg.BatchHead{From: zmsg.NodeRef{ID: "x", Epoch: strangers}, Number: 1})
		}
		random := make([]byte, 1024)
		for i := range random {
			random[i] = byte(zmsg.Mix(uint64(i)))
		}
		otherMajor := append([]byte(nil), head...)
		otherMajor[1]++
		payloads := map[string][]byte{
			"empty":       {},
			"random":      random,
			"packet":      zmsg.AppendPacketFrame(nil, &zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_REQUEST, ID: 1, Seq: 1, Body: []byte("x")}),
			"major":       otherMajor,
			"no node":     zmsg.AppendBatchHead(nil, zmsg.BatchHead{Number: 1}),
			"no number":   zmsg.AppendBatchHead(nil, zmsg.BatchHead{From: a.ref}),
			"bad inside":  append(stranger(), 0x2a, 2, 8, 0x80),
			"wrong kind":  zmsg.AppendBatchEnvelope(stranger(), &zmsg.Envelope{Kind: 99}),
			"other group": zmsg.AppendBatchEnvelope(stranger(), &zmsg.Envelope{Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_SESSION, Op: wirepb.SessionOp_SESSION_OP_PUSH, Group: "h"}),
		}
		inbox := "zgame.n.b.7"
		for _, subject := range []string{inbox, "zgame.g.g", "zgame.r.b.7.1-1-1-1"} {
			for name, p := range payloads {
				if name == "other group" && subject == inbox {
					continue // there it is a push to a session
				}
				for range 3 {
					if err := a.bus.Publish(subject, "", p); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if x := a.request(t, zmsg.Address{Node: b.ref, Actor: 1}, "still there?", within); x.body != "still there?" {
			t.Errorf("the next request got %+v", x)
		}
		for _, reason := range []string{"empty", "magic", "head", "envelope", "kind", "not_a_notice"} {
			if b.count(t, "foreign_total", reason) == 0 {
				t.Errorf("reason %s not counted", reason)
			}
			if n := log.matching("foreign bytes", "reason="+reason, "subject=zgame.", "prefix="); n != 1 {
				t.Errorf("reason %s: %d log lines, want 1", reason, n)
			}
		}
	})
}

// TestSizes is fault F9.
func TestSizes(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		t.Helper()
		limit := 0
		b := c.start(t, "b", zbus.Handlers{Actor: func(to uint64, m *zmsg.Message) {
			if to == 2 { // a reply above the limit
				m.Reply(&zmsg.Reply{ID: 9, Body: make([]byte, limit), Owner: zmsg.NodeRef{ID: "b", Epoch: 7}, Version: 3})
				m.Release()
				return
			}
			echo(to, m)
		}})
		limit = b.bus.MaxPayload()
		a := c.start(t, "a", zbus.Handlers{})
		to := zmsg.Address{Node: b.ref, Actor: 1}
		for _, n := range []int{0, 64<<10 - 1, 64 << 10, 64<<10 + 1, 1 << 20, limit - 1024} {
			if x := a.request(t, to, strings.Repeat("x", n), within); x.code != zmsg.CodeOK || len(x.body) != n {
				t.Errorf("%d bytes: code %v, %d bytes back", n, x.code, len(x.body))
			}
		}
		for _, n := range []int{limit - 8, limit, limit + 1} {
			err := a.Send(to, message(strings.Repeat("x", n)), newOutcomes(1), 1)
			if !errors.Is(err, zmsg.ErrTooLarge) {
				t.Errorf("%d bytes: %v, want ErrTooLarge", n, err)
			}
			if err := a.PublishGroup(&zmsg.Envelope{Group: "g", Body: make([]byte, n)}); !errors.Is(err, zmsg.ErrTooLarge) {
				t.Errorf("group, %d bytes: %v, want ErrTooLarge", n, err)
			}
		}
		to.Actor = 2
		if x := a.request(t, to, "", within); x.code != zmsg.CodeTooLarge || x.out != zmsg.Executed || x.owner != b.ref || x.version != 3 {
			t.Errorf("large reply: %+v, want TooLarge, Executed, of version 3 of b", x)
		}
		if x := a.request(t, zmsg.Address{Node: b.ref, Actor: 1}, "ok", within); x.body != "ok" {
			t.Errorf("afterwards: %+v", x)
		}
	})
}

// TestBusStops is fault N1: requests in flight end at once, and all works again when the bus is back.
func TestBusStops(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		t.Helper()
		const inFlight = 50
		var held atomic.Int64
		b := c.start(t, "b", zbus.Handlers{Actor: func(to uint64, m *zmsg.Message) {
			if to == 2 { // never answered
				held.Add(1)
				return
			}
			echo(to, m)
		}})
		a := c.start(t, "a", zbus.Handlers{})
		to := zmsg.Address{Node: b.ref, Actor: 2}
		for round := range 3 {
			held.Store(0)
			o := newOutcomes(inFlight)
			for i := range inFlight {
				m := message("hold")
				m.Deadline = time.Now().Add(time.Hour)
				if err := a.Send(to, m, o, uint64(i)); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "all are there", func() bool { return held.Load() == inFlight })
			c.setUp(t, false)
			for range inFlight {
				if x := o.next(t); x.code != zmsg.CodeUnavailable || x.out != zmsg.Unknown || x.undelivered {
					t.Fatalf("outcome %+v, want Unavailable, Unknown", x)
				}
			}
			eventually(t, "down is seen", func() bool { return !a.Up() && !b.Up() })
			err := a.Send(to, message("x"), o, 1)
			if !errors.Is(err, zmsg.ErrUnavailable) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
				t.Errorf("send while down: %v", err)
			}
			c.setUp(t, true)
			eventually(t, "both are up", func() bool { return a.Up() && b.Up() })
			to := zmsg.Address{Node: b.ref, Actor: 1}
			if x := a.request(t, to, fmt.Sprint(round), within); x.body != fmt.Sprint(round) {
				t.Errorf("after the restart: %+v", x)
			}
			if x := b.request(t, zmsg.Address{Node: a.ref}, "x", within); x.code != zmsg.CodeUnknownActor {
				t.Errorf("the other way after the restart: %+v", x)
			}
		}
	})
}

// TestOrderOverLanesAndGroups: what one node sends in any way arrives in that order.
func TestOrderOverLanesAndGroups(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		t.Helper()
		const total = 6000
		arrived := make(chan uint64, total)
		session := func(e *zmsg.Envelope, from zmsg.NodeRef) {
			if from.ID != "a" {
				t.Errorf("from %v", from)
			}
			arrived <- e.Seq
		}
		b := c.start(t, "b", zbus.Handlers{
			Actor:   func(_ uint64, m *zmsg.Message) { arrived <- m.Seq; m.Release() },
			Session: session,
			Control: func(e *zmsg.Envelope, from zmsg.NodeRef) bool { session(e, from); return true },
			Topic: func(_ string, m *zmsg.Message) {
				arrived <- binary.LittleEndian.Uint64(m.Body())
				m.Release()
			},
			Queue: func(_, _ string, m *zmsg.Message) { arrived <- m.Seq; m.Release() },
		})
		a := c.start(t, "a", zbus.Handlers{
			Session: func(*zmsg.Envelope, zmsg.NodeRef) { t.Error("own publish came back") },
			Topic:   func(string, *zmsg.Message) { t.Error("own publish on a topic came back") },
		})
		other := c.start(t, "c", zbus.Handlers{})
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		for _, g := range []string{"room/1", "room/2"} {
			for _, n := range []*node{a, b} {
				if err := n.JoinGroup(ctx, g); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, n := range []*node{a, b} {
			if err := n.JoinTopic(ctx, "room/1"); err != nil {
				t.Fatal(err)
			}
		}
		for i := range uint64(total) {
			a.sendUntil(t, func() error {
				m := message("m")
				defer m.Release()
				m.Seq = i
				switch zmsg.Mix(i) % 8 {
				case 6:
					m.SetBody(binary.LittleEndian.AppendUint64(nil, i))
					return a.PublishTopic("room/1", m)
				case 7:
					return a.SendQueue(b.ref, "room/1", "q", m, nil, 0)
				case 0, 1:
					return a.Send(zmsg.Address{Node: b.ref, Actor: 1}, m, nil, 0)
				case 2:
					return a.SendSession(b.ref, &zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_PUSH, Seq: i})
				case 3:
					return a.PublishGroup(&zmsg.Envelope{Group: "room/1", Seq: i})
				case 4:
					return a.PublishGroup(&zmsg.Envelope{Group: "room/2", Seq: i})
				default:
					if err := a.SendControl(other.ref, &zmsg.Envelope{ID: 20}); err != nil {
						return err
					}
					return a.SendControl(b.ref, &zmsg.Envelope{ID: 20, Seq: i})
				}
			})
		}
		for i := range uint64(total) {
			select {
			case got := <-arrived:
				if got != i {
					t.Fatalf("number %d came where %d should", got, i)
				}
			case <-time.After(within):
				t.Fatalf("number %d never came", i)
			}
		}
		if n := b.count(t, "batch_gaps_total"); n != 0 {
			t.Errorf("%d gaps", n)
		}
	})
}

func TestGroups(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		t.Helper()
		got := make(chan string, 10)
		b := c.start(t, "b", zbus.Handlers{Session: func(e *zmsg.Envelope, _ zmsg.NodeRef) { got <- e.Group + "=" + string(e.Body) }})
		a := c.start(t, "a", zbus.Handlers{})
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		say := func(group, body string) {
			t.Helper()
			if err := a.PublishGroup(&zmsg.Envelope{Group: group, Body: []byte(body)}); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(want string) {
			t.Helper()
			select {
			case x := <-got:
				if x != want {
					t.Errorf("got %s, want %s", x, want)
				}
			case <-time.After(within):
				t.Errorf("%s never came", want)
			}
		}
		var wg sync.WaitGroup
		for range 4 { // joining twice at once is joining once
			wg.Go(func() {
				if err := b.JoinGroup(ctx, "große.gruppe"); err != nil {
					t.Error(err)
				}
			})
		}
		if err := b.JoinGroup(ctx, "end"); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if n := b.count(t, "groups"); n != 2 {
			t.Errorf("%d groups, want 2", n)
		}
		say("große.gruppe", "1")
		expect("große.gruppe=1")
		for range 2 {
			if err := b.LeaveGroup("große.gruppe"); err != nil {
				t.Fatal(err)
			}
		}
		say("große.gruppe", "2")
		say("end", "3")
		expect("end=3")
		if err := b.JoinGroup(ctx, "große.gruppe"); err != nil {
			t.Fatal(err)
		}
		say("große.gruppe", "4")
		expect("große.gruppe=4")
		for _, bad := range []string{"", strings.Repeat("x", 257)} {
			if err := a.PublishGroup(&zmsg.Envelope{Group: bad}); !errors.Is(err, zmsg.ErrBadRequest) {
				t.Errorf("publish to a name of %d bytes: %v", len(bad), err)
			}
			if err := a.JoinGroup(ctx, bad); !errors.Is(err, zmsg.ErrBadRequest) {
				t.Errorf("join of a name of %d bytes: %v", len(bad), err)
			}
		}
		if n := b.count(t, "batch_gaps_total"); n != 0 {
			t.Errorf("%d gaps", n)
		}
	})
}

// TestEverythingTravels: each field of a message arrives, and its strings do not alias the batch.
func TestEverythingTravels(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		t.Helper()
		got := make(chan *zmsg.Message, 2)
		b := c.start(t, "b", zbus.Handlers{Actor: func(to uint64, m *zmsg.Message) {
			if to != 42 {
				t.Errorf("to actor %d", to)
			}
			got <- m
		}, Object: func(e *zmsg.Envelope, m *zmsg.Message) {
			if e.Key != (zmsg.Key{Type: 1, Zone: 2, ID: "three"}) || e.Version != 4 || e.Owner.ID != "b" {
				t.Errorf("object envelope %+v", e)
			}
			got <- m
		}})
		a := c.start(t, "a", zbus.Handlers{})
		m := message("body")
		m.ID, m.Seq, m.User, m.Client = 1001, 5, "ann", true
		m.Session = zmsg.SessionRef{Gate: zmsg.NodeRef{ID: "gate", Epoch: 3}, ID: 77, Gen: 2}
		m.From = zmsg.Address{Node: a.ref, Actor: 12}
		m.Deadline = time.Now().Add(time.Hour)
		m.Trace = zmsg.Trace{ID: zmsg.TraceID{1, 2, 3}, Span: 4}
		m.Chain = []uint64{8, 9}
		m.Hops, m.Once, m.Resent = 3, "ann/41", true
		check := func(owner zmsg.NodeRef, send func(o *outcomes) error) {
			o := newOutcomes(1)
			if err := send(o); err != nil {
				t.Fatal(err)
			}
			var x *zmsg.Message
			select {
			case x = <-got:
			case <-time.After(within):
				t.Fatal("never came")
			}
			if x.ID != m.ID || x.Seq != m.Seq || x.User != m.User || !x.Client || x.Session != m.Session || x.From != m.From ||
				x.Trace != m.Trace || fmt.Sprint(x.Chain) != fmt.Sprint(m.Chain) || x.Hops != m.Hops || x.Once != m.Once || x.Resent != m.Resent || string(x.Body()) != "body" || !x.Wants() {
				t.Errorf("came as %+v, want %+v", x, m)
			}
			if left := time.Until(x.Deadline); left > time.Hour+time.Second || left < time.Hour-within {
				t.Errorf("%v left of an hour", left)
			}
			x.Reply(&zmsg.Reply{Code: 1234, Outcome: zmsg.Executed, Text: "no", Body: []byte("why"), Owner: owner, Version: 6, Undelivered: true})
			x.Release()
			if y := o.next(t); y != (outcome{1, 1234, zmsg.Executed, "no", "why", owner, 6, false}) {
				t.Errorf("reply %+v", y)
			}
		}
		check(zmsg.NodeRef{}, func(o *outcomes) error { return a.Send(zmsg.Address{Node: b.ref, Actor: 42}, m, o, 1) })
		for _, once := range []string{strings.Repeat("x", 129), "a\xff"} {
			bad := message("body")
			bad.Once = once
			for _, err := range []error{
				a.Send(zmsg.Address{Node: b.ref, Actor: 42}, bad, nil, 0),
				a.SendObject(b.ref, &zmsg.Envelope{Key: zmsg.Key{Type: 1}}, bad, newOutcomes(1), 1),
			} {
				if !errors.Is(err, zmsg.ErrBadRequest) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
					t.Errorf("idempotency key %q: %v, want ErrBadRequest", once, err)
				}
			}
		}
		m.Once = strings.Repeat("x", 128)
		for _, owner := range []zmsg.NodeRef{b.ref, {ID: "c", Epoch: 5}} { // it has answered itself, or another has by it
			check(owner, func(o *outcomes) error {
				e := &zmsg.Envelope{Key: zmsg.Key{Type: 1, Zone: 2, ID: "three"}, Version: 4, Owner: b.ref}
				return a.SendObject(b.ref, e, m, o, 1)
			})
		}
	})
}

// TestDrain: 100 calls in flight at the stop of a node are all answered, new ones are refused.
func TestDrain(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		t.Helper()
		const calls = 100
		release := make(chan struct{})
		var wg sync.WaitGroup
		var open atomic.Int64
		b := c.start(t, "b", zbus.Handlers{Actor: func(to uint64, m *zmsg.Message) {
			open.Add(1)
			wg.Go(func() {
				<-release
				echo(to, m)
			})
		}})
		a := c.start(t, "a", zbus.Handlers{})
		to := zmsg.Address{Node: b.ref, Actor: 1}
		o := newOutcomes(calls)
		for i := range calls {
			if err := a.Send(to, message(fmt.Sprint(i)), o, uint64(i)); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "all calls are there", func() bool { return open.Load() == calls })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := b.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("drain with calls open: %v", err)
		}
		if x := a.request(t, to, "new", within); x.code != zmsg.CodeDraining || x.out != zmsg.NotExecuted {
			t.Errorf("new request: %+v, want Draining, NotExecuted", x)
		}
		close(release)
		ctx, cancel = context.WithTimeout(t.Context(), within)
		defer cancel()
		if err := b.Drain(ctx); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(ctx); err != nil {
			t.Fatal(err)
		}
		for range calls {
			if x := o.next(t); x.code != zmsg.CodeOK {
				t.Fatalf("outcome %+v", x)
			}
		}
		wg.Wait()
		if x := a.request(t, to, "gone", within); x.code != zmsg.CodeUnavailable || x.out != zmsg.NotExecuted {
			t.Errorf("after close: %+v", x)
		}
	})
}

func TestCloseEndsRequests(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		t.Helper()
		b := c.start(t, "b", zbus.Handlers{Actor: func(uint64, *zmsg.Message) {}})
		a := c.start(t, "a", zbus.Handlers{})
		o := newOutcomes(10)
		to := zmsg.Address{Node: b.ref, Actor: 1}
		for i := range 10 {
			if err := a.Send(to, message("x"), o, uint64(i)); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := a.Close(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for range 10 {
			if x := o.next(t); x.code != zmsg.CodeUnavailable || x.out != zmsg.Unknown {
				t.Errorf("outcome %+v, want Unavailable, Unknown", x)
			}
		}
		if err := a.Send(to, message("x"), o, 1); !errors.Is(err, zmsg.ErrUnavailable) {
			t.Errorf("send after close: %v", err)
		}
		if err := a.JoinGroup(ctx, "g"); !errors.Is(err, zbus.ErrClosed) {
			t.Errorf("join after close: %v", err)
		}
		if a.Up() {
			t.Error("up after close")
		}
		if err := a.Start(ctx); err == nil {
			t.Error("started twice")
		}
	})
}
