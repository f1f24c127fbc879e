package zactor

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The tape against the list of all that was ever put on it: what it keeps is the end of that list, after a state that belongs
// there, of a length within its bounds.
func TestTapeModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		keep := rapid.IntRange(1, 20).Draw(t, "keep")
		bytes := rapid.SampledFrom([]int{8 * inputOverhead, 50 * inputOverhead, 1 << 30}).Draw(t, "bytes")
		snapshots := rapid.Bool().Draw(t, "snapshots")
		tp := newTape(keep, bytes)
		tp.start = &recordedInput{Kind: inputStart}
		var all []*recordedInput
		states := map[uint64]string{} // by the turn that they come after
		largest := 0
		for range rapid.IntRange(0, 200).Draw(t, "inputs") {
			if tp.due(rapid.Bool().Draw(t, "pending")) {
				state := fmt.Sprintf("after %d", len(all))
				ok := snapshots && rapid.IntRange(0, 9).Draw(t, "ok") > 0
				tp.turnOver([]byte(state), ok)
				if ok {
					states[uint64(len(all))] = state
				}
			}
			in := &recordedInput{Body: make([]byte, rapid.IntRange(0, bytes/8%4096).Draw(t, "body"))}
			tp.add(in)
			all = append(all, in)
			if n := rapid.IntRange(0, 3).Draw(t, "grow"); n == 0 {
				tp.grow(in, 100)
			}
			largest = max(largest, in.size)

			h, kept := tp.record()
			if kept[0] != tp.start {
				t.Fatal("the start is not the first input")
			}
			kept = kept[1:]
			if !slices.Equal(kept, all[len(all)-len(kept):]) {
				t.Fatalf("kept %d inputs, which are not the last ones", len(kept))
			}
			if h.Dropped != uint64(len(all)-len(kept)) {
				t.Fatalf("%d dropped, want %d", h.Dropped, len(all)-len(kept))
			}
			switch h.Base {
			case BaseStart:
				if len(kept) != len(all) {
					t.Fatal("the record of a start lacks inputs")
				}
			case BaseSnapshot:
				if string(h.State) != states[h.Dropped] || states[h.Dropped] == "" {
					t.Fatalf("the state %q stands before input %d", h.State, h.Dropped+1)
				}
			case BaseNone:
				if len(kept) == len(all) {
					t.Fatal("all inputs are there, and the base is none")
				}
			default:
				t.Fatalf("base %q", h.Base)
			}
			size := len(h.State)
			for _, in := range kept {
				size += in.size
			}
			if size > max(bytes, largest) {
				t.Fatalf("%d bytes are kept, %d allowed", size, bytes)
			}
			if len(kept) > 3*keep {
				t.Fatalf("%d inputs are kept, %d wanted", len(kept), keep)
			}
			if want := min(len(all), keep); len(kept) < want && !h.Truncated && states[h.Dropped] == "" {
				t.Fatalf("%d inputs are kept of %d, want %d", len(kept), len(all), want)
			}
			if bytes == 1<<30 && h.Truncated {
				t.Fatal("truncated, with all the room there is")
			}
		}
	})
}

func TestSurplus(t *testing.T) {
	t.Parallel()
	name := func(actor string, at int) string {
		return fmt.Sprintf("T_%s_2026010%dT000000.000-001%s", actor, at, recordExt)
	}
	names := []string{name("a", 1), name("b", 2), name("a", 3), name("c", 4), name("a", 5), name("b", 6)}
	for _, c := range []struct {
		limit int
		want  []string
	}{
		{8, []string{name("a", 1)}}, // a quarter, two, may be a's
		{4, []string{name("a", 1), name("a", 3)}},
		{2, []string{name("a", 1), name("a", 3), name("b", 2), name("c", 4)}},
		{100, nil},
	} {
		got := surplus(slices.Clone(names), "T_a_", c.limit)
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("limit %d: %q go, want %q", c.limit, got, c.want)
		}
	}
}

func TestFileSafe(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"rooms":       "rooms",
		"chat.rooms":  "chat.rooms",
		"":            "",
		"../etc":      "-etc-",
		"a/b":         "a-b-",
		"a_b":         "a-b-",
		"zimmer-ä":    "zimmer---",
		".hidden":     "hidden-",
		"C:\\con\x00": "C--con--",
	} {
		got := fileSafe(name)
		if len(got) < len(want) || got[:len(want)] != want || (got == want) != (name == want) {
			t.Errorf("%q becomes %q, want %q and what keeps it apart", name, got, want)
		}
	}
	if fileSafe("a/b") == fileSafe("a_b") {
		t.Error("two names make one")
	}
}

// panicsHere has a name that a stack shows.
func panicsHere(v any) {
	few := make([]int, 1)
	switch v := v.(type) {
	case int:
		_ = few[v] // in a frame of the runtime
	case *Timer:
		_ = v.gen // a signal
	default:
		panic(v)
	}
}

func TestPanicFrame(t *testing.T) {
	t.Parallel()
	for _, v := range []any{"text", 3, (*Timer)(nil)} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
				name, line := panicFrame(debug.Stack())
				if name != "zgame/zactor.panicsHere" || !strings.HasPrefix(line, "zactor/tape_internal_test.go:") {
					t.Errorf("%v panicked in %q, %q", v, name, line)
				}
			}()
			panicsHere(v)
		}()
	}
	if name, line := panicFrame(debug.Stack()); name != "" || line != "" {
		t.Errorf("no panic, and a frame %q, %q", name, line)
	}
	for _, odd := range []string{"", "panic(", "panic(\n(", "panic(\nf", "panic(\n\nf(", "panic(\nf\n\t", "panic(\nf\n\t/"} {
		_, _ = panicFrame([]byte(odd))
	}
}
