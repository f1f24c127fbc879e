package ztest_test

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/ztest"
)

const (
	pairs  = 8   // senders, and receivers
	window = 100 // messages of one sender that may be open at one receiver: no mailbox is ever full
)

// 10^6 numbered messages from 8 senders to 8 actors on two nodes over NATS: none is lost, doubled or swapped for any pair.
func TestOrderOfAMillion(t *testing.T) {
	t.Parallel()
	total := uint64(1_000_000)
	if raceEnabled || testing.Short() {
		total /= 10
	}
	each := total / pairs / pairs // of one sender for one receiver
	var receivers []zmsg.Address  // written before the first message
	var finished sync.WaitGroup
	finished.Add(2 * pairs)
	app := znode.App{Setup: func(n *znode.Node) error {
		for i := range pairs / 2 {
			_, err := n.Group().SpawnAll(
				zactor.Spec{Name: fmt.Sprint("receiver", i), Options: []zactor.SpawnOption{zactor.Private()}, New: func() zactor.Actor {
					return &receiver{t: t, last: map[zmsg.Address]uint64{}, left: each * pairs, end: each, done: finished.Done}
				}},
				zactor.Spec{Name: fmt.Sprint("sender", i), Options: []zactor.SpawnOption{zactor.Private()}, New: func() zactor.Actor {
					return &sender{to: &receivers, each: each, left: pairs, done: finished.Done}
				}},
			)
			if err != nil {
				return err
			}
		}
		return nil
	}}
	c := ztest.Cluster(t, 2, app, ztest.RealServers(), ztest.Logger(slog.New(slog.NewTextHandler(t.Output(), nil))))
	var senders []zactor.Ref
	for k := range 2 {
		for i := range pairs / 2 {
			r, _ := c.Node(k).Group().Lookup(fmt.Sprint("receiver", i))
			s, _ := c.Node(k).Group().Lookup(fmt.Sprint("sender", i))
			receivers, senders = append(receivers, r.Address()), append(senders, s)
		}
	}
	began := time.Now()
	for _, s := range senders {
		if err := s.Tell(&chatpb.Join{}); err != nil {
			t.Fatal(err)
		}
	}
	all := make(chan struct{})
	go func() { finished.Wait(); close(all) }() // ends with the test's work, or with its process
	select {
	case <-all:
		t.Logf("%d messages in %v", each*pairs*pairs, time.Since(began))
	case <-time.After(5 * time.Minute):
		t.Fatal("messages or acknowledgements are missing")
	}
}

// sender numbers its messages for each receiver.
type sender struct {
	to    *[]zmsg.Address
	each  uint64
	left  int // receivers that have not acknowledged all
	done  func()
	lanes map[zmsg.Address]*pair
}

type pair struct {
	to          zactor.Ref
	sent, acked uint64
}

func (s *sender) Handlers() []zactor.Handler {
	return []zactor.Handler{zactor.HandleTell(s.begin), zactor.HandleTell(s.acknowledged)}
}

func (s *sender) begin(c *zactor.Context, _ *chatpb.Join) error {
	s.lanes = map[zmsg.Address]*pair{}
	for _, addr := range *s.to {
		p := &pair{to: c.Group().Ref(addr)}
		s.lanes[addr] = p
		s.pump(c, p)
	}
	return nil
}

func (s *sender) acknowledged(c *zactor.Context, m *chatpb.Said) error {
	p := s.lanes[c.Sender().Address()]
	if p.acked = m.GetSeq(); p.acked < s.each {
		s.pump(c, p)
	} else if s.left--; s.left == 0 {
		s.done()
	}
	return nil
}

// pump sends what the window allows. A lane of the bus may be full for a moment: then it goes on a little later.
func (s *sender) pump(c *zactor.Context, p *pair) {
	for p.sent < s.each && p.sent-p.acked < window {
		if c.Tell(p.to, &chatpb.Line{Seq: p.sent + 1}) != nil {
			c.After(time.Millisecond, func(c *zactor.Context) { s.pump(c, p) })
			return
		}
		p.sent++
	}
}

// receiver checks each sender's numbers, and acknowledges twice for each window.
type receiver struct {
	t    *testing.T
	last map[zmsg.Address]uint64
	left uint64 // messages to come
	end  uint64 // number of each sender's last message
	done func()
}

func (r *receiver) Handlers() []zactor.Handler { return []zactor.Handler{zactor.HandleTell(r.line)} }

func (r *receiver) line(c *zactor.Context, m *chatpb.Line) error {
	from := c.Sender().Address()
	if n := r.last[from] + 1; m.GetSeq() != n {
		r.t.Errorf("%v got number %d of %v, want %d", c.Self(), m.GetSeq(), from, n)
	}
	r.last[from] = m.GetSeq()
	if m.GetSeq()%(window/2) == 0 || m.GetSeq() == r.end {
		r.acknowledge(c, c.Sender(), m.GetSeq())
	}
	if r.left--; r.left == 0 {
		r.done()
	}
	return nil
}

func (r *receiver) acknowledge(c *zactor.Context, to zactor.Ref, n uint64) {
	if c.Tell(to, &chatpb.Said{Seq: n}) != nil {
		c.After(time.Millisecond, func(c *zactor.Context) { r.acknowledge(c, to, n) })
	}
}
