package ztest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/ztest"
)

var update = flag.Bool("update", false, "write the transcripts as they come out")

// The transcripts in testdata/transcripts are stories of a cluster: what is done (>), and what every node knows and gets afterwards (<).
// They are replayed in memory, and those that need no violence on real servers too.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		violent := strings.Contains(string(text), "\n> kill") || strings.Contains(string(text), "\n> expire")
		for _, real := range []bool{false, true} {
			if real && violent {
				continue
			}
			t.Run(fmt.Sprintf("%s/real=%v", filepath.Base(file), real), func(t *testing.T) {
				t.Parallel()
				got := replay(t, string(text), real)
				if *update && !real {
					if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
						t.Fatal(err)
					}
				} else if got != string(text) {
					t.Errorf("%s: got\n%s\nwant\n%s", file, got, text)
				}
			})
		}
	}
}

// story is a transcript that is being replayed.
type story struct {
	t      *testing.T
	c      *ztest.Nodes
	at     map[string]int           // node id -> index
	epochs map[zmsg.NodeRef]int     // in the order in which they came up
	latest map[string]int           // of each node id
	held   chan struct{}            // closed to end what is held
	ended  map[string]chan error    // of requests that are held, by who answers them
	stops  map[string]chan struct{} // closed when a node that drains has stopped
	begun  chan struct{}            // takes one for each request that is held
	out    []string
}

// replay does what the lines with > say, and returns the transcript that comes of it.
func replay(t *testing.T, text string, real bool) string {
	t.Helper()
	s := &story{
		t: t, at: map[string]int{}, epochs: map[zmsg.NodeRef]int{}, latest: map[string]int{},
		held: make(chan struct{}), ended: map[string]chan error{}, stops: map[string]chan struct{}{}, begun: make(chan struct{}, 10),
	}
	opts := []ztest.Option{ztest.Settings(func(_ int, set *znode.Settings) {
		set.Gate.Enabled, set.Etcd.Lease, set.Drain.Timeout = false, patience, patience
	})}
	if real {
		opts = append(opts, ztest.RealServers())
	}
	s.c = ztest.Cluster(t, 0, znode.App{Setup: s.setup}, opts...)
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "> "):
			s.out = append(s.out, line)
			words := strings.Fields(line[2:])
			s.do(words[0], words[1:])
			s.look()
		case strings.HasPrefix(line, "< "):
		default:
			s.out = append(s.out, line)
		}
	}
	return strings.Join(s.out, "\n") + "\n"
}

// setup gives every node but n1, which asks, an actor that answers with its node's name. One that is asked to join "hold" waits.
func (s *story) setup(n *znode.Node) error {
	id := n.Self().ID
	if id == "n1" {
		return nil
	}
	_, err := n.Spawn("service", func() zactor.Actor {
		return &actor{handlers: []zactor.Handler{zactor.Handle(func(c *zactor.Context, m *chatpb.Join) (*chatpb.Joined, error) {
			if m.GetRoom() == "hold" {
				owed := c.Defer()
				s.begun <- struct{}{}
				return nil, errors.Join(zactor.ErrDeferred, zactor.Async(c, func(context.Context) (int, error) {
					<-s.held
					return 0, nil
				}, func(*zactor.Context, int, error) { owed.Reply(&chatpb.Joined{Node: id}) }))
			}
			return &chatpb.Joined{Node: id}, nil
		})}}
	})
	return err
}

func (s *story) node(id string) *znode.Node { return s.c.Node(s.at[id]) }

func (s *story) do(verb string, words []string) {
	s.t.Helper()
	id := words[0]
	switch verb {
	case "join":
		s.at[id] = s.c.Add()
		if got := s.node(id).Self(); got.ID != id {
			s.t.Fatalf("%s joined as %s: nodes join in the order of their names", id, got.ID)
		}
		s.noteEpoch(id)
	case "hold": // a request of n1 that its node does not answer yet
		done := make(chan error, 1)
		s.ended[id] = done
		to := s.node("n1").Group().Ref(zmsg.Address{Node: s.node(id).Self(), Actor: 1})
		if ref, ok := s.node(id).Group().Lookup("service"); ok {
			to = s.node("n1").Group().Ref(ref.Address())
		}
		go func() { // ends with the request
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			_, err := zactor.Ask[chatpb.Joined](ctx, to, &chatpb.Join{Room: "hold"})
			done <- err
		}()
		<-s.begun
	case "drain":
		ref, stopped := s.node(id).Self(), make(chan struct{})
		s.stops[id] = stopped
		n := s.node(id)
		go func() { // ends with the stop
			defer close(stopped)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := n.Stop(ctx); err != nil {
				s.t.Errorf("stop of %s: %v", id, err)
			}
		}()
		if s.ended[id] == nil { // nothing holds it
			<-stopped
			s.gone(ref)
			break
		}
		s.everyone("the drain is known", func(o *zdiscovery.Node) bool { return o.Ref != ref || o.State == zdiscovery.Draining })
	case "release": // what is held there
		ref := s.node(id).Self()
		close(s.held)
		if err := <-s.ended[id]; err != nil {
			s.out = append(s.out, "< the request that was held ends with "+zmsg.CodeOf(err).String())
		} else {
			s.out = append(s.out, "< the request that was held is answered")
		}
		if stopped := s.stops[id]; stopped != nil {
			<-stopped
			s.gone(ref)
		}
	case "kill":
		ref := s.node(id).Self()
		s.c.Kill(s.at[id])
		s.gone(ref)
	case "expire":
		before := s.node(id).Self()
		s.c.Expire(s.at[id])
		ztest.Eventually(s.t, "it has a new epoch", func() bool { return s.node(id).Self() != before })
		s.gone(before)
		s.c.Settle()
		s.noteEpoch(id)
	default:
		s.t.Fatalf("%q: expected join, hold, drain, release, kill or expire", verb)
	}
}

// noteEpoch numbers the epoch that a node has now.
func (s *story) noteEpoch(id string) {
	s.latest[id]++
	s.epochs[s.node(id).Self()] = s.latest[id]
}

func (s *story) gone(ref zmsg.NodeRef) {
	s.t.Helper()
	delete(s.ended, ref.ID)
	s.everyone("it is gone", func(o *zdiscovery.Node) bool { return o.Ref != ref })
}

// running are the nodes that are up and do not stop, by name.
func (s *story) running() (ids []string) {
	for id, k := range s.at {
		if s.c.Node(k) != nil && s.stops[id] == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// everyone waits until what each running node knows of each node is ok.
func (s *story) everyone(what string, ok func(*zdiscovery.Node) bool) {
	s.t.Helper()
	ztest.Eventually(s.t, what, func() bool {
		for _, id := range s.running() {
			for _, o := range s.node(id).Nodes() {
				if !ok(&o) {
					return false
				}
			}
		}
		return true
	})
}

// look writes down what every running node knows, and who answers n1.
func (s *story) look() {
	for _, id := range s.running() {
		var known []string
		for _, o := range s.node(id).Nodes() {
			known = append(known, fmt.Sprintf("%s %s epoch %d", o.Ref.ID, o.State, s.epochs[o.Ref]))
		}
		slices.Sort(known)
		s.out = append(s.out, fmt.Sprintf("< %s knows: %s", id, strings.Join(known, ", ")))
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	m, err := zactor.Ask[chatpb.Joined](ctx, s.node("n1").Group().ByID(), &chatpb.Join{})
	for end := time.Now().Add(patience); err != nil && time.Now().Before(end) && slices.Contains(s.serving(), true); {
		m, err = zactor.Ask[chatpb.Joined](ctx, s.node("n1").Group().ByID(), &chatpb.Join{}) // records come a moment after states
	}
	if err != nil {
		s.out = append(s.out, fmt.Sprintf("< n1 asks: %s, %s", zmsg.CodeOf(err), zmsg.OutcomeOf(err)))
		return
	}
	s.out = append(s.out, "< n1 asks: answered by "+m.GetNode())
}

// serving says of each running node whether it has an actor and no request holds it.
func (s *story) serving() (list []bool) {
	for _, id := range s.running() {
		list = append(list, id != "n1" && s.ended[id] == nil)
	}
	return list
}
