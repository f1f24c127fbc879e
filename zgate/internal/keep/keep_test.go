package keep

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A client and a session's log on the two sides of connections that break at any place, against what must be true of what the client has: every push
// once and in order, but for those of which it was told that they are missing; and of every request one response, the same however often it asks, or
// the word that it is not known any more.
func TestNothingIsLostInSilence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{T: t, lim: Limits{
			Count: rapid.IntRange(1, 40).Draw(t, "count"), Bytes: rapid.IntRange(100, 8000).Draw(t, "bytes"), Age: 1000,
		}, answered: map[uint64]string{}, got: map[uint64]string{}, lost: map[uint64]bool{}}
		t.Repeat(map[string]func(*rapid.T){
			"push":     m.push,
			"response": m.response,
			"notice":   m.notice,
			"deliver":  m.deliver,
			"ack":      m.ack,
			"cut":      m.cut,
			"ask":      m.ask,
			"handover": m.handover,
			"time":     func(t *rapid.T) { m.now += int64(rapid.IntRange(1, 400).Draw(t, "passes")) },
			"":         m.check,
		})
	})
}

// sent is what is on its way to the client.
type sent struct {
	kind Kind
	n    uint64
	body string
}

type model struct {
	*rapid.T
	log  Log
	lim  Limits
	now  int64
	wire []sent

	pushes   uint64
	notices  uint64
	request  uint64
	answered map[uint64]string

	// The client's.
	last    uint64 // push
	reply   uint64 // seq of the last response
	notice1 uint64 // the newest
	pardon  bool   // told that notices may be missing
	got     map[uint64]string
	lost    map[uint64]bool // responses that the gate says it does not have
	missing uint64
	asks    []uint64 // to be sent again
}

func (m *model) body(t *rapid.T, what string) []byte {
	size := rapid.SampledFrom([]int{0, 1, 20, 60, 300, smallChunk, largeChunk - 10, largeChunk + 10}).Draw(t, "size")
	b := append([]byte(what), bytes.Repeat([]byte{'x'}, size)...)
	return b
}

// handover has another log go on, with what this one has exported.
func (m *model) handover(t *rapid.T) {
	state := m.log.Export(m.now)
	var other Log
	other.Import(&state, m.now)
	if other.Len() != m.log.Len() || other.Bytes() != m.log.Bytes() || other.Gone() != m.log.Gone() {
		t.Fatalf("%d records and %d bytes become %d and %d", m.log.Len(), m.log.Bytes(), other.Len(), other.Bytes())
	}
	again := other.Export(m.now)
	if again.Gone != state.Gone || again.Blind != state.Blind || again.Before != state.Before || !slices.EqualFunc(again.Records, state.Records, sameRecord) {
		t.Fatalf("exported %+v, and then %+v", state, again)
	}
	m.log.Clear()
	m.log = other
}

// sameRecord compares; ages are those of the newest record of a piece of memory.
func sameRecord(a, b Record) bool {
	return a.Kind == b.Kind && a.N == b.N && a.ID == b.ID && bytes.Equal(a.Body, b.Body) && a.Age <= b.Age
}

func (m *model) trim() { m.log.Trim(&m.lim, m.now) }

func (m *model) push(t *rapid.T) {
	m.pushes++
	b := m.body(t, fmt.Sprint("push ", m.pushes, " "))
	own := rapid.Bool().Draw(t, "own")
	m.log.Push(m.pushes, uint32(m.pushes), b, own, m.now)
	m.wire = append(m.wire, sent{Push, m.pushes, string(b)})
	if !own {
		clear(b)
	}
	m.trim()
}

func (m *model) response(t *rapid.T) {
	m.request++
	b := m.body(t, fmt.Sprint("response ", m.request, " "))
	m.answered[m.request] = string(b)
	m.log.Response(m.request, b, m.now)
	m.wire = append(m.wire, sent{Response, m.request, string(b)})
	clear(b)
	m.trim()
}

func (m *model) notice(*rapid.T) {
	m.notices++
	b := fmt.Sprint("notice ", m.notices)
	m.log.Notice([]byte(b), m.now)
	m.wire = append(m.wire, sent{Notice, m.notices, b})
	m.trim()
}

func (m *model) deliver(t *rapid.T) {
	for range rapid.IntRange(1, 10).Draw(t, "n") {
		if len(m.wire) == 0 {
			return
		}
		s := m.wire[0]
		m.wire = m.wire[1:]
		m.take(s)
	}
}

func (m *model) take(s sent) {
	switch s.kind {
	case Push:
		if s.n != m.last+1 {
			m.Fatalf("push %d behind %d", s.n, m.last)
		}
		m.last = s.n
	case Response:
		if had, ok := m.got[s.n]; ok && had != s.body {
			m.Fatalf("response %d is another one now", s.n)
		}
		if s.body != m.answered[s.n] {
			m.Fatalf("response %d is %.20q", s.n, s.body)
		}
		m.got[s.n], m.reply = s.body, s.n
	default:
		if s.n > m.notice1+1 && !m.pardon {
			m.Fatalf("notice %d behind %d, and not a word", s.n, m.notice1)
		}
		if s.n > m.notice1 {
			m.notice1, m.pardon = s.n, false
		}
	}
}

func (m *model) ack(*rapid.T) { m.log.Ack(m.last, m.reply) }

// cut breaks the connection and resumes, maybe after more has happened.
func (m *model) cut(t *rapid.T) {
	m.wire = nil
	for range rapid.IntRange(0, 5).Draw(t, "meanwhile") {
		switch rapid.IntRange(0, 2).Draw(t, "what") {
		case 0:
			m.push(t)
		case 1:
			m.response(t)
		case 2:
			m.notice(t)
		}
	}
	m.wire = nil
	gap := m.log.Resume(m.last, m.now)
	switch {
	case gap.First == 0:
	case gap.First != m.last+1:
		m.Fatalf("a gap from %d where the client has %d", gap.First, m.last)
	case gap.Last == 0: // whatever was lost
		m.pardon = true
		m.last = m.log.Gone()
	case gap.Last < gap.First || gap.Last > m.pushes:
		m.Fatalf("a gap from %d to %d of %d", gap.First, gap.Last, m.pushes)
	default:
		m.missing += gap.Last - gap.First + 1
		m.last = gap.Last
	}
	next := m.last
	for it := range m.log.Missed() {
		switch it.Kind {
		case Push:
			next++
			if want := fmt.Sprint("push ", next, " "); it.N != next || it.ID != uint32(next) || !bytes.HasPrefix(it.Body, []byte(want)) {
				m.Fatalf("push %d with %.20q instead of %d", it.N, it.Body, next)
			}
			m.wire = append(m.wire, sent{Push, it.N, string(it.Body)})
		case Notice:
			var n uint64
			if _, err := fmt.Sscanf(string(it.Body), "notice %d", &n); err != nil {
				m.Fatal(err)
			}
			m.wire = append(m.wire, sent{Notice, n, string(it.Body)})
		default:
			m.Fatal("a response that nobody has asked for")
		}
	}
	if next != m.pushes {
		m.Fatalf("what is missed ends with %d of %d", next, m.pushes)
	}
	m.asks = nil
	for seq := uint64(1); seq <= m.request; seq++ {
		if _, ok := m.got[seq]; !ok && !m.lost[seq] {
			m.asks = append(m.asks, seq)
		}
	}
	m.trim()
}

// ask sends a request again that the client has no response to.
func (m *model) ask(*rapid.T) {
	if len(m.asks) == 0 {
		return
	}
	seq := m.asks[0]
	m.asks = m.asks[1:]
	body, ok := m.log.Answer(seq)
	if !ok {
		if m.log.Sent(seq) {
			m.Fatalf("response %d was sent unasked", seq)
		}
		m.lost[seq] = true
		return
	}
	m.log.Response(seq, body, m.now)
	m.wire = append(m.wire, sent{Response, seq, string(body)})
	m.trim()
}

func (m *model) check(*rapid.T) {
	l := &m.log
	if l.Len() > m.lim.Count || l.Bytes() > m.lim.Bytes {
		m.Fatalf("%d records with %d bytes, limits %+v", l.Len(), l.Bytes(), m.lim)
	}
	if l.held == nil {
		return
	}
	if l.Len() == 0 {
		m.Fatal("an empty log holds memory")
	}
	count, size, shared := 0, 0, 0
	for c := l.front(); ; {
		it, ok := l.read(&c)
		if !ok {
			break
		}
		count++
		size += len(it.Body) + overhead
		if it.Own {
			shared++
		}
	}
	for _, a := range l.answers {
		size += len(a.body) + overhead
	}
	if count != l.count || size != l.bytes || shared != len(l.shared)-l.taken {
		m.Fatalf("%d records with %d bytes, %d shared; counted %d, %d, %d", count, size, shared, l.count, l.bytes, len(l.shared)-l.taken)
	}
	if l.count == 0 && (l.segs != nil || len(l.shared) > 0) {
		m.Fatal("a log without records holds their memory")
	}
}

// Within the limits nothing is missing, whatever breaks: every response that was given is given again.
func TestWithinItsLimitsALogForgetsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{T: t, lim: Limits{Count: 1 << 20, Bytes: 1 << 30, Age: 1 << 40}, answered: map[uint64]string{}, got: map[uint64]string{}, lost: map[uint64]bool{}}
		t.Repeat(map[string]func(*rapid.T){
			"push": m.push, "response": m.response, "notice": m.notice, "deliver": m.deliver, "ack": m.ack, "cut": m.cut, "ask": m.ask,
			"": func(t *rapid.T) {
				m.check(t)
				if m.missing > 0 || len(m.lost) > 0 {
					t.Fatalf("%d pushes and %d responses missing", m.missing, len(m.lost))
				}
			},
		})
	})
}

func TestAckTakesWhatWasSentBefore(t *testing.T) {
	t.Parallel()
	kinds := func(l *Log) (s []string) {
		for c := l.front(); ; {
			it, ok := l.read(&c)
			if !ok {
				return s
			}
			s = append(s, fmt.Sprintf("%c%d", "prn"[it.Kind], it.N))
		}
	}
	for _, x := range []struct {
		push, response uint64
		left           []string
	}{
		{0, 0, []string{"p1", "r5", "p2", "n0", "p3", "r6"}},
		{1, 0, []string{"r5", "p2", "n0", "p3", "r6"}},
		{0, 5, []string{"p2", "n0", "p3", "r6"}},
		{1, 5, []string{"p2", "n0", "p3", "r6"}},
		{2, 5, []string{"n0", "p3", "r6"}},
		{2, 0, []string{"n0", "p3", "r6"}},
		{2, 99, []string{"n0", "p3", "r6"}},
		{0, 6, nil},
		{3, 6, nil},
		{99, 0, []string{"r6"}},
	} {
		var l Log
		l.Push(1, 1, nil, false, 0)
		l.Response(5, nil, 0)
		l.Push(2, 1, nil, false, 0)
		l.Notice([]byte("n"), 0)
		l.Push(3, 1, nil, false, 0)
		l.Response(6, nil, 0)
		l.Ack(x.push, x.response)
		if got := kinds(&l); !slices.Equal(got, x.left) {
			t.Errorf("Ack(%d, %d) leaves %v, expected %v", x.push, x.response, got, x.left)
		}
	}
}

func TestALogDoesNotAllocate(t *testing.T) {
	var l Log
	body := make([]byte, 64)
	large := make([]byte, 4096)
	n := uint64(0)
	lim := Limits{Count: 100, Bytes: 1 << 20, Age: 1 << 40}
	round := func() {
		for range 20 {
			n++
			l.Push(n, 1, body, false, 0)
			l.Response(n, body, 0)
			n++
			l.Push(n, 1, large, true, 0)
			l.Trim(&lim, 0)
		}
		l.Ack(n-2, n-1)
	}
	round()
	if got := testing.AllocsPerRun(100, round); got > 0 && !raceEnabled {
		t.Errorf("%v allocations", got)
	}
}

// A notice that is dropped may have told of anything.
func TestADroppedNoticeIsAGapWithAnOpenEnd(t *testing.T) {
	t.Parallel()
	var l Log
	l.Push(1, 1, nil, false, 0)
	l.Notice([]byte("n"), 0)
	l.Push(2, 1, nil, false, 0)
	l.Trim(&Limits{Count: 1, Bytes: 1 << 20, Age: 1 << 40}, 0)
	if gap := l.Resume(0, 0); gap != (Gap{First: 1}) {
		t.Errorf("%+v", gap)
	}
	if gap := l.Resume(1, 0); gap != (Gap{}) {
		t.Errorf("told twice: %+v", gap)
	}
}

func TestWhatIsOldGoes(t *testing.T) {
	t.Parallel()
	var l Log
	lim := Limits{Count: 100, Bytes: 1 << 20, Age: 10}
	l.Push(1, 1, nil, false, 0)
	l.Response(7, nil, 0)
	if n := l.Trim(&lim, 10); n != 0 {
		t.Errorf("%d went in time", n)
	}
	l.Resume(0, 10) // the response is young again, the push is not
	if n := l.Trim(&lim, 11); n != 1 || l.Gone() != 1 {
		t.Errorf("%d went, up to %d", n, l.Gone())
	}
	if n := l.Trim(&lim, 21); n != 1 || l.Len() != 0 || l.Bytes() != 0 {
		t.Errorf("%d went, %d are left", n, l.Len())
	}
}

// BenchmarkPush is a push of 64 bytes that is kept, and its part of an Ack of 32.
func BenchmarkPush(b *testing.B) {
	var l Log
	body := make([]byte, 64)
	lim := Limits{Count: 4096, Bytes: 256 << 10, Age: 1 << 40}
	b.ReportAllocs()
	n := uint64(0)
	for b.Loop() {
		n++
		l.Push(n, 1, body, false, 0)
		l.Trim(&lim, 0)
		if n%32 == 0 {
			l.Ack(n, 0)
		}
	}
}

// A notice that was let go has arrived where the client has what was sent behind it: then nothing is missing.
func TestNoticesThatArrived(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		acked, last uint64
		want        Gap
	}{{0, 0, Gap{First: 1}}, {0, 1, Gap{First: 2}}, {1, 1, Gap{First: 2}}, {0, 2, Gap{}}, {2, 2, Gap{}}, {3, 3, Gap{}}} {
		var l Log
		l.Push(1, 1, []byte("a"), false, 0)
		l.Notice([]byte("n"), 0)
		l.Push(2, 1, []byte("b"), false, 0)
		l.Push(3, 1, []byte("c"), false, 0)
		if n := l.Trim(&Limits{Count: 2, Bytes: 1 << 20, Age: 1 << 40}, 0); n != 2 {
			t.Fatalf("%d were dropped", n)
		}
		l.Ack(x.acked, 0)
		if got := l.Resume(x.last, 0); got != x.want {
			t.Errorf("acknowledged %d, has %d: gap %v, expected %v", x.acked, x.last, got, x.want)
		}
		l.Clear()
	}
}
