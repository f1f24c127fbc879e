package adminport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"zgame/zmsg"
	"zgame/ztrace"
)

const (
	// settled is for how long nothing may come for a trace before it is told: spans come from several nodes, each when it ends.
	settled = 400 * time.Millisecond
	// maxTraces is how many traces may be incomplete at once; of more the oldest is told as it is.
	maxTraces = 1024
	// maxTraceSpans is how many spans a trace has at most; more are left out.
	maxTraceSpans = 512
)

// Followed says what is done with what a Follow sees. All is called by Follow alone.
type Followed struct {
	// Of says whether a span is of whom is followed.
	Of func(s *ztrace.Span) bool
	// Told gets the traces that have a span of whom is followed, when nothing comes for them any more.
	Told func(spans []ztrace.Span)
	// Fault is told of ports that cannot be followed, or not any more.
	Fault func(address string, err error)
	// Begun, if set, is called when all ports have been asked.
	Begun func(ports int)
}

// Follow has the traces told of what query says (user, or type, zone and id), at all ports, until ctx ends, which is no error. Errors: no port can be followed,
// or none any more.
func (c *Cluster) Follow(ctx context.Context, query string, f Followed) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type end struct {
		address string
		err     error
	}
	spans, ended := make(chan ztrace.Span, 256), make(chan end)
	var streams sync.WaitGroup
	followed, ports := 0, c.Ports()
	answers, faults := make([]*http.Response, len(ports)), make([]error, len(ports))
	var asked sync.WaitGroup
	for i, address := range ports {
		asked.Go(func() { answers[i], faults[i] = Stream(ctx, address, "/follow?"+query) }) // one that hangs keeps none waiting
	}
	asked.Wait()
	for i, address := range ports {
		if faults[i] != nil {
			f.Fault(address, faults[i])
			continue
		}
		followed++
		streams.Go(func() { // ends with ctx
			err := readSpans(ctx, answers[i].Body, spans)
			select {
			case ended <- end{address, err}:
			case <-ctx.Done():
			}
		})
	}
	defer streams.Wait()
	defer cancel()
	if followed == 0 {
		return errors.New("no node can be followed")
	}
	if f.Begun != nil {
		f.Begun(followed)
	}
	t := Traces{Of: f.Of, Told: f.Told}
	tick := time.NewTicker(settled / 4)
	defer tick.Stop()
	for {
		select {
		case s := <-spans:
			t.Add(&s, time.Now())
		case now := <-tick.C:
			t.Tell(now.Add(-settled))
		case e := <-ended:
			f.Fault(e.address, e.err)
			if followed--; followed == 0 {
				t.Tell(time.Now())
				return errors.New("no node is followed any more")
			}
		case <-ctx.Done():
			t.Tell(time.Now())
			return nil
		}
	}
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

// Traces puts spans together.
type Traces struct {
	Of   func(s *ztrace.Span) bool // which traces are told: those with such a span
	Told func(spans []ztrace.Span)

	traces map[zmsg.TraceID]*trace
}

type trace struct {
	spans []ztrace.Span
	last  time.Time // when the newest came
}

// Add adds a span that came now.
func (f *Traces) Add(s *ztrace.Span, now time.Time) {
	t := f.traces[s.Trace]
	if t == nil {
		if f.traces == nil {
			f.traces = map[zmsg.TraceID]*trace{}
		}
		if len(f.traces) >= maxTraces {
			oldest := now
			for _, t := range f.traces {
				if t.last.Before(oldest) {
					oldest = t.last
				}
			}
			f.Tell(oldest)
		}
		t = new(trace)
		f.traces[s.Trace] = t
	}
	if t.last = now; len(t.spans) < maxTraceSpans {
		t.spans = append(t.spans, *s)
	}
}

// Tell tells, and forgets, what nothing came for since.
func (f *Traces) Tell(since time.Time) {
	var done [][]ztrace.Span
	for id, t := range f.traces {
		if !t.last.After(since) {
			delete(f.traces, id)
			if slices.ContainsFunc(t.spans, func(s ztrace.Span) bool { return f.Of(&s) }) {
				done = append(done, t.spans)
			}
		}
	}
	slices.SortFunc(done, func(a, b []ztrace.Span) int { return earliest(a).Compare(earliest(b)) })
	for _, spans := range done {
		f.Told(spans)
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
