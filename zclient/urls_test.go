package zclient

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"zgame/zmsg/wirepb"
)

// Which gate comes next: the pure decision.
func TestGates(t *testing.T) {
	t.Parallel()
	g := gates{list: []string{"a", "b", "c"}, left: 3}
	for i, step := range []struct {
		online time.Duration
		code   int
		url    string // then
		left   int
	}{
		{0, 0, "b", 2},         // a does not answer
		{0, 3005, "c", 1},      // b is full
		{0, 0, "a", 0},         // each has been tried
		{0, 0, "b", 0},         // and again
		{time.Hour, 0, "b", 3}, // lost: the session is there
		{0, 0, "c", 2},         // it is not
		{1, 3008, "c", 3},      // slow: as lost
		{1, 3001, "a", 2},      // it goes
		{1, 3007, "b", 2},
		{1, 3006, "b", 3},
	} {
		g.ended(&ending{reason: &Reason{Kind: KindClosed, Code: step.code}, online: step.online})
		if g.url() != step.url || g.left != step.left {
			t.Errorf("%d: %s, %d left; expected %s, %d", i, g.url(), g.left, step.url, step.left)
		}
	}
	// Shuffled: each is the first sometimes, each is there, and the caller's list stays as it is.
	list := []string{"a", "b", "c", "d"}
	first := map[string]bool{}
	for range 1000 {
		g := newGates(list, rand.Float64)
		first[g.url()] = true
		slices.Sort(g.list)
		if !slices.Equal(g.list, list) {
			t.Fatalf("%v", g.list)
		}
	}
	if len(first) != len(list) || !slices.Equal(list, []string{"a", "b", "c", "d"}) {
		t.Errorf("first were %v of %v", first, list)
	}
}

// A client with a list finds the gate that is there, goes back to the gate of its session, and to another one when that says that it goes: one connection at a time.
func TestListOfGates(t *testing.T) {
	t.Parallel()
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := "ws://" + nobody.Addr().String() + "/ws"
	_ = nobody.Close()
	a := newServer(t)
	b := newServer(t)
	b.welcome = &wirepb.Welcome{Session: 6, Generation: 1, User: "ann", Node: "n2", Epoch: 8, HeartbeatMs: 60_000, TimeoutMs: 120_000, MaxMessage: 64 << 10, MaxInFlight: 64}
	s := &setup{server: a}
	order := []float64{1, 1} // not shuffled
	s.connect(t, func(cfg *Config, _ *server) {
		cfg.URL, cfg.URLs = "", []string{dead, a.ws(), b.ws()}
		cfg.rand = func() float64 {
			if len(order) > 0 {
				r := order[0]
				order = order[1:]
				return r
			}
			return 0.5
		}
	})
	if st := s.until(t, Waiting); st.Reason.Kind != KindDial || st.Delay == 0 || st.Attempt != 1 {
		t.Errorf("the dead one: %+v", st)
	}
	if st := s.until(t, Online); st.Session.Ref.Gate.ID != "n1" {
		t.Errorf("%+v", st)
	}
	_ = s.conn.ws.Close() // the session may be there
	s.conn = a.next()
	s.until(t, Online)
	s.conn.closing(3001, 20*time.Millisecond)
	if st := s.until(t, Waiting); st.Delay < 20*time.Millisecond { // the second in a row
		t.Errorf("the gate's delay: %+v", st)
	}
	at := b.next()
	if st := s.until(t, Online); st.Session.Ref.Gate.ID != "n2" {
		t.Errorf("%+v", st)
	}
	at.closing(3001, 0)
	if st := s.until(t, Online); st.Session.Ref.Gate.ID != "n1" { // by way of the dead one
		t.Errorf("%+v", st)
	}
	if most := s.opened.most.Load(); most != 1 {
		t.Errorf("%d connections at one time", most)
	}
}

// The first connection fails when each gate was tried once.
func TestNoGateOfTheList(t *testing.T) {
	t.Parallel()
	var urls []string
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		urls = append(urls, "ws://"+l.Addr().String()+"/ws")
		_ = l.Close()
	}
	opened := &connCounter{}
	c, err := New(Config{URLs: urls, MinBackoff: time.Millisecond, Dialer: opened.dial})
	if err != nil {
		t.Fatal(err)
	}
	states := make(chan State, 100)
	c.OnState(func(s State) { states <- s })
	if err := c.Connect(within(t)); err == nil {
		t.Fatal("connected")
	}
	receive(t, c.Done(), "the last handler")
	close(states)
	var phases []string
	for s := range states {
		phases = append(phases, fmt.Sprint(s.Phase, " ", s.Attempt))
	}
	if got := strings.Join(phases, ", "); got != "connecting 0, waiting 1, connecting 1, waiting 2, connecting 2, closed 2" {
		t.Errorf("%s", got)
	}
}

func TestURLFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, `URL is ""`},
		{Config{URL: "ws://x/ws", URLs: []string{"ws://y/ws"}}, "URL and URLs are both set"},
		{Config{URLs: []string{"ws://x/ws", "http://y"}}, `URLs has "http://y": expected ws://`},
		{Config{URLs: []string{"tcp://x"}}, `URLs has "tcp://x": expected a port`},
		{Config{URLs: []string{"ws://x/ws", "tcp://y:1"}}, ""},
	} {
		_, err := New(tt.cfg)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%v: %v, expected %q", tt.cfg.URLs, err, tt.want)
		}
	}
}

// What the gate warns of is an event, in order with the pushes.
func TestWarning(t *testing.T) {
	t.Parallel()
	s := start(t)
	got := make(chan string, 10)
	s.OnPush(1004, func([]byte) { got <- "push" })
	stop := s.OnWarning(func(w Warning) { got <- fmt.Sprint(w.Code, " ", w.Text) })
	warn := &wirepb.Control{Control: &wirepb.Control_Warning{Warning: &wirepb.Warning{Code: 3009, Text: "too much"}}}
	push := frameOf(t, wirepb.FrameKind_FRAME_KIND_PUSH, nil)
	push.ID = 1004
	s.conn.send(push)
	s.conn.control(warn)
	s.conn.send(push)
	for _, want := range []string{"push", "3009 too much", "push"} {
		if g := receive(t, got, want); g != want {
			t.Errorf("%s, expected %s", g, want)
		}
	}
	stop()
	s.conn.control(warn)
	s.conn.send(push)
	if g := receive(t, got, "a push"); g != "push" {
		t.Errorf("%s behind the end", g)
	}
	if n := s.Stats().Warnings; n != 2 {
		t.Errorf("%d counted", n)
	}
}
