package adminport

import (
	"testing"
	"time"

	"zgame/zmsg"
	"zgame/ztrace"
)

// What nothing comes for any more is told, if it is of whom is followed; of too many the oldest goes, of one trace only so many spans are kept.
func TestTraces(t *testing.T) {
	t.Parallel()
	var told [][]ztrace.Span
	f := Traces{Of: func(s *ztrace.Span) bool { return s.User == "ann" }, Told: func(spans []ztrace.Span) { told = append(told, spans) }}
	base := time.Unix(1000, 0)
	span := func(n int, user string) *ztrace.Span {
		return &ztrace.Span{Trace: zmsg.TraceID{byte(n), byte(n >> 8), 1}, ID: uint64(n) + 1, Name: "m", User: user, Start: base.Add(time.Duration(n))}
	}
	f.Add(span(1, "ann"), base)
	f.Add(span(2, "bob"), base)
	f.Tell(base.Add(-time.Second))
	if len(told) != 0 {
		t.Errorf("told before it was complete: %v", told)
	}
	f.Tell(base)
	if len(told) != 1 || told[0][0].User != "ann" || len(f.traces) != 0 {
		t.Errorf("told %v", told)
	}
	told = nil
	for i := range maxTraces + 10 {
		f.Add(span(i, "ann"), base.Add(time.Duration(i)))
	}
	if len(f.traces) > maxTraces || len(told) != 10 {
		t.Errorf("%d traces are kept, %d told", len(f.traces), len(told))
	}
	f, told = Traces{Of: f.Of, Told: f.Told}, nil
	for range maxTraceSpans + 5 {
		f.Add(span(7, "ann"), base)
	}
	if f.Tell(base); len(told) != 1 || len(told[0]) != maxTraceSpans {
		t.Errorf("of a trace without end %d spans are told", len(told[0]))
	}
}
