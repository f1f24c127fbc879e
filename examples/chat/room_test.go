package chat

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"zgame/examples/chat/chatpb"
	"zgame/zmsg"
)

func sessionNo(i int) zmsg.SessionRef {
	return zmsg.SessionRef{Gate: zmsg.NodeRef{ID: "g", Epoch: 1}, ID: uint64(i + 1), Gen: 1}
}

// Whatever people do, lines are numbered without a hole, each coming and leaving of a user is told once, in turns, and what is said twice
// under one name is said once.
func TestRoomModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const users, sessions, most = 3, 6, 2 // two sessions of each user
		s := &chatpb.RoomState{}
		in := map[int]bool{}
		said := map[string]uint64{}
		var all []*chatpb.Line
		user := func(i int) string { return fmt.Sprint("u", i%users) }
		here := func() (list []string) {
			for i := range in {
				list = append(list, user(i))
			}
			slices.Sort(list)
			return slices.Compact(list)
		}
		which := rapid.IntRange(0, sessions-1)
		steps := map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				i := which.Draw(t, "session")
				may := slices.Contains(here(), user(i)) || len(here()) < most
				changed, err := enter(s, "go", user(i), sessionNo(i), most, 1)
				if (err == nil) != may || changed != (may && !in[i]) {
					t.Fatalf("joined: %t, %v", changed, err)
				}
				if may {
					in[i] = true
				}
			},
			"leave": func(t *rapid.T) {
				i := which.Draw(t, "session")
				if changed := exit(s, "go", sessionNo(i), 1); changed != in[i] {
					t.Fatalf("left: %t", changed)
				}
				delete(in, i)
			},
			"to another gate and back": func(t *rapid.T) {
				i := which.Draw(t, "session")
				there := sessionNo(i)
				there.Gen++
				if rename(s, sessionNo(i), there) != in[i] || rename(s, there, sessionNo(i)) != in[i] {
					t.Fatal("another session is renamed")
				}
			},
			"say": func(t *rapid.T) {
				i := which.Draw(t, "session")
				once := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "once")
				seq, err := speak(s, sessionNo(i), &chatpb.Line{From: user(i), Text: "x", Once: once}, pace{rate: -1})
				if (err == nil) != in[i] {
					t.Fatalf("said: %v", err)
				}
				name := user(i) + once
				switch before, again := said[name]; {
				case err != nil || once == "":
				case again && seq != before:
					t.Fatalf("%s was said as %d, and again as %d", name, before, seq)
				default:
					said[name] = seq
				}
			},
			"": func(t *rapid.T) {
				all = append(all, s.GetLines()[len(all):]...)
				if s.GetLast() != uint64(len(all)) {
					t.Fatalf("the last line is %d, there are %d", s.GetLast(), len(all))
				}
				there := map[string]bool{}
				for i, l := range all {
					if l.GetSeq() != uint64(i+1) {
						t.Fatalf("line %d has the number %d", i+1, l.GetSeq())
					}
					switch l.GetKind() {
					case chatpb.LineKind_LINE_KIND_CAME, chatpb.LineKind_LINE_KIND_LEFT:
						now := l.GetKind() == chatpb.LineKind_LINE_KIND_CAME
						if there[l.GetFrom()] == now {
							t.Fatalf("%s came, or left, twice", l.GetFrom())
						}
						there[l.GetFrom()] = now
					case chatpb.LineKind_LINE_KIND_SAID:
						if !there[l.GetFrom()] {
							t.Fatalf("%s speaks, and is not there", l.GetFrom())
						}
					}
				}
				if got := names(s); !slices.Equal(got, here()) {
					t.Fatalf("there are %q, want %q", got, here())
				}
				for u, is := range there {
					if is != slices.Contains(here(), u) {
						t.Fatalf("the lines say that %s is there: %t", u, is)
					}
				}
			},
		}
		t.Repeat(steps)
	})
}

// A room forgets its oldest lines, by count and by bytes, and never the newest.
func TestRoomForgets(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"x", strings.Repeat("€", maxText)} {
		s := &chatpb.RoomState{}
		if _, err := enter(s, "go", "ann", sessionNo(0), 1, 1); err != nil {
			t.Fatal(err)
		}
		seen := between(s, 0, 0, newestLines)
		for range 3 * keptLines {
			if _, err := speak(s, sessionNo(0), &chatpb.Line{From: "ann", Text: text}, pace{rate: -1}); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(s.GetLines()); n > keptLines || n < 30 || proto.Size(s) > keptBytes+keptLines*8 {
			t.Errorf("%d lines, %d bytes", n, proto.Size(s))
		}
		if l := between(s, 0, 0, 1)[0]; l.GetSeq() != s.GetLast() || l.GetSeq() != 3*keptLines+1 {
			t.Errorf("the newest is %d of %d", l.GetSeq(), s.GetLast())
		}
		if len(seen) != 1 || seen[0].GetSeq() != 1 {
			t.Errorf("what was seen before has become %v", seen)
		}
		if got := between(s, s.GetLast()-5, s.GetLast()-1, 2); len(got) != 2 || got[1].GetSeq() != s.GetLast()-2 {
			t.Errorf("the newest two of a range are %v", got)
		}
	}
}

// Nobody says more than burst and rate allow, whatever he does; who waits may go on; nothing is kept of who is quiet.
func TestPace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := pace{rate: 2, burst: 5}
		all := map[string]*chatpb.Pace{}
		var taken []int64
		now := int64(0)
		for range rapid.IntRange(1, 100).Draw(t, "tries") {
			now += int64(rapid.IntRange(0, 1000).Draw(t, "wait"))
			if p.take(all, "ann", now) {
				taken = append(taken, now)
			}
			p.take(all, "bob", now)
		}
		for i, from := range taken {
			for k, to := range taken[i:] {
				if float64(k+1) > p.burst+p.rate*float64(to-from)/1000+1e-6 {
					t.Fatalf("%d within %d ms", k+1, to-from)
				}
			}
		}
		if now += 1000; !p.take(all, "ann", now) {
			t.Fatal("who has waited for a second may not")
		}
		for range 3 {
			p.take(all, "eve", now+60_000)
		}
		if len(all) != 1 {
			t.Fatalf("%d are remembered", len(all))
		}
	})
}
