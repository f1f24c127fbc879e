package zactor

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
)

// fullness is what the watchdog knows of an actor whose mailbox is over its mark.
type fullness struct {
	since   time.Time
	told    time.Time // the last report; zero if none
	samples []sample  // the oldest first, from the one at which the present head had just come
}

// sample says how far the mailbox went at a time: what stands before its end came before.
type sample struct {
	at  time.Time
	end position
}

// maxSamples bounds what is kept of one actor; when there are more, every second one goes.
const maxSamples = 64

// add notes where the queue's head and end are now, and returns the head's age, to within a round.
func (f *fullness) add(now time.Time, head, end position) time.Duration {
	f.samples = append(f.samples, sample{now, end})
	f.samples = slices.DeleteFunc(f.samples, func(s sample) bool { return !head.before(s.end) })
	if len(f.samples) > maxSamples {
		i := 0
		f.samples = slices.DeleteFunc(f.samples, func(sample) bool { i++; return i > 1 && i%2 == 0 })
	}
	if len(f.samples) == 0 {
		return 0 // nothing waits
	}
	return now.Sub(f.samples[0].at)
}

// repeatFull is how often, in QueueTime, a mailbox that stays over its mark is told of again.
const repeatFull = 6

// reportFull tells of mailboxes that have been over their mark for long.
func (w *watchdog) reportFull(now time.Time) {
	for c, f := range w.over {
		c.mu.Lock()
		over := !c.dead && c.overLocked(w.mark)
		head, end := c.endsLocked()
		n := c.waitingLocked()
		c.mu.Unlock()
		if !over {
			delete(w.over, c)
			continue
		}
		age := f.add(now, head, end)
		if now.Sub(f.since) < w.long || !f.told.IsZero() && now.Sub(f.told) < repeatFull*w.long {
			continue
		}
		f.told = now
		w.g.cfg.Metrics.FullMailboxes.Inc()
		suppressed, ok := w.lately.Allow(now)
		if !ok {
			continue
		}
		c.mu.Lock()
		typ, top, looked := c.typ(c.actor), c.topLocked(), min(len(c.frontLocked()), topLooks)
		c.mu.Unlock()
		w.g.log.Warn("mailbox stays full", "actor", c.id, "name", c.name, "type", typ, "waiting", n, "bound", c.bound(),
			"for", now.Sub(f.since), "head_age", age, "top", top, "top_of", looked, "suppressed", suppressed)
	}
	w.g.cfg.Metrics.OverMark.Set(float64(len(w.over)))
}

// overLocked reports whether the mailbox is filled to the share mark of its bound, in messages or bytes.
func (b *mailbox) overLocked(mark float64) bool {
	if q := b.bounds; q != nil && q.room > 0 && float64(q.bytes) >= mark*float64(q.room) {
		return true
	}
	return float64(b.waitingLocked()) >= mark*float64(b.bound())
}

// position is a place in the stream of what comes to a mailbox: which batch, and the index in it.
type position struct {
	batch uint32
	index int
}

func (p position) before(o position) bool {
	return p.batch < o.batch || p.batch == o.batch && p.index < o.index
}

// endsLocked returns where the oldest item stands that waits, and where the next to come will.
func (b *mailbox) endsLocked() (head, end position) {
	if q := b.bounds; q != nil {
		return position{0, q.passed + q.head}, position{0, q.passed + len(b.in)}
	}
	end = position{b.swaps + 1, len(b.in)}
	batch := int(b.ahead)
	if b.older != nil { // each segment will be a batch
		end.batch += uint32(len(*b.older))
		for _, s := range *b.older {
			batch -= len(s)
		}
	}
	if b.taken != nil {
		if begun := int(b.taken.Load()); begun < batch {
			return position{b.swaps, begun}, end
		}
	}
	return position{b.swaps + 1, 0}, end
}

// What a report says about the types that wait: the most frequent of the oldest ones.
const (
	topLooks = 1024
	topTypes = 3
)

// topLocked returns the most frequent types of the oldest messages that wait, with how many.
func (c *cell) topLocked() []string {
	count := map[any]int{}
	front := c.frontLocked()
	front = front[:min(len(front), topLooks)]
	for i := range front {
		switch it := &front[i]; {
		case it.kind == itemTold, it.kind == itemMessage && it.id != 0:
			count[it.id]++
		case it.kind == itemMessage:
			count[reflect.TypeOf(it.value)]++
		case it.kind != itemGone:
			count[it.kind]++
		}
	}
	byName := map[string]int{}
	for k, n := range count {
		byName[c.kindName(k)] += n
	}
	names := make([]string, 0, len(byName))
	for name := range byName {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(byName[b], byName[a]), cmp.Compare(a, b))
	})
	names = names[:min(len(names), topTypes)]
	for i, name := range names {
		names[i] = name + " " + strconv.Itoa(byName[name])
	}
	return names
}

func (c *cell) kindName(k any) string {
	switch k := k.(type) {
	case uint32:
		return c.messageName(k)
	case itemKind:
		return map[itemKind]string{itemDone: "outcome", itemTimer: "timer", itemStop: "stop", itemBarrier: "shutdown", itemFence: "fence", itemTurn: "turn"}[k]
	case reflect.Type:
		if k != nil && k.Kind() == reflect.Pointer {
			if m, ok := reflect.TypeAssert[proto.Message](reflect.Zero(k)); ok {
				return string(m.ProtoReflect().Descriptor().FullName())
			}
		}
	}
	return "nothing"
}
