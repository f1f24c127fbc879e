package zrouter

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"zgame/zmsg"
	"zgame/zstore"
)

const keptFor = time.Minute

var atFirst = time.Unix(1_700_000_000, 0)

func checkDone(t interface{ Fatal(args ...any) }, done []zstore.Done, most int) {
	size := 0
	for i := range done {
		size += done[i].Size()
	}
	save := zstore.Change{Op: zstore.OpSave, Key: zmsg.NumKey(1, 0, 1), WID: zstore.NewWriteID(), Write: zstore.Write{Done: done}}
	if err := save.Check(1); err != nil || size > most {
		t.Fatal(fmt.Sprint(size, " bytes are to be stored, at most ", most, ": ", err))
	}
}

func run(d *clientDone, session, seq uint64, answer []byte, now time.Time) {
	d.begin(session, seq, now)
	d.end(session, seq, answer, true, now)
}

// Against all that ever ran: what ran and may come again is never said not to have run; what is answered is answered as it was; who is new, or goes on, is
// never turned away; what is stored is what is remembered, and fits.
func TestClientDoneModel(t *testing.T) {
	t.Parallel()
	type ran struct {
		code zmsg.Code
		size int
		at   time.Time
	}
	type session struct {
		ran  map[uint64]ran
		last uint64
	}
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]int{1, 2, 5, 1024}).Draw(t, "limit")
		most := rapid.SampledFrom([]int{400, 2000, maxClientDone}).Draw(t, "most")
		now := atFirst
		d := newClientDone(limit, most, keptFor, freshClientDone(), now)
		all := make(map[uint64]*session)
		blind := false // something was forgotten before its time, or is not known
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			id := rapid.SampledFrom([]uint64{1, 2, 3, 4, 5, 6, 7, 8, math.MaxUint64}).Draw(t, "session")
			s := all[id]
			if s == nil {
				s = &session{ran: make(map[uint64]ran)}
				all[id] = s
			}
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				now = now.Add(rapid.SampledFrom([]time.Duration{time.Second, keptFor / 2, 2 * keptFor}).Draw(t, "later"))
			case 1: // another owner, or the same again
				stored := d.list(now)
				checkDone(t, stored, most)
				if rapid.IntRange(0, 3).Draw(t, "by an owner that does not remember") == 0 {
					stored, blind = newDoneRing(10, zstore.MaxDone, stored).list(), true
				}
				d = newClientDone(limit, most, keptFor, stored, now)
			default:
				seq := s.last + rapid.Uint64Range(1, 3).Draw(t, "step")
				again := s.last > 0 && rapid.Bool().Draw(t, "again")
				if again {
					seq = rapid.Uint64Range(1, s.last).Draw(t, "seq")
				}
				raw, v := d.judge(id, seq, again, now)
				was, there := s.ran[seq]
				switch v {
				case hasRun:
					got := decodeReply(raw)
					if again && got.Code == zmsg.CodeUnknownOutcome {
						continue // nobody knows, which is never wrong
					}
					if !there || got.Code != was.code && got.Code != zmsg.CodeTooLarge || got.Code == was.code && len(got.Body) != was.size {
						t.Fatalf("%d of %d is answered %v, it ran: %v %+v", seq, id, got.Code, there, was)
					}
				case mayHaveRun:
					if !again {
						t.Fatalf("%d of %d comes for the first time, and is turned away", seq, id)
					}
				case neverRan:
					if there && now.Sub(was.at) < keptFor {
						t.Fatalf("%d of %d ran, and would again", seq, id)
					}
					r := ran{zmsg.Code(rapid.IntRange(1000, 2000).Draw(t, "code")), rapid.SampledFrom([]int{0, 10, 300, maxKeptReply + 1}).Draw(t, "size"), now}
					raw, err := encodeReply(&zmsg.Reply{Code: r.code, Body: bytes.Repeat([]byte{7}, r.size)})
					if err != nil {
						t.Fatal(err)
					}
					d.begin(id, seq, now)
					s.last = max(s.last, seq)
					switch rapid.IntRange(0, 9).Draw(t, "ends") {
					case 0: // it turns out not to run
						d.end(id, seq, nil, false, now)
						continue
					case 1: // the node dies before it ends, behind a save
						d = newClientDone(limit, most, keptFor, d.list(now), now)
						r = ran{zmsg.CodeUnknownOutcome, 0, now}
					default:
						d.end(id, seq, raw, true, now)
					}
					s.ran[seq] = r
				}
				if d.size > most {
					t.Fatalf("%d bytes, at most %d", d.size, most)
				}
				blind = blind || d.dropped > 0
			}
			// Where nothing was too much, the newest of all who have asked lately are known, each with its answer.
			if blind || most < maxClientDone || limit < 1024 {
				continue
			}
			for id, s := range all {
				for seq, r := range s.ran {
					raw, v := d.judge(id, seq, true, now)
					want := r.code
					if r.size > maxKeptReply {
						want = zmsg.CodeTooLarge
					}
					if got := decodeReply(raw); now.Sub(r.at) < keptFor && (v != hasRun || got.Code != want) {
						t.Fatalf("%d of %d is forgotten: %v %+v, it ran with %v", seq, id, v, got, want)
					}
				}
			}
		}
	})
}

// Who asks often does not push out who asks seldom: of each session the newest is known, and of a busy one no more than is left. Where even that is too much,
// those go that have not asked for longest, and it is known that some have.
func TestClientDoneIsFair(t *testing.T) {
	t.Parallel()
	answer, err := encodeReply(&zmsg.Reply{ID: 1, Body: make([]byte, 20)})
	if err != nil {
		t.Fatal(err)
	}
	now := atFirst
	d := newClientDone(1024, maxClientDone, keptFor, freshClientDone(), now)
	const quiet = 100
	for id := uint64(1); id <= quiet; id++ {
		run(d, id, 1, answer, now)
		run(d, id, 2, answer, now)
	}
	for seq := uint64(1); seq <= 5000; seq++ {
		run(d, 9999, seq, answer, now)
	}
	for id := uint64(1); id <= quiet; id++ {
		for seq := uint64(1); seq <= 2; seq++ {
			if _, v := d.judge(id, seq, true, now); v != hasRun {
				t.Fatalf("%d of %d: %v", seq, id, v)
			}
		}
	}
	for seq, want := range map[uint64]verdict{1: mayHaveRun, 4990: hasRun, 5000: hasRun, 5001: neverRan} {
		if _, v := d.judge(9999, seq, true, now); v != want {
			t.Errorf("%d of the busy one: %v, want %v", seq, v, want)
		}
	}
	if d.dropped != 0 {
		t.Fatalf("%d sessions are forgotten", d.dropped)
	}
	for id := uint64(10_000); id < 11_000; id++ {
		run(d, id, 1, answer, now)
	}
	checkDone(t, d.list(now), maxClientDone)
	if d.dropped < 500 || len(d.sessions) < 200 {
		t.Errorf("%d sessions are known, %d forgotten", len(d.sessions), d.dropped)
	}
	for _, x := range []struct {
		session uint64
		resent  bool
		want    verdict
	}{{10_999, true, hasRun}, {1, true, mayHaveRun}, {1, false, neverRan}, {77_777, true, mayHaveRun}, {77_777, false, neverRan}} {
		if _, v := d.judge(x.session, 1, x.resent, now); v != x.want {
			t.Errorf("%+v: %v", x, v)
		}
	}
	// Also at the next owner, for as long as it matters.
	d = newClientDone(1024, maxClientDone, keptFor, d.list(now), now)
	if _, v := d.judge(77_777, 1, true, now.Add(keptFor-1)); v != mayHaveRun {
		t.Errorf("%v", v)
	}
	if _, v := d.judge(77_777, 1, true, now.Add(keptFor+1)); v != neverRan {
		t.Errorf("%v", v)
	}
	if got := d.list(now.Add(2 * keptFor)); !slices.EqualFunc(got, freshClientDone(), func(a, b zstore.Done) bool { return a.Origin == b.Origin && a.Seq == b.Seq }) {
		t.Errorf("what is past is stored: %v", got)
	}
}

// One large answer goes before a session does.
func TestClientDoneLargeAnswers(t *testing.T) {
	t.Parallel()
	large, err := encodeReply(&zmsg.Reply{ID: 1, Body: make([]byte, maxKeptReply-100)})
	if err != nil || large == nil {
		t.Fatal(err)
	}
	d := newClientDone(8, maxClientDone, keptFor, freshClientDone(), atFirst)
	for id := uint64(1); id <= 5; id++ {
		run(d, id, 1, large, atFirst)
	}
	kept := 0
	for id := uint64(1); id <= 5; id++ {
		raw, v := d.judge(id, 1, true, atFirst)
		if v != hasRun {
			t.Errorf("%d: %v", id, v)
		}
		if got := decodeReply(raw); got.Code == zmsg.CodeOK && len(got.Body) == maxKeptReply-100 {
			kept++
		} else if got.Code != zmsg.CodeTooLarge || got.Outcome != zmsg.Executed {
			t.Errorf("%+v", got)
		}
	}
	if kept != 1 || d.dropped != 0 {
		t.Errorf("%d answers kept, %d sessions forgotten", kept, d.dropped)
	}
	checkDone(t, d.list(atFirst), maxClientDone)
}

// What another program, or a fault, has left is not believed, and it is known that something is missing.
func TestClientDoneMalformed(t *testing.T) {
	t.Parallel()
	good := (&sessionDone{id: 7, floor: 3, done: []sessionAnswer{{seq: 5, raw: []byte{1}}}, size: 100}).encode()
	if s, err := decodeSession(&good); err != nil || s.id != 7 || s.floor != 3 || len(s.done) != 1 || s.done[0].seq != 5 {
		t.Fatalf("%+v %v", s, err)
	}
	for _, bad := range []zstore.Done{
		{Origin: "?", Seq: doneSession, Reply: good.Reply},
		{Origin: "7", Seq: doneSession},
		{Origin: "7", Seq: doneSession, Reply: []byte{3}},
		{Origin: "7", Seq: doneSession, Reply: []byte{3, 0, 0}},
		{Origin: "7", Seq: doneSession, Reply: []byte{3, 2, 9, 1}},
		{Origin: "7", Seq: doneSession, Reply: []byte{3, 2}},
		{Origin: "7", Seq: doneSession, Reply: append([]byte{3}, bytes.Repeat([]byte{0xff}, 11)...)},
		{Origin: "7", Seq: doneSession, Reply: []byte{3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0}},
	} {
		d := newClientDone(8, maxClientDone, keptFor, append(freshClientDone(), bad), atFirst)
		if len(d.sessions) != 0 || d.size != headCost {
			t.Errorf("%v is believed", bad)
		}
		if _, v := d.judge(7, 9, true, atFirst); v != mayHaveRun {
			t.Errorf("%v: %v", bad, v)
		}
	}
	d := newClientDone(8, maxClientDone, keptFor, append(freshClientDone(), good, good), atFirst)
	if len(d.sessions) != 1 || !d.blind.After(atFirst) {
		t.Errorf("twice: %+v", d)
	}
}

func FuzzDecodeSession(f *testing.F) {
	f.Add((&sessionDone{floor: 3, done: []sessionAnswer{{seq: 5, raw: []byte{1}}, {seq: 6}, {seq: 300, raw: make([]byte, 200)}}, size: 1000}).encode().Reply)
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeSession(&zstore.Done{Origin: "z", Seq: doneSession, Reply: b})
		if err != nil {
			return
		}
		size := sessionCost
		last := s.floor
		for i := range s.done {
			if s.done[i].seq <= last {
				t.Fatalf("%+v", s)
			}
			last = s.done[i].seq
			size += s.done[i].cost()
		}
		again := s.encode()
		if size != s.size || again.Size() > s.size {
			t.Fatalf("it takes %d, counts for %d", again.Size(), s.size)
		}
		other, err := decodeSession(&again)
		if err != nil || other.floor != s.floor || len(other.done) != len(s.done) {
			t.Fatalf("%+v %v, was %+v", other, err, s)
		}
	})
}
