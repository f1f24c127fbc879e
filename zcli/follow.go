package zcli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/ztrace"
)

// settled is for how long nothing may come for a trace before it is printed: spans come from several nodes, each when it ends.
const settled = 400 * time.Millisecond

// maxTraces is how many traces may be incomplete at once; of more the oldest is printed as it is.
const maxTraces = 1024

// follow prints the traces of what is followed as they end, until ctx does: of a user, or of an object.
func (o *operator) follow(ctx context.Context, query string, of func(s *ztrace.Span) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	spans, ended := make(chan ztrace.Span, 256), make(chan error)
	var streams sync.WaitGroup
	followed := 0
	for _, admin := range o.admins() {
		res, err := askAdmin(ctx, admin, http.MethodGet, "/follow?"+query)
		if err != nil {
			fmt.Fprintf(o.env.Stderr, "%s is not followed: %v\n", admin, err)
			continue
		}
		followed++
		streams.Go(func() { // ends with ctx
			err := readSpans(ctx, res.Body, spans)
			select {
			case ended <- fmt.Errorf("%s: %w", admin, err):
			case <-ctx.Done():
			}
		})
	}
	defer streams.Wait()
	defer cancel()
	if followed == 0 {
		return errors.New("no node can be followed")
	}
	fmt.Fprintf(o.env.Stderr, "following at %d nodes; ^C ends it\n", followed)
	f := follower{of: of, out: o.env.Stdout}
	tick := time.NewTicker(settled / 4)
	defer tick.Stop()
	for {
		select {
		case s := <-spans:
			f.add(&s, time.Now())
		case now := <-tick.C:
			f.print(now.Add(-settled))
		case err := <-ended:
			fmt.Fprintln(o.env.Stderr, err)
			if followed--; followed == 0 {
				f.print(time.Now())
				return errors.New("no node is followed any more")
			}
		case <-ctx.Done():
			f.print(time.Now())
			return nil
		}
	}
}

// admins returns the admin ports of all nodes.
func (o *operator) admins() (all []string) {
	if o.admin != "" {
		return []string{o.admin}
	}
	for i := range o.nodes {
		if n := &o.nodes[i]; n.Admin != "" && n.State != zdiscovery.Starting {
			all = append(all, n.Admin)
		}
	}
	return all
}

// readSpans reads what a node sends until it ends.
func readSpans(ctx context.Context, body io.ReadCloser, spans chan<- ztrace.Span) error {
	defer body.Close()
	d := json.NewDecoder(body)
	for {
		var s ztrace.Span
		if err := d.Decode(&s); err != nil {
			return fmt.Errorf("the node sends no more: %w", err)
		}
		select {
		case spans <- s:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// follower puts spans together.
type follower struct {
	of     func(s *ztrace.Span) bool
	out    io.Writer
	traces map[zmsg.TraceID]*followedTrace
}

type followedTrace struct {
	spans []ztrace.Span
	last  time.Time // when the newest came
}

func (f *follower) add(s *ztrace.Span, now time.Time) {
	t := f.traces[s.Trace]
	if t == nil {
		if f.traces == nil {
			f.traces = map[zmsg.TraceID]*followedTrace{}
		}
		if len(f.traces) >= maxTraces {
			oldest := now
			for _, t := range f.traces {
				if t.last.Before(oldest) {
					oldest = t.last
				}
			}
			f.print(oldest)
		}
		t = new(followedTrace)
		f.traces[s.Trace] = t
	}
	t.spans, t.last = append(t.spans, *s), now
}

// print prints, and forgets, what nothing came for since.
func (f *follower) print(since time.Time) {
	var done []*followedTrace
	for id, t := range f.traces {
		if !t.last.After(since) {
			delete(f.traces, id)
			if slices.ContainsFunc(t.spans, func(s ztrace.Span) bool { return f.of(&s) }) {
				done = append(done, t)
			}
		}
	}
	slices.SortFunc(done, func(a, b *followedTrace) int { return earliest(a.spans).Compare(earliest(b.spans)) })
	for _, t := range done {
		fmt.Fprint(f.out, traceText(t.spans))
	}
}

func earliest(spans []ztrace.Span) (t time.Time) {
	for i := range spans {
		if t.IsZero() || spans[i].Start.Before(t) {
			t = spans[i].Start
		}
	}
	return t
}

// traceText draws a trace: each span a line, what it led to below it, in the order of time. Times are those of the nodes' clocks.
func traceText(spans []ztrace.Span) string {
	known := map[uint64]bool{}
	for i := range spans {
		known[spans[i].ID] = true
	}
	below := map[uint64][]*ztrace.Span{}
	for i := range spans {
		s := &spans[i]
		parent := s.Parent
		if !known[parent] {
			parent = 0 // its node is not followed, or has dropped it
		}
		below[parent] = append(below[parent], s)
	}
	var b strings.Builder
	drawn := map[uint64]bool{} // garbage may go round
	var draw func(parent uint64, depth int)
	draw = func(parent uint64, depth int) {
		list := below[parent]
		slices.SortFunc(list, func(a, b *ztrace.Span) int { return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.ID, b.ID)) })
		for _, s := range list {
			if drawn[s.ID] {
				continue
			}
			drawn[s.ID] = true
			spanLine(&b, s, depth)
			draw(s.ID, depth+1)
		}
	}
	draw(0, 0)
	return b.String()
}

func spanLine(b *strings.Builder, s *ztrace.Span, depth int) {
	fmt.Fprintf(b, "%s  %s%s %s", s.Start.Local().Format("15:04:05.000"), strings.Repeat("  ", depth), s.Kind, s.Name)
	switch {
	case s.Key != zmsg.Key{}:
		fmt.Fprintf(b, " of %s, version %d", s.Key, s.Version)
	case s.ActorName != "":
		fmt.Fprintf(b, " by %s", s.ActorName)
	}
	if s.User != "" && s.Kind == ztrace.Request {
		fmt.Fprintf(b, " from %s", s.User)
	}
	if s.Kind == ztrace.Push {
		fmt.Fprintf(b, " to %d sessions", s.Sessions)
	}
	fmt.Fprintf(b, " at %s: %s in %s", s.Node.ID, s.Result, short(s.Duration))
	if s.Wait > 0 {
		fmt.Fprintf(b, " after %s in the mailbox", short(s.Wait))
	}
	b.WriteByte('\n')
}

// short rounds to what people look at.
func short(d time.Duration) time.Duration {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond)
	case d < time.Second:
		return d.Round(10 * time.Microsecond)
	default:
		return d.Round(time.Millisecond)
	}
}
