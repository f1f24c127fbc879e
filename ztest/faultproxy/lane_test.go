package faultproxy

import (
	"bytes"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drain runs a lane in virtual time from at on, until it waits for something to change. It returns what was written, when the last
// of it was, and what the lane did last.
func drain(t interface{ Fatal(...any) }, l *lane, at time.Time) (out []byte, end time.Time, last action) {
	for range 1_000_000 {
		s := l.next(at)
		out = append(out, s.data...)
		switch {
		case s.do != doWait:
			last = s.do
		case s.pause > 0:
			at = at.Add(s.pause)
		default:
			return out, at, last
		}
	}
	t.Fatal("no end")
	return nil, at, last
}

func TestLaneRateAndDelay(t *testing.T) {
	t.Parallel()
	start := time.Unix(0, 0)
	l := &lane{}
	l.set(Fault{Rate: 1000, Delay: time.Second})
	l.put(item{at: start, data: make([]byte, 500)})
	l.put(item{at: start, data: make([]byte, 500)})
	l.put(item{at: start.Add(5 * time.Second), kind: kindEnd})
	out, end, last := drain(t, l, start)
	if len(out) != 1000 || last != doShut || !end.Equal(start.Add(6*time.Second)) {
		t.Errorf("%d bytes, the last at %v, then %v", len(out), end.Sub(start), last)
	}
	l = &lane{}
	l.set(Fault{Rate: 1000})
	l.put(item{at: start, data: make([]byte, 1000)})
	if _, end, _ = drain(t, l, start); end.Sub(start) != 980*time.Millisecond { // the first 20 bytes are not waited for
		t.Errorf("1000 bytes took %v", end.Sub(start))
	}
	l.put(item{at: start, data: make([]byte, 20)})
	if _, end, _ = drain(t, l, start.Add(time.Hour)); end.Sub(start) != time.Hour { // nothing was saved up
		t.Errorf("after an hour: %v", end.Sub(start))
	}
}

// Whatever the faults, what passes is the beginning of what came, counted; what does not, waits or has vanished.
func TestLaneAgainstItsBooks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, at := &lane{}, time.Unix(0, 0)
		var in, out []byte
		ended := false
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				l.set(Fault{
					Stall: rapid.Bool().Draw(t, "stall"), Swallow: rapid.IntRange(0, 3).Draw(t, "swallow") == 0,
					Delay: time.Duration(rapid.IntRange(0, 3).Draw(t, "delay")) * time.Second, Rate: rapid.IntRange(0, 100).Draw(t, "rate"),
					CutAfter: int64(rapid.IntRange(0, 50).Draw(t, "cut")),
				})
				if l.broken() {
					return // the connection is reset
				}
			case 1:
				if !ended {
					data := rapid.SliceOfN(rapid.Byte(), 1, 100).Draw(t, "data")
					in = append(in, data...)
					l.put(item{at: at, data: data})
				}
			case 2:
				if ended = rapid.IntRange(0, 5).Draw(t, "end") == 0; ended && !l.lastIn {
					l.put(item{at: at, kind: kindEnd})
				}
				ended = l.lastIn
			case 3:
				cutAt := l.cutAt
				var last action
				var got []byte
				got, at, last = drain(t, l, at)
				out = append(out, got...)
				if last == doWriteAndCut && l.bytes.Passed != cutAt {
					t.Fatalf("cut after %d, want %d", l.bytes.Passed, cutAt)
				}
			}
			if !bytes.HasPrefix(in, out) || l.bytes.Passed != int64(len(out)) {
				t.Fatalf("got %d bytes, counted %d, the beginning: %v", len(out), l.bytes.Passed, bytes.HasPrefix(in, out))
			}
			if b := l.bytes; b.Passed+b.Vanished+b.Waiting != int64(len(in)) || b.Waiting < 0 {
				t.Fatalf("%+v of %d", b, len(in))
			}
			if l.bytes.Vanished > 0 && !l.hole && !l.shut {
				t.Fatal("bytes vanished without a trace")
			}
		}
	})
}
