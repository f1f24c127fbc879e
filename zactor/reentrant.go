package zactor

import (
	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
)

// Reentrant lets the actor go on with other messages while one of its handlers waits in Call: still one at a time, but between
// the Call and what follows it the state may have changed. Two reentrant actors that ask each other are no cycle. Each handler
// that waits costs a goroutine, at most as many as the mailbox is long (WithMailbox): then Call fails with ErrBusy.
//
// Ask waits with the mailbox here too. When the actor restarts or stops, a handler that waits gets ErrStopped
// (Outcome Unknown) and runs to its end, alone, before anything else happens; further requests of it fail at once.
func Reentrant() SpawnOption { return func(o *spawnOptions) { o.reentrant = true } }

// suspension is a handler of a reentrant actor that has waited at least once. It runs on a goroutine of its own from then on, and
// only while the actor's loop has lent it the turn.
type suspension struct {
	x     *Context
	f     *future // what it waits for
	token uint64
	turn  chan error        // the loop lends the turn: nil when f has its outcome, else why it will have none
	back  chan *handlerExit // the handler gives it back: nil when it waits again
	over  error             // owned by the turn; set when the instance ends: further requests fail with it
}

// handlerExit is how a suspended handler ended.
type handlerExit struct{ crash *crash }

// maySuspend reports whether a Call of this turn lets the actor go on: hooks and what the lifecycle lane runs do not.
func (c *Context) maySuspend() bool {
	o := c.cell.opts
	return o != nil && o.reentrant && c.it != &c.none && c.cell.g.manual == nil
}

// callReentrant is call for a handler of a reentrant actor.
func (c *Context) callReentrant(to Ref, req proto.Message) (*future, error) {
	cell, g := c.cell, c.cell.g
	if c.susp != nil && c.susp.over != nil {
		return nil, c.susp.over
	}
	if len(cell.more().suspended) >= cell.bound() {
		return nil, zmsg.ErrBusy
	}
	f := g.futures.get()
	f.cell = cell
	cell.pending++
	deadline := c.until()
	token := f.arm(deadline)
	s := sending{f: f, token: token, deadline: deadline, from: cell, chain: c.chain(), trace: c.SendTrace()}
	s.session, s.user = c.Session(), c.User()
	if err := to.request(req, &s); err != nil {
		if f.close(token) {
			f.put()
			cell.pending--
		} else {
			f.susp = new(suspension) // it waited for room until its deadline: the outcome is in the mailbox, and finds nobody
		}
		g.codes.ended(zmsg.CodeOf(err))
		return nil, err
	}
	c.waitWith(f, token)
	err := c.suspend(f, token)
	c.waited(f)
	if err != nil {
		g.codes.ended(zmsg.CodeOf(err))
		return nil, err
	}
	g.codes.ended(f.reply.Code)
	return f, nil
}

// suspend waits for f, and lets the actor go on meanwhile. It is called in the turn, and returns in a later one.
func (c *Context) suspend(f *future, token uint64) error {
	cell := c.cell
	s := c.susp
	first := s == nil
	if first {
		s = &suspension{x: c, turn: make(chan error), back: make(chan *handlerExit)}
		c.susp = s
		own := *c.it // the batch is not this goroutine's any more
		c.it = &own
	}
	s.f, s.token, f.susp = f, token, s
	e := cell.more()
	if e.suspended == nil {
		e.suspended = make(map[*suspension]struct{})
	}
	e.suspended[s] = struct{}{}
	if first {
		y := cell.g.context(cell)
		y.batch, y.next, y.worked = c.batch, c.next, c.worked
		c.batch, c.next, c.worked = nil, 0, 0
		cell.mu.Lock()
		y.taken.Store(int32(y.next))
		cell.taken = &y.taken
		cell.mu.Unlock()
		go cell.goOn(y) // owned by the cell: the loop, in place of this goroutine
	} else {
		s.back <- nil
	}
	err := <-s.turn
	cell.bounds.mark()
	c.now = cell.g.clock.Now()
	return err
}

// goOn is the loop of an actor whose goroutine has become a suspended handler's.
func (c *cell) goOn(x *Context) {
	c.bounds.mark()
	x.tag()
	if c.work(x) {
		c.turns(x)
	}
}

// lend gives the turn to a suspended handler until it ends or waits again: its outcome is there.
func (c *cell) lend(x *Context, s *suspension) {
	x.lent.Store(s.x)
	defer x.lent.Store(nil)
	delete(c.extra.Load().suspended, s)
	s.f = nil
	s.turn <- nil
	exit := <-s.back
	c.bounds.mark()
	if exit != nil && exit.crash != nil {
		panic(handedOn{exit.crash})
	}
}

// handedOn carries a crash of a suspended handler, which has been told of, to the loop.
type handedOn struct{ crash *crash }

// giveBack ends a suspended handler: on its own goroutine, which ends too.
func (c *cell) giveBack(x *Context, k *crash) {
	if k != nil {
		c.mourn(x, k)
	}
	c.worked += x.worked
	back := x.susp.back
	c.g.contexts.Put(x.clean())
	back <- &handlerExit{k}
}

// endSuspended ends what the suspended handlers wait for, and lets each run to its end. It is called in the turn, when
// the instance ends.
func (c *cell) endSuspended() {
	e := c.extra.Load()
	if e == nil {
		return
	}
	for s := range e.suspended {
		s.over = errEnded
		c.abandon(s)
		delete(e.suspended, s)
		s.turn <- errEnded
		<-s.back // a crash has been told of; the instance is ending anyway
		c.bounds.mark()
	}
}

var errEnded error = &zmsg.Error{Code: zmsg.CodeStopped, Outcome: zmsg.Unknown, Text: "the actor ended before the answer came"}

// abandon gives up what s waits for; its outcome may be in the mailbox already, and is dropped there.
func (c *cell) abandon(s *suspension) {
	if s.f.abandon(s.token) {
		s.f.put()
		c.pending--
		return
	}
	s.f = nil // outcome finds nobody
}
