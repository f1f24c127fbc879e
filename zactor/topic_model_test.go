package zactor_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zactor/zactortest"
)

// TestTopicModel holds random subscribing, publishing, restarting and stopping, stepped by hand, against a model that is nothing but
// sets of names: each subscriber gets each message once, each queue at exactly one of its members, and nobody else anything.
func TestTopicModel(t *testing.T) {
	t.Parallel()
	const actors, topics, queues = 4, 3, 2
	rapid.Check(t, func(r *rapid.T) {
		w := newWires()
		g, steps := zactortest.NewSteps(t, zactor.Config{Topics: w, Policy: zactor.Policy{MinBackoff: -1, MaxRestarts: zactor.Unlimited}})
		steps.AllowLeftovers()
		type member struct{ topic, queue string } // without a queue: of the topic
		type state struct {
			ref     zactor.Ref
			inStart map[member]bool
			now     map[member]bool
			heard   []int64
			job     func(c *zactor.Context)
		}
		all := make([]*state, actors)
		subscribe := func(c *zactor.Context, m member) {
			var err error
			if m.queue == "" {
				err = c.Subscribe(m.topic)
			} else {
				err = c.SubscribeQueue(m.topic, m.queue)
			}
			if err != nil {
				r.Fatal(err)
			}
		}
		begin := func(inStart map[member]bool) *state {
			s := &state{inStart: inStart, now: maps.Clone(inStart)}
			ref, err := g.Spawn("", func() zactor.Actor {
				return &actor{
					start: func(c *zactor.Context) error {
						for m := range s.inStart {
							subscribe(c, m)
						}
						return nil
					},
					handlers: []zactor.Handler{
						zactor.HandleTell(func(c *zactor.Context, _ *testpb.Note) error { s.job(c); return nil }),
						zactor.HandleTell(func(_ *zactor.Context, p *testpb.Pong) error { s.heard = append(s.heard, p.GetN()); return nil }),
					},
				}
			})
			if err != nil {
				r.Fatal(err)
			}
			s.ref = ref
			return s
		}
		drawMember := rapid.Custom(func(r *rapid.T) member {
			m := member{topic: fmt.Sprint("t", rapid.IntRange(0, topics-1).Draw(r, "topic"))}
			if q := rapid.IntRange(-1, queues-1).Draw(r, "queue"); q >= 0 {
				m.queue = fmt.Sprint("q", q)
			}
			return m
		})
		for i := range all {
			all[i] = begin(nil)
		}
		run := func(s *state, job func(c *zactor.Context)) {
			s.job = job
			if err := s.ref.Tell(&testpb.Note{}); err != nil {
				r.Fatal(err)
			}
			steps.Run()
		}
		message := int64(0)
		for range rapid.IntRange(5, 40).Draw(r, "steps") {
			i := rapid.IntRange(0, actors-1).Draw(r, "actor")
			s := all[i]
			switch rapid.SampledFrom([]string{"subscribe", "subscribe", "unsubscribe", "publish", "publish", "restart", "stop"}).Draw(r, "do") {
			case "subscribe":
				m := drawMember.Draw(r, "member")
				run(s, func(c *zactor.Context) { subscribe(c, m) })
				if s.now == nil {
					s.now = map[member]bool{}
				}
				s.now[m] = true
			case "unsubscribe":
				m := drawMember.Draw(r, "member")
				run(s, func(c *zactor.Context) {
					if m.queue == "" {
						c.Unsubscribe(m.topic)
					} else {
						c.UnsubscribeQueue(m.topic, m.queue)
					}
				})
				delete(s.now, m)
			case "restart":
				run(s, func(*zactor.Context) { panic("on purpose") })
				s.now = maps.Clone(s.inStart)
			case "stop":
				if err := g.Stop(s.ref); err != nil {
					r.Fatal(err)
				}
				steps.Run()
				inStart := map[member]bool{}
				for _, m := range rapid.SliceOfN(drawMember, 0, 3).Draw(r, "in start") {
					inStart[m] = true
				}
				all[i] = begin(inStart)
			case "publish":
				topic := fmt.Sprint("t", rapid.IntRange(0, topics-1).Draw(r, "topic"))
				message++
				if rapid.Bool().Draw(r, "by an actor") {
					run(s, func(c *zactor.Context) {
						if err := c.PublishTopicLocal(topic, say(message)); err != nil {
							r.Error(err)
						}
					})
				} else if err := g.PublishTopicLocal(topic, say(message)); err != nil {
					r.Fatal(err)
				}
				steps.Run()
				got, want, members := 0, 0, map[string]int{}
				for i, s := range all {
					queued := 0
					for m := range s.now {
						if m.topic == topic && m.queue != "" {
							members[m.queue]++
							queued++
						}
					}
					n := len(s.heard)
					plain := 0
					if s.now[member{topic: topic}] {
						plain = 1
					}
					if n < plain || n > plain+queued {
						r.Fatalf("actor %d heard message %d %d times, wants %d, and is in %d queues", i, message, n, plain, queued)
					}
					for _, h := range s.heard {
						if h != message {
							r.Fatalf("actor %d heard %d, not %d", i, h, message)
						}
					}
					s.heard = nil
					got, want = got+n, want+plain
				}
				if want += len(members); got != want {
					r.Fatalf("message %d was heard %d times, want %d: %d queues", message, got, want, len(members))
				}
			}
			// The other nodes are told of what there is, no more and no less.
			want := map[string]bool{}
			for _, s := range all {
				for m := range s.now {
					if m.queue == "" {
						want[m.topic] = true
					} else {
						want[m.topic+" "+m.queue] = true
					}
				}
			}
			if !maps.Equal(w.wanted, want) || slices.Contains(w.calls, "again") {
				r.Fatalf("the other nodes know of %v, want %v", w.wanted, want)
			}
		}
		for _, s := range all {
			if err := g.Stop(s.ref); err != nil {
				r.Fatal(err)
			}
		}
		steps.Run()
		if len(w.wanted) != 0 {
			r.Fatalf("left: %v", w.wanted)
		}
	})
}
