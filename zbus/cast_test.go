package zbus_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"zgame/zbus"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// What is published on a topic comes to each node that joined it, once, and not to the group of the same name; a queue's message
// goes to one node, who answers it.
func TestTopics(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		t.Helper()
		got := make(chan string, 100)
		handlers := func(id string) zbus.Handlers {
			return zbus.Handlers{
				Topic: func(topic string, m *zmsg.Message) {
					if m.Wants() || m.Session != (zmsg.SessionRef{}) || m.From != (zmsg.Address{Node: zmsg.NodeRef{ID: "a", Epoch: 7}, Actor: 5}) {
						t.Errorf("head %+v", m)
					}
					got <- id + " " + topic + "=" + string(m.Body())
					m.Release()
				},
				Queue: func(topic, queue string, m *zmsg.Message) {
					m.Reply(&zmsg.Reply{ID: 1, Body: []byte(id + " " + topic + " " + queue + "=" + string(m.Body()))})
					m.Release()
				},
				Session: func(e *zmsg.Envelope, _ zmsg.NodeRef) { got <- id + " group " + e.Group },
			}
		}
		a, b, d := c.start(t, "a", handlers("a")), c.start(t, "b", handlers("b")), c.start(t, "d", handlers("d"))
		silent := c.start(t, "e", zbus.Handlers{})
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		publish := func(topic, body string) {
			t.Helper()
			m := message(body)
			defer m.Release()
			m.From = zmsg.Address{Node: a.ref, Actor: 5}
			if err := a.PublishTopic(topic, m); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(want ...string) {
			t.Helper()
			left := map[string]bool{}
			for _, w := range want {
				left[w] = true
			}
			for len(left) > 0 {
				select {
				case x := <-got:
					if !left[x] {
						t.Fatalf("got %s, want %v", x, left)
					}
					delete(left, x)
				case <-time.After(within):
					t.Fatalf("never came: %v", left)
				}
			}
		}
		for _, n := range []*node{a, b, d, silent} {
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					if err := n.JoinTopic(ctx, "große.nachricht"); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		}
		if err := errors.Join(b.JoinGroup(ctx, "große.nachricht"), d.JoinTopic(ctx, "end")); err != nil {
			t.Fatal(err)
		}
		if topics, groups := d.count(t, "topics"), b.count(t, "groups"); topics != 2 || groups != 1 {
			t.Errorf("%d topics and %d groups, want 2 and 1", topics, groups)
		}
		publish("große.nachricht", "1")
		expect("b große.nachricht=1", "d große.nachricht=1")
		if err := a.PublishGroup(&zmsg.Envelope{Group: "große.nachricht"}); err != nil {
			t.Fatal(err)
		}
		expect("b group große.nachricht")
		for range 2 {
			if err := d.LeaveTopic("große.nachricht"); err != nil {
				t.Fatal(err)
			}
		}
		publish("große.nachricht", "2")
		publish("end", "3")
		expect("b große.nachricht=2", "d end=3")

		o := newOutcomes(3)
		for i, n := range []*node{b, d, silent} {
			m := message("x")
			if err := a.SendQueue(n.ref, "work", "q", m, o, uint64(i)); err != nil {
				t.Fatal(err)
			}
			m.Release()
		}
		for range 3 {
			r := o.next(t)
			want := []string{"b work q=x", "d work q=x", ""}[r.token]
			if r.body != want || (want == "") != (r.code == zmsg.CodeUnknownActor) {
				t.Errorf("queue at node %d: %+v", r.token, r)
			}
		}
		for _, bad := range []string{"", strings.Repeat("x", 257)} {
			m := message("x")
			for _, err := range []error{
				a.PublishTopic(bad, m), a.JoinTopic(ctx, bad), a.SendQueue(b.ref, bad, "q", m, nil, 0), a.SendQueue(b.ref, "t", bad, m, nil, 0),
			} {
				if !errors.Is(err, zmsg.ErrBadRequest) {
					t.Errorf("a name of %d bytes: %v", len(bad), err)
				}
			}
			m.Release()
		}
		if n := b.count(t, "batch_gaps_total"); n != 0 {
			t.Errorf("%d gaps", n)
		}
		if sent := a.count(t, "envelopes_sent_total", "topic"); sent != 3 {
			t.Errorf("%d envelopes to topics, want 3", sent)
		}
	})
}

// What is no message does not pass for one: it is counted as foreign.
func TestForeignOnTopic(t *testing.T) {
	t.Parallel()
	c := newMem()
	b := c.start(t, "b", zbus.Handlers{Topic: func(string, *zmsg.Message) { t.Error("it came") }})
	raw := c.bus(t)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := b.JoinTopic(ctx, "t"); err != nil {
		t.Fatal(err)
	}
	const actor, session = wirepb.EnvelopeKind_ENVELOPE_KIND_ACTOR, wirepb.EnvelopeKind_ENVELOPE_KIND_SESSION
	for i, e := range []zmsg.Envelope{
		{Kind: actor, ID: 1, Group: "other"},
		{Kind: actor, Group: "t"},
		{Kind: actor, ID: 1, Group: "t", Request: 3},
		{Kind: actor, ID: 1, Group: "t", Client: true},
		{Kind: session, Op: wirepb.SessionOp_SESSION_OP_PUSH, ID: 1, Group: "t"},
	} {
		data := zmsg.AppendBatchHead(nil, zmsg.BatchHead{From: zmsg.NodeRef{ID: "x", Epoch: 1}, Number: uint64(i + 1)})
		if err := raw.Publish("zgame.t.t", "", zmsg.AppendBatchEnvelope(data, &e)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all are counted", func() bool { return b.count(t, "foreign_total") == 5 })
	if err := raw.Close(ctx); err != nil {
		t.Fatal(err)
	}
}
