package zcli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"zgame/internal/adminport"
	"zgame/zmsg"
	"zgame/ztrace"
)

// follow prints the traces of what is followed as they end, until ctx does: of a user, or of an object.
func (o *operator) follow(ctx context.Context, query string, of func(s *ztrace.Span) bool) error {
	return o.Follow(ctx, query, adminport.Followed{
		Of:    of,
		Told:  func(spans []ztrace.Span) { fmt.Fprint(o.env.Stdout, traceText(spans)) },
		Fault: func(address string, err error) { fmt.Fprintf(o.env.Stderr, "%s is not followed: %v\n", address, err) },
		Begun: func(ports int) { fmt.Fprintf(o.env.Stderr, "following at %d nodes; ^C ends it\n", ports) },
	})
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
