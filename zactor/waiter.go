package zactor

import (
	"container/list"
	"runtime"
	"sync"
	"time"

	"zgame/zmsg"
)

// patience says how a sender may wait for room; the zero patience does not wait.
type patience struct {
	waits bool
	turn  *Context // the handler that sends; nil if it is a request, or nobody's
	ask   *sending // the request
}

// waiter is a sender that waits for room in a mailbox.
type waiter struct {
	it   item
	done chan error    // of capacity 1: nil, the message is in the mailbox, or why it is not
	at   *list.Element // guarded by the mailbox's mu; nil when it does not wait any more
}

// leaveLocked takes w from those that wait, and ends its wait with err.
func (q *bounds) leaveLocked(w *waiter, err error) {
	q.waiters.Remove(w.at)
	w.at = nil
	w.done <- err
}

// from returns the actor that sends, nil if none.
func (p patience) from() *cell {
	switch {
	case p.turn != nil:
		return p.turn.cell
	case p.ask != nil:
		return p.ask.from
	default:
		return nil
	}
}

// mayWaitFor reports whether the sender may wait for c: an actor must not wait for itself. One that sends by its bare Ref, and not by its
// Context, is known by its goroutine.
func (p patience) mayWaitFor(c *cell) bool {
	if !p.waits || p.from() == c {
		return false
	}
	own := c.bounds.goroutine.Load()
	return own == 0 || own != goroutineID()
}

// limit returns how long the sender may wait, at most d. It looks at the message of the sender's turn, which Forward gives away.
func (p patience) limit(g *Group, d time.Duration) time.Duration {
	switch {
	case p.turn != nil:
		if t, ok := p.turn.Deadline(); ok {
			d = min(d, t.Sub(g.clock.Now()))
		}
	case p.ask != nil:
		d = min(d, time.Duration(p.ask.deadline-g.futures.now()))
	}
	return d
}

// ends returns what else ends the wait: the asker's context, and the end, or the cutting off, of the actor that sends.
func (p patience) ends() (asker, actor <-chan struct{}) {
	if p.ask != nil {
		asker = p.ask.done
	}
	if from := p.from(); from != nil {
		actor = from.life().Done()
	}
	return asker, actor
}

var (
	// errGaveUp ends the wait of a request whose asker's context has ended.
	errGaveUp error = &zmsg.Error{Code: zmsg.CodeCancelled, Outcome: zmsg.NotExecuted, Text: "the asker gave up before there was room in the mailbox"}
	// errCutOff ends the wait of an actor that is being stopped.
	errCutOff error = &zmsg.Error{Code: zmsg.CodeCancelled, Outcome: zmsg.NotExecuted, Text: "the sending actor is being stopped"}
)

// joinLocked puts a sender at the end of those that wait; the caller holds mu, lets go of it and calls waitForRoom.
func (b *mailbox) joinLocked(it *item) *waiter {
	w := &waiter{it: *it, done: make(chan error, 1)}
	w.at = b.bounds.waiters.PushBack(w)
	return w
}

// admitLocked lets waiters in, the oldest first, until the next does not fit. The goroutine is there: something waits, or it has
// just taken it.
func (b *mailbox) admitLocked(pool *sync.Pool) {
	q := b.bounds
	for e := q.waiters.Front(); e != nil; e = q.waiters.Front() {
		w := e.Value.(*waiter)
		if !b.fitsLocked(w.it.size) {
			return
		}
		b.addLocked(&w.it, pool)
		q.leaveLocked(w, nil)
	}
}

// refuseLocked ends all waits with err.
func (b *mailbox) refuseLocked(err error) {
	q := b.bounds
	for e := q.waiters.Front(); e != nil; e = q.waiters.Front() {
		q.leaveLocked(e.Value.(*waiter), err)
	}
}

// leave ends a wait with err, unless it has ended before.
func (c *cell) leave(w *waiter, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.at == nil {
		return
	}
	c.bounds.leaveLocked(w, err)
	c.admitLocked(&c.g.buffers) // a smaller one may have waited behind it
}

// waitForRoom waits until w is in the mailbox, at most d, and returns nil then.
func (c *cell) waitForRoom(w *waiter, p patience, d time.Duration) error {
	if m := c.g.manual; m != nil {
		for len(w.done) == 0 {
			if !m.Next() { // nobody is going to make room
				c.leave(w, zmsg.ErrBusy)
			}
		}
		return <-w.done
	}
	t := c.g.clock.AfterFunc(d, func() { c.leave(w, zmsg.ErrBusy) })
	defer t.Stop()
	asker, actor := p.ends()
	select {
	case err := <-w.done:
		return err
	case <-asker:
		c.leave(w, errGaveUp)
	case <-actor:
		c.leave(w, errCutOff)
	}
	return <-w.done
}

// mark notes which goroutine is the actor's, where a sender must not be it.
func (q *bounds) mark() {
	if q != nil && q.policy > 0 {
		q.goroutine.Store(goroutineID())
	}
}

// unmark takes mark back: the goroutine goes on with something else.
func (q *bounds) unmark() {
	if q != nil {
		q.goroutine.Store(0)
	}
}

// goroutineID returns the number by which stack traces name the calling goroutine, 0 where they do not begin as expected. It takes
// about a microsecond.
func goroutineID() (id uint64) {
	const before = "goroutine "
	var buf [len(before) + 20]byte
	n := runtime.Stack(buf[:], false)
	for _, d := range buf[min(n, len(before)):n] {
		if d < '0' || d > '9' {
			break
		}
		id = 10*id + uint64(d-'0')
	}
	return id
}
