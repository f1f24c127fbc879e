package zactor

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"zgame/zmsg"
)

func TestItemIsOneCacheLine(t *testing.T) {
	t.Parallel()
	if s := unsafe.Sizeof(item{}); s != 64 {
		t.Errorf("an item has %d bytes, want 64", s)
	}
}

// waits is what the dumb model keeps of an item.
type waits struct {
	n       int64
	control bool
	size    int // in steps
}

// dumb is a mailbox with bounds as one would write it down.
type dumb struct {
	policy      Overflow
	limit, room int
	queue       []waits
	waiting     []waits // for room
	dropped     []int64
	newest      []int64
}

func (d *dumb) fits(size int) bool {
	bytes := 0
	for _, w := range d.queue {
		bytes += w.size
	}
	return len(d.queue) < d.limit && (d.room == 0 || bytes == 0 || bytes+size <= d.room)
}

// push returns taken, busy or waits.
func (d *dumb) push(w waits, may bool) string {
	if len(d.waiting) == 0 && d.fits(w.size) {
		d.queue = append(d.queue, w)
		return "taken"
	}
	switch {
	case d.policy == DropNewest:
		d.newest = append(d.newest, w.n)
		return "taken"
	case d.policy == DropOldest:
		control := 0
		for _, w := range d.queue {
			if w.control {
				control++
			}
		}
		if control >= d.limit {
			return "busy"
		}
		for !d.fits(w.size) {
			i := slices.IndexFunc(d.queue, func(w waits) bool { return !w.control })
			d.dropped = append(d.dropped, d.queue[i].n)
			d.queue = slices.Delete(d.queue, i, i+1)
		}
		d.queue = append(d.queue, w)
		return "taken"
	case d.policy > 0 && may:
		d.waiting = append(d.waiting, w)
		return "waits"
	}
	return "busy"
}

func (d *dumb) admit() {
	for len(d.waiting) > 0 && d.fits(d.waiting[0].size) {
		d.queue = append(d.queue, d.waiting[0])
		d.waiting = d.waiting[1:]
	}
}

// All policies and both bounds against the model: what is taken, dropped, refused, who waits and in which order they are let
// in; items that go back to the front, an end in the middle.
func TestBoundsModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var gone []int64 // dead letters, in order
		g, err := NewGroup(Config{})
		if err != nil {
			t.Fatal(err)
		}
		model := &dumb{
			policy: rapid.SampledFrom([]Overflow{Reject, DropOldest, DropNewest, Wait(time.Hour)}).Draw(t, "policy"),
			limit:  rapid.IntRange(1, 60).Draw(t, "limit"),
			room:   rapid.SampledFrom([]int{0, 1, 5, 100}).Draw(t, "room"),
		}
		c := &cell{g: g}
		c.bounds = newBounds(model.policy, model.limit, sizeStep*model.room)
		if plain := model.policy == Reject && model.room == 0; plain != (c.bounds == nil) {
			t.Fatalf("plain %v, and bounds %v", plain, c.bounds)
		}
		if c.bounds == nil {
			return // TestMailboxModel
		}
		c.running = true // no goroutine: this test is it
		g.cfg.OnDeadLetter = func(DeadLetter) { gone = append(gone, 0) }

		type open struct {
			n int64
			w *waiter
		}
		var waiters []open
		next := int64(0)
		// push is pushBounded in two steps, so that no goroutine has to wait.
		push := func() {
			next++
			w := waits{n: next, size: rapid.IntRange(0, 8).Draw(t, "size")}
			m := zmsg.NewMessage(1)
			m.SetBody(make([]byte, max(0, w.size*sizeStep-rapid.IntRange(0, sizeStep-1).Draw(t, "less"))))
			it := item{msg: m, id: 1, deadline: next}
			may := rapid.Bool().Draw(t, "may wait")
			want := model.push(w, may)
			if want == "waits" {
				it.size = sizeOf(&it)
				c.mu.Lock()
				if c.bounds.waiters.Len() == 0 && c.fitsLocked(it.size) {
					t.Fatal("the model waits, the mailbox has room")
				}
				waiters = append(waiters, open{next, c.joinLocked(&it)})
				c.mu.Unlock()
				return
			}
			_, err := c.pushBounded(&it, patience{})
			if got := errors.Is(err, zmsg.ErrBusy); got != (want == "busy") || err != nil && !got {
				t.Fatalf("got %v, want %s", err, want)
			}
		}
		admit := func() { // who the model let in is told
			model.admit()
			for len(waiters) > len(model.waiting) {
				select {
				case err := <-waiters[0].w.done:
					if err != nil {
						t.Fatalf("waiter %d: %v", waiters[0].n, err)
					}
				default:
					t.Fatalf("waiter %d has room and is not told", waiters[0].n)
				}
				waiters = waiters[1:]
			}
		}
		take := func() []item {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.takeLocked(&g.buffers)
		}
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			switch op := rapid.IntRange(0, 19).Draw(t, "op"); {
			case op < 10:
				push()
			case op < 12:
				next++
				model.queue = append(model.queue, waits{n: next, control: true})
				kind := rapid.SampledFrom([]itemKind{itemDone, itemTimer, itemStop, itemMessage}).Draw(t, "kind")
				it := item{kind: kind, deadline: next}
				if kind == itemMessage {
					it.id = zmsg.SessionClosedID
				}
				if err := c.pushControl(&it); err != nil {
					t.Fatalf("a control item is refused: %v", err)
				}
			case op < 17:
				batch := take()
				if len(model.queue) == 0 {
					if len(batch) != 0 {
						t.Fatalf("an empty mailbox gave %d", batch[0].deadline)
					}
					continue
				}
				if len(batch) != 1 || batch[0].deadline != model.queue[0].n {
					t.Fatalf("got %v, want %d", batch, model.queue[0].n)
				}
				first := model.queue[0]
				model.queue = model.queue[1:]
				admit()
				if op == 16 { // it was not begun
					c.mu.Lock()
					c.returnLocked(batch)
					c.mu.Unlock()
					model.queue = append([]waits{first}, model.queue...)
				}
			case op == 17 && len(waiters) > 0: // gives up
				i := rapid.IntRange(0, len(waiters)-1).Draw(t, "who")
				o := waiters[i]
				waiters = slices.Delete(waiters, i, i+1)
				model.waiting = slices.Delete(model.waiting, i, i+1)
				c.leave(o.w, zmsg.ErrBusy)
				if err := <-o.w.done; !errors.Is(err, zmsg.ErrBusy) {
					t.Fatalf("gave up: got %v", err)
				}
				admit()
			}
			if c.load() != len(model.queue) {
				t.Fatalf("load %d, want %d", c.load(), len(model.queue))
			}
			if len(gone) != len(model.dropped)+len(model.newest) {
				t.Fatalf("%d dead letters, want %d and %d", len(gone), len(model.dropped), len(model.newest))
			}
			if waste := len(c.in) - c.load(); waste > c.load()+keptItems+1 {
				t.Fatalf("%d dead entries beside %d", waste, c.load())
			}
		}
		if rapid.Bool().Draw(t, "end") {
			c.mu.Lock()
			c.closeLocked()
			rest := slices.DeleteFunc(slices.Clone(c.emptyLocked()), func(it item) bool { return it.kind == itemGone })
			c.mu.Unlock()
			if len(rest) != len(model.queue) {
				t.Fatalf("%d left, want %d", len(rest), len(model.queue))
			}
			for i := range rest {
				if rest[i].deadline != model.queue[i].n {
					t.Fatalf("left %d, want %d", rest[i].deadline, model.queue[i].n)
				}
			}
			for _, o := range waiters {
				if err := <-o.w.done; !errors.Is(err, zmsg.ErrStopped) {
					t.Fatalf("waiter of an actor that ends: %v", err)
				}
			}
			if _, err := c.pushBounded(&item{}, patience{waits: true}); !errors.Is(err, zmsg.ErrStopped) {
				t.Fatalf("got %v", err)
			}
		}
	})
}

// A thousand messages into a full mailbox of as many control items and messages: dropping is cheap wherever the victims are.
func TestDropOldestIsAmortised(t *testing.T) {
	t.Parallel()
	g, err := NewGroup(Config{})
	if err != nil {
		t.Fatal(err)
	}
	const n = 30_000
	c := &cell{g: g}
	c.bounds = newBounds(DropOldest, 2*n, 0)
	c.running = true
	for range n { // these stay in front of all victims
		if err := c.pushControl(&item{kind: itemTimer}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 * n { // by looking at all of them each time it would take a minute
		if _, err := c.pushBounded(&item{deadline: int64(i)}, patience{}); err != nil {
			t.Fatal(err)
		}
	}
	if c.load() != 2*n {
		t.Errorf("%d wait, want %d", c.load(), 2*n)
	}
	in := slices.DeleteFunc(c.emptyLocked(), func(it item) bool { return it.kind != itemMessage })
	for i := range in {
		if want := int64(19*n + i); in[i].deadline != want {
			t.Fatalf("message %d is %d, want %d", i, in[i].deadline, want)
		}
	}
}

func TestSizeOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ body, want int }{{0, 0}, {1, 1}, {256, 1}, {257, 2}, {16 << 20, maxSize}, {40 << 20, maxSize}} {
		m := zmsg.NewMessage(1)
		m.BorrowBody(make([]byte, c.body))
		if got := sizeOf(&item{msg: m}); int(got) != c.want {
			t.Errorf("%d bytes: %d steps, want %d", c.body, got, c.want)
		}
		m.Release()
	}
}

func TestOverflowValidation(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  Config
		opts []SpawnOption
		want string
	}{
		{Config{Overflow: Wait(0)}, nil, "Config.Overflow: Wait needs a positive duration"},
		{Config{Overflow: -7}, nil, "Config.Overflow is overflow -7: want Reject, DropOldest, DropNewest or Wait"},
		{Config{MailboxBytes: -1}, nil, "Config.MailboxBytes is -1: want 0 (no bound) to 1099511627776 bytes"},
		{Config{}, []SpawnOption{WithOverflow(Wait(-time.Second))}, "WithOverflow: Wait needs a positive duration"},
		{Config{}, []SpawnOption{WithMailboxBytes(-1)}, "WithMailboxBytes is -1"},
		{Config{Overflow: Wait(time.Second), MailboxBytes: 1}, []SpawnOption{WithOverflow(DropNewest), WithMailboxBytes(0)}, ""},
	} {
		g, err := NewGroup(c.cfg)
		if err == nil {
			_, err = g.Spawn("", func() Actor { return nobody{} }, c.opts...)
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

type nobody struct{}

func (nobody) Handlers() []Handler { return nil }
