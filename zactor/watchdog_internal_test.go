package zactor

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The age of the head against the times at which the items came: right to within a round, whatever the mailbox is and does.
func TestHeadAgeModel(t *testing.T) {
	t.Parallel()
	const round = 10
	rapid.Check(t, func(t *rapid.T) {
		var pool sync.Pool
		var taken atomic.Int32
		b := mailbox{limit: 1 << 20}
		bounded := rapid.Bool().Draw(t, "bounded")
		if bounded {
			b.bounds = newBounds(DropNewest, 1<<20, 0)
		}
		var came []int // when, of all that wait
		var batch []item
		var f fullness
		start := time.Now()
		for now := range rapid.IntRange(1, 120).Draw(t, "time") {
			for range rapid.SampledFrom([]int{0, 0, 1, 1, 2, 3, 3, 5000}).Draw(t, "pushes") {
				it := item{kind: itemTimer, deadline: int64(now)} // a control item passes both kinds of mailbox
				if _, err := b.push(&it, true, &pool); err != nil {
					t.Fatal(err)
				}
				came = append(came, now)
			}
			for range min(len(came), rapid.SampledFrom([]int{0, 1, 4, 3000}).Draw(t, "taken")) {
				if bounded || int(taken.Load()) >= len(batch) {
					if !bounded {
						clear(batch)
						b.doneLocked(batch, &pool)
					}
					batch = b.swapLocked(&taken, &pool)
				}
				i := taken.Load()
				if bounded {
					i = 0
				} else {
					taken.Add(1)
				}
				if batch[i].deadline != int64(came[0]) {
					t.Fatalf("got one of %d, want %d", batch[i].deadline, came[0])
				}
				came = came[1:]
			}
			if now%round != 0 {
				continue
			}
			head, end := b.endsLocked()
			age := int(f.add(start.Add(time.Duration(now)), head, end))
			if len(f.samples) >= maxSamples-1 {
				return // thinned out, or about to be: less exact by what it says
			}
			if len(came) == 0 {
				if age != 0 {
					t.Fatalf("nothing waits, and is %d old", age)
				}
				continue
			}
			if is := now - came[0]; age > is || age < is-round {
				t.Fatalf("the head is %d old, the watchdog says %d", is, age)
			}
		}
	})
}

// Samples stay bounded, and thinned out they still give no more than the age.
func TestHeadAgeSamples(t *testing.T) {
	t.Parallel()
	var f fullness
	start := time.Now()
	for i := range 10_000 {
		now := start.Add(time.Duration(i) * time.Second)
		if age := f.add(now, position{0, 0}, position{0, i + 1}); age != now.Sub(start) {
			t.Fatalf("after %d: %v", i, age)
		}
		if len(f.samples) > maxSamples {
			t.Fatalf("%d samples", len(f.samples))
		}
	}
}

// The profile in pieces of any size; of several goroutines with one label the loop's.
func TestStackFinder(t *testing.T) {
	t.Parallel()
	const profile = "goroutine profile: total 4\n" +
		"1 @ 0x1 0x2\n# labels: {\"other\":\"0xa\", \"zactor\":\"0xa\"}\n#\t0x1\tmain.helper+0x1\t\t/a.go:1\n\n" +
		"1 @ 0x1 0x2\n# labels: {\"zactor\":\"0xa\"}\n#\t0x1\tmain.user+0x1\t\t/a.go:7\n#\t0x1\tzgame/zactor.(*cell).span+0x2\t/run.go:8\n\n" +
		"1 @ 0x1 0x2\n# labels: {\"zactor\":\"0xa\"}\n#\t0x1\tmain.late+0x1\t\t/a.go:1\n\n" +
		"1 @ 0x1 0x2\n#\t0x1\tmain.main+0x1\t\t/a.go:1\n\n" +
		"1 @ 0x1 0x2\n# labels: {\"zactor\":\"0xb\"}\n"
	for size := 1; size < len(profile); size++ {
		f := &stackFinder{found: map[string]string{"0xa": "", "0xc": ""}, loop: map[string]bool{}}
		for p := []byte(profile); len(p) > 0; p = p[min(size, len(p)):] {
			if n, err := f.Write(p[:min(size, len(p))]); err != nil || n != min(size, len(p)) {
				t.Fatal(n, err)
			}
		}
		f.end()
		if want := "main.user+0x1 /a.go:7\nzgame/zactor.(*cell).span+0x2 /run.go:8\n"; f.found["0xa"] != want || f.found["0xc"] != "" {
			t.Fatalf("in pieces of %d: got %q", size, f.found)
		}
	}
	f := &stackFinder{found: map[string]string{"0xa": ""}, loop: map[string]bool{}}
	var deep bytes.Buffer
	deep.WriteString("# labels: {\"zactor\":\"0xa\"}\n")
	for i := range 2000 {
		fmt.Fprintf(&deep, "#\t0x1\tmain.f%d%s+0x1\t/a.go:1\n", i, strings.Repeat("x", 40))
	}
	_, _ = f.Write(deep.Bytes())
	f.end()
	if n := len(f.found["0xa"]); n == 0 || n > maxStack {
		t.Errorf("a deep stack has %d bytes", n)
	}
}

// Contexts that are gone do not stay in the watchdog's list.
func TestWatchdogForgets(t *testing.T) {
	t.Parallel()
	g, err := NewGroup(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		for range 1000 {
			g.watchdog.newContext()
		}
		runtime.GC()
	}
	w := g.watchdog
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.contexts); n > 5000 {
		t.Errorf("%d contexts are listed", n)
	}
}
