package zbots

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"zgame/zclient"
	"zgame/zmsg"
)

// Latencies are kept from a microsecond to ten minutes, to three figures.
const (
	longest = int64(10 * time.Minute / time.Microsecond)
	figures = 3
)

// tally counts what the bots of a run do.
type tally struct {
	began time.Time
	came  atomic.Uint64 // numbered messages

	online, lost, resumed, anew, gaps atomic.Int64

	mu      sync.Mutex
	ops     map[string]*op
	seconds []second
	errs    map[string]int    // of bots that have ended by one
	words   map[string]string // what the first error of each reason said
}

// op is one kind of request.
type op struct {
	times *hdrhistogram.Histogram
	errs  map[string]int // by code
}

// second is what ended in one second of a run.
type second struct {
	times  *hdrhistogram.Histogram
	failed int
	online int64 // at its end
}

func newTally() *tally {
	return &tally{began: time.Now(), ops: map[string]*op{}, errs: map[string]int{}, words: map[string]string{}}
}

func (t *tally) done(name string, began, ended time.Time, err error) {
	took := min(max(int64(ended.Sub(began)/time.Microsecond), 1), longest)
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.ops[name]
	if o == nil {
		o = &op{hdrhistogram.New(1, longest, figures), map[string]int{}}
		t.ops[name] = o
	}
	s := t.secondLocked(ended)
	if err != nil {
		o.errs[t.reasonLocked(err)]++
		s.failed++
		return
	}
	_ = o.times.RecordValue(took) // it is in range
	if s.times == nil {
		s.times = hdrhistogram.New(1, longest, 2)
	}
	_ = s.times.RecordValue(took)
}

func (t *tally) secondLocked(at time.Time) *second {
	i := max(0, int(at.Sub(t.began)/time.Second))
	for len(t.seconds) <= i {
		t.seconds = append(t.seconds, second{online: t.online.Load()})
	}
	return &t.seconds[i]
}

// tick notes how many are online at the end of a second.
func (t *tally) tick(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.secondLocked(at).online = t.online.Load()
}

func (t *tally) failed(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.errs[t.reasonLocked(err)]++
}

// reasonLocked is reason, and keeps what the first one said.
func (t *tally) reasonLocked(err error) string {
	why := reason(err)
	if _, there := t.words[why]; !there {
		t.words[why] = err.Error()
	}
	return why
}

// watch counts what becomes of a bot's connection, until the function that it returns is called.
func (t *tally) watch(c *zclient.Client) (end func()) {
	was := c.State()
	if was.Phase == zclient.Online {
		t.online.Add(1)
	}
	end = c.OnState(func(s zclient.State) {
		switch {
		case was.Phase != zclient.Online && s.Phase == zclient.Online:
			t.online.Add(1)
			if s.Session.Resumed {
				t.resumed.Add(1)
			} else {
				t.anew.Add(1)
			}
		case was.Phase == zclient.Online && s.Phase != zclient.Online:
			t.online.Add(-1)
			t.lost.Add(1)
		}
		was = s
	})
	c.OnGap(func(zclient.Gap) { t.gaps.Add(1) })
	return end
}

// reason is what an error counts as: its code, or what the connection ended by, or its first words.
func reason(err error) string {
	if r, ok := errors.AsType[*zclient.Reason](err); ok {
		return "connection " + string(r.Kind)
	}
	if e, ok := errors.AsType[*zmsg.Error](err); ok {
		if e.Code >= zmsg.CodeApplication {
			return fmt.Sprintf("the program's code %d", e.Code)
		}
		return e.Code.String()
	}
	text, _, _ := strings.Cut(err.Error(), ":")
	return text
}

// Times are latencies of a kind of request.
type Times struct {
	P50  time.Duration `json:"p50"`
	P90  time.Duration `json:"p90"`
	P99  time.Duration `json:"p99"`
	P999 time.Duration `json:"p999"`
	Max  time.Duration `json:"max"`
}

func timesOf(h *hdrhistogram.Histogram) Times {
	at := func(q float64) time.Duration { return time.Duration(h.ValueAtQuantile(q)) * time.Microsecond }
	return Times{at(50), at(90), at(99), at(99.9), time.Duration(h.Max()) * time.Microsecond}
}

func (t *tally) operations(took time.Duration) []Operation {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Operation, 0, len(t.ops))
	for name, o := range t.ops {
		x := Operation{Name: name, Count: o.times.TotalCount(), Times: timesOf(o.times), Errors: o.errs}
		x.PerSecond = float64(x.Count) / took.Seconds()
		all = append(all, x)
	}
	slices.SortFunc(all, func(a, b Operation) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (t *tally) series() []Second {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Second, 0, len(t.seconds))
	for i := range t.seconds {
		s := &t.seconds[i]
		x := Second{Failed: s.failed, Online: s.online}
		if s.times != nil {
			x.Count, x.Times = s.times.TotalCount(), timesOf(s.times)
		}
		all = append(all, x)
	}
	return all
}
