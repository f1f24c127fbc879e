package zgate

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// A lane is what one owner of an object has sent to the gate, in order; lanes come in between each other, and the model decides what is lost.
type lane struct {
	version zmsg.RouteVersion
	ops     []laneOp
	at      int
	last    uint64 // of its bind
	since   zmsg.RouteVersion
}

type laneOp struct {
	bind  bool
	n     uint64 // bind: the last number before
	since zmsg.RouteVersion
}

// choices is where a run takes its decisions from: the bytes of a fuzz test, and zeros behind them.
type choices []byte

func (c *choices) of(n int) int {
	if len(*c) == 0 {
		return 0
	}
	b := (*c)[0]
	*c = (*c)[1:]
	return int(b) % n
}

type pushOf struct {
	version zmsg.RouteVersion
	n       uint64
}

// boundRig is an object that is bound to one session, whose frames are kept.
type boundRig struct {
	*rig
	s *Session
	b zmsg.Binding
}

func newBoundRig(r *rig, id uint64) *boundRig {
	c := &conn{g: r.Gate, nc: &deafConn{}, tr: &deafConn{}}
	c.timer.conn = c
	s := &Session{g: r.Gate, user: "ann", ref: zmsg.SessionRef{Gate: testNode, ID: id, Gen: 1}}
	s.c.Store(c)
	c.session.Store(s)
	c.corked.Store(true)
	r.sessions.put(s)
	return &boundRig{rig: r, s: s, b: zmsg.Binding{
		Key: zmsg.Key{Type: 2, ID: fmt.Sprint("room", id)}, Owner: zmsg.Address{Node: zmsg.NodeRef{ID: "n2", Epoch: 1}, Actor: 9},
		Gate: testNode, Sessions: []zmsg.SessionRef{s.ref},
	}}
}

func (r *boundRig) end() {
	r.sessions.drop(r.s)
	for _, o := range r.s.objects {
		r.objects.leave(o, r.s)
	}
}

func (r *boundRig) bind(version zmsg.RouteVersion, last uint64, since zmsg.RouteVersion, again bool) error {
	b := r.b
	b.Version, b.Last, b.Base, b.Since, b.Again = version, last, last, since, again
	return r.Bind(&b)
}

func (r *boundRig) push(version zmsg.RouteVersion, n uint64) error {
	body := protowire.AppendVarint(protowire.AppendVarint(nil, uint64(version)), n)
	return r.Push(r.s.ref, &zmsg.Push{ID: 9, Body: body, Key: r.b.Key, Version: version, No: n})
}

// timeout is the end of a wait.
func (r *boundRig) timeout() {
	if o := r.objects.get(r.b.Key); o != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.order.waits() {
			r.objects.giveUpLocked(o)
		}
	}
}

// frames is what the client has been sent.
func (r *boundRig) frames(tb testing.TB) (all []any) {
	tb.Helper()
	c := r.s.c.Load()
	c.q.mu.Lock()
	var b []byte
	for _, seg := range c.q.segs {
		b = append(b, seg.b...)
	}
	c.q.mu.Unlock()
	for len(b) > 0 {
		size, head := int(payloadSize(b)), 2
		if b[1] == 126 {
			head = 4
		}
		var f zmsg.Frame
		if _, err := zmsg.NextFrame(b[head:head+size], &f); err != nil {
			tb.Fatal(err)
		}
		b = b[head+size:]
		if f.Kind == wirepb.FrameKind_FRAME_KIND_CONTROL {
			var m wirepb.Control
			if err := proto.Unmarshal(f.Control, &m); err != nil || m.GetGap() == nil {
				tb.Fatalf("%v, %v", &m, err)
			}
			all = append(all, m.GetGap())
			continue
		}
		v, n := protowire.ConsumeVarint(f.Body)
		x, _ := protowire.ConsumeVarint(f.Body[n:])
		all = append(all, pushOf{zmsg.RouteVersion(v), x})
	}
	return all
}

// runOrder has an object move between owners, with their lanes coming in any order, and holds what the client gets against what was sent:
// in order, nothing twice, and nothing missing in between without a notice. It returns what happened for the counting.
func runOrder(t *testing.T, r *rig, id uint64, c choices) {
	t.Helper()
	b := newBoundRig(r, id)
	defer b.end()
	owners, whole := 1+c.of(4), true
	var lanes []*lane
	var sent []pushOf // in the order in which they were sent
	last, since := uint64(0), zmsg.RouteVersion(1)
	for v := 1; v <= owners; v++ {
		l := &lane{version: zmsg.RouteVersion(v)}
		if v > 1 && c.of(5) == 4 { // it has nothing of the one before, who does not know it and goes on for a while
			old := lanes[len(lanes)-1]
			for range c.of(3) {
				last++
				old.ops = append(old.ops, laneOp{n: last})
				sent = append(sent, pushOf{old.version, last})
			}
			last, since, whole = 0, l.version, false
		}
		l.last, l.since = last, since
		l.ops = append(l.ops, laneOp{bind: true, n: last, since: since})
		for range c.of(5) {
			last++
			l.ops = append(l.ops, laneOp{n: last})
			sent = append(sent, pushOf{l.version, last})
		}
		lanes = append(lanes, l)
	}
	if err := b.bind(1, 0, 1, false); err != nil {
		t.Fatal(err)
	}
	for open := len(lanes); open > 0; {
		if c.of(24) == 23 {
			b.timeout()
			whole = false
		}
		l := lanes[c.of(len(lanes))]
		for l.at == len(l.ops) { // else a lane that is empty would be asked for ever
			l = lanes[int(l.version)%len(lanes)]
		}
		op := l.ops[l.at]
		l.at++
		if l.at == len(l.ops) {
			open--
		}
		switch lost := c.of(16) == 15; {
		case lost:
			whole = false
		case op.bind:
			_ = b.bind(l.version, op.n, op.since, false) // an old one is refused
		default:
			_ = b.push(l.version, op.n)
			if c.of(16) == 15 {
				_ = b.bind(l.version, l.last, l.since, true) // the bind once more
			}
			if c.of(16) == 15 {
				_ = b.push(l.version, op.n) // and once more
			}
		}
	}
	if o := b.objects.get(b.b.Key); whole && o.order.waits() {
		t.Errorf("it waits for %d, has %d", o.order.from, o.order.have)
	}
	b.timeout()
	checkOrder(t, b.frames(t), sent, whole)
	if o := b.objects.get(b.b.Key); len(o.held) > 0 || o.bytes != 0 {
		t.Errorf("%d pushes, %d bytes are held", len(o.held), o.bytes)
	}
	b.s.c.Load().q.segs = nil
}

func checkOrder(t *testing.T, got []any, sent []pushOf, whole bool) {
	t.Helper()
	at, credit, unknown := 0, uint64(0), false
	pushes := 0
	for _, f := range got {
		switch f := f.(type) {
		case *wirepb.Gap:
			if whole {
				t.Errorf("told of a gap: %v", got)
			}
			credit += f.GetMissed()
			unknown = unknown || f.GetMissed() == 0
		case pushOf:
			pushes++
			skipped := 0
			for at < len(sent) && sent[at] != f {
				at++
				skipped++
			}
			if at == len(sent) {
				t.Fatalf("%v is out of order or doubled: %v of %v", f, got, sent)
			}
			at++
			if skipped > 0 && !unknown && uint64(skipped) > credit {
				t.Fatalf("%d are missing before %v, and the client was told of %d: %v of %v", skipped, f, credit, got, sent)
			}
			switch {
			case skipped == 0:
			case unknown: // a count that begun anew says nothing of what was before
				unknown = false
			default:
				credit -= uint64(skipped)
			}
		}
	}
	if whole && pushes != len(sent) {
		t.Errorf("%d of %d pushes: %v", pushes, len(sent), got)
	}
}

func orderRig(tb testing.TB) *rig {
	tb.Helper()
	return newRig(tb, func(c *Config) {
		c.PushWait = time.Hour
		c.Tell = func(zmsg.Address, *zmsg.Message) error { return zmsg.ErrUnknownActor }
	})
}

func TestPushOrder(t *testing.T) {
	t.Parallel()
	r := orderRig(t)
	for seed := range uint64(5000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		c := make(choices, 200)
		for i := range c {
			c[i] = byte(rnd.Uint32())
		}
		runOrder(t, r, seed+1, c)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if n := r.counter("pushes_held"); n != 0 {
		t.Errorf("%v pushes are held", n)
	}
}

func FuzzPushOrder(f *testing.F) {
	f.Add([]byte{3, 1, 4, 1, 0, 4, 2, 2, 0, 0, 1, 0, 1, 1, 0, 2, 0})
	r := orderRig(f)
	id := uint64(0)
	f.Fuzz(func(t *testing.T, b []byte) {
		id++
		runOrder(t, r, id, b)
	})
}
