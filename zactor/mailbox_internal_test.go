package zactor

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"zgame/zmsg"
)

// Against a plain queue: nothing lost, doubled or swapped, the bound kept, buffers let go.
func TestMailboxModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var pool sync.Pool
		var taken atomic.Int32
		limit, pushes := rapid.IntRange(1, 200).Draw(t, "limit"), 300
		if rapid.IntRange(0, 9).Draw(t, "long") == 0 { // several segments
			limit, pushes = 5*pooledItems, 3*pooledItems
		}
		b := mailbox{limit: int32(limit)}
		var model []int64
		next := int64(0)
		push := func(control bool) {
			was := b.running
			start, err := b.push(&item{deadline: next}, control, &pool)
			if full := len(model) >= int(b.limit) && !control; full != errors.Is(err, zmsg.ErrBusy) {
				t.Fatalf("%d of %d wait: got %v", len(model), b.limit, err)
			}
			if err == nil {
				if start == was {
					t.Fatalf("start %v, and running was %v", start, was)
				}
				model = append(model, next)
			}
			next++
		}
		for range rapid.IntRange(1, 40).Draw(t, "rounds") {
			for i := range rapid.IntRange(0, pushes).Draw(t, "pushes") {
				push(i%10 == 3)
			}
			if len(model) == 0 {
				continue
			}
			b.mu.Lock()
			batch := b.swapLocked(&taken, &pool)
			b.mu.Unlock()
			for i := range batch {
				taken.Store(int32(i + 1)) // as the goroutine does, with a step of one
				if batch[i].deadline != model[0] {
					t.Fatalf("got %d, want %d", batch[i].deadline, model[0])
				}
				model = model[1:]
				if i == len(batch)/2 {
					push(false)
				}
				if b.load() != len(model) {
					t.Fatalf("load %d, want %d", b.load(), len(model))
				}
			}
			clear(batch)
			b.mu.Lock()
			b.doneLocked(batch, &pool)
			if len(b.in) == 0 {
				b.idleLocked(&pool)
				if cap(b.in) > keptItems || cap(b.spare) > keptItems {
					t.Fatalf("an idle mailbox keeps %d and %d", cap(b.in), cap(b.spare))
				}
			}
			b.mu.Unlock()
		}
	})
}

// The table of ids against a map.
func TestTableModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var tab table
		model := map[uint64]*cell{}
		for range rapid.IntRange(1, 2000).Draw(t, "steps") {
			if rapid.IntRange(0, 2).Draw(t, "op") > 0 || len(model) == 0 {
				c := new(cell)
				tab.add(c)
				model[c.id] = c
				continue
			}
			for _, c := range model { // any
				tab.remove(c)
				delete(model, c.id)
				break
			}
		}
		for id := range tab.next + 600 {
			if tab.get(id) != model[id] {
				t.Fatalf("id %d: got %p, want %p", id, tab.get(id), model[id])
			}
		}
		all := tab.all()
		if len(all) != len(model) {
			t.Fatalf("%d listed, want %d", len(all), len(model))
		}
		for i := 1; i < len(all); i++ {
			if all[i].id <= all[i-1].id {
				t.Fatal("the list is not in order")
			}
		}
	})
}

// futures against what each request was told: one outcome, its own, whatever comes late or twice.
func TestFuturesModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		late := 0
		tab := newFutures(realClock{}, func() { late++ })
		tab.sweeping.Store(true) // no sweeper: expire is called by hand
		type open struct {
			f        *future
			token    uint64
			deadline int64
		}
		var opens, ended []open
		wantLate := 0
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			switch op := rapid.IntRange(0, 9).Draw(t, "op"); {
			case op < 4:
				f := tab.get()
				d := int64(rapid.IntRange(1, 1000).Draw(t, "deadline"))
				opens = append(opens, open{f, f.arm(d), d})
			case op < 7 && len(opens) > 0:
				i := rapid.IntRange(0, len(opens)-1).Draw(t, "which")
				o := opens[i]
				opens = append(opens[:i], opens[i+1:]...)
				o.f.Reply(o.token, &zmsg.Reply{ID: uint32(o.token), Body: []byte{byte(o.token)}})
				<-o.f.wake
				if o.f.reply.ID != uint32(o.token) || o.f.reply.Body[0] != byte(o.token) {
					t.Fatalf("another's outcome: %+v", o.f.reply)
				}
				ended = append(ended, o)
				o.f.put()
			case op == 7 && len(ended) > 0:
				o := ended[rapid.IntRange(0, len(ended)-1).Draw(t, "which")]
				o.f.Reply(o.token, &zmsg.Reply{ID: 99})
				wantLate++
			case op == 8:
				now := int64(rapid.IntRange(1, 1000).Draw(t, "now"))
				tab.coarse.Store(now)
				if got := tab.expire(); got != len(opens) {
					t.Fatalf("%d open, want %d", got, len(opens))
				}
				kept := opens[:0]
				for _, o := range opens {
					if o.deadline > now {
						kept = append(kept, o)
						continue
					}
					<-o.f.wake
					if o.f.reply.Code != zmsg.CodeTimeout {
						t.Fatalf("got %+v", o.f.reply)
					}
					ended = append(ended, o)
					o.f.put()
				}
				opens = kept
			}
		}
		if late != wantLate {
			t.Fatalf("%d late, want %d", late, wantLate)
		}
	})
}
