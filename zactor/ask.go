package zactor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
)

// Ask sends a request and waits for its outcome: the answer, or an error that carries a zmsg.Code and says whether the
// request ran (zmsg.CodeOf, zmsg.OutcomeOf). It ends with ctx, and at Config.AskTimeout where ctx has no deadline.
//
// A handler asks with its Context.Context, or with Call: its mailbox waits with it, and a request that would wait for
// itself ends with zmsg.ErrCycle at once. Then does not wait.
//
// req must not be changed afterwards, and the answer not at all: within a process both are shared.
func Ask[R any, PR message[R]](ctx context.Context, to Ref, req proto.Message) (PR, error) {
	t, _ := ctx.Value(turnKey{}).(*turnContext)
	f, err := askTapped(ctx, to, req, t)
	if err != nil {
		return nil, err
	}
	r, err := answerOf[R, PR](&f.reply)
	f.put()
	return r, err
}

// Call is Ask from a handler, which waits until the answer is there, the message's deadline is over, or Config.AskTimeout.
// Meanwhile the actor handles nothing else.
func Call[R any, PR message[R]](c *Context, to Ref, req proto.Message) (PR, error) {
	f, err := c.callTapped(to, req)
	if err != nil {
		return nil, err
	}
	r, err := answerOf[R, PR](&f.reply)
	f.put()
	return r, err
}

// Then sends a request and goes on; fn gets the outcome later, in a turn of the actor. It is called once, also when the request
// could not be sent or the deadline is over, but not any more when the actor ends or restarts first. In fn the Context
// is again about the message that the handler was about; its reply, if it is still wanted, goes by Defer.
func Then[R any, PR message[R]](c *Context, to Ref, req proto.Message, fn func(c *Context, answer PR, err error)) {
	c.then(to, req, func(c *Context, r *zmsg.Reply) {
		answer, err := answerOf[R, PR](r)
		fn(c, answer, err)
	})
}

// answerOf returns what an outcome tells.
func answerOf[R any, PR message[R]](r *zmsg.Reply) (PR, error) {
	if r.Code != zmsg.CodeOK {
		return nil, r.Err()
	}
	switch v := r.Value.(type) {
	case PR:
		return v, nil
	case nil:
	default:
		return nil, fmt.Errorf("zactor: the answer is a %T, not a %T", v, PR(nil))
	}
	a := PR(new(R))
	if err := decodeNew(r.Body, a); err != nil {
		return nil, fmt.Errorf("zactor: the answer does not parse as %T: %w", a, err)
	}
	return a, nil
}

// ask sends a request for a goroutine that waits. On a nil error the caller puts the future back.
func ask(ctx context.Context, to Ref, req proto.Message, turn *turnContext) (*future, error) {
	g := to.group()
	if g == nil {
		return nil, zmsg.ErrUnknownActor
	}
	if turn == nil && g.draining.Load() {
		g.refused(zmsg.ErrDraining)
		return nil, zmsg.ErrDraining
	}
	if err := ctx.Err(); err != nil {
		return nil, gaveUp(ctx, zmsg.NotExecuted)
	}
	f := g.futures.get()
	deadline := g.futures.until(g.cfg.AskTimeout)
	if d, ok := ctx.Deadline(); ok {
		deadline = g.until(d)
	}
	token := f.arm(deadline)
	s := sending{f: f, token: token, deadline: deadline, done: ctx.Done()}
	if turn != nil {
		s.from, s.chain, s.trace = turn.self, turn.chain, turn.trace
	}
	if err := to.request(req, &s); err != nil {
		if !f.close(token) {
			<-f.wake // it waited for room until its deadline
		}
		f.put()
		if errors.Is(err, errGaveUp) {
			err = zmsg.ErrBusy
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				err = gaveUp(ctx, zmsg.NotExecuted)
			}
		}
		g.codes.ended(zmsg.CodeOf(err))
		return nil, err
	}
	if done := ctx.Done(); done == nil || g.manual != nil {
		f.await(token)
	} else {
		select {
		case <-f.wake:
		case <-done:
			end := f.abandon
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				end = f.close // whoever works on it has the same deadline, and learns of it as that
			}
			if end(token) { // else the outcome is being written: take it
				f.put()
				err := gaveUp(ctx, zmsg.Unknown)
				g.codes.ended(zmsg.CodeOf(err))
				return nil, err
			}
			<-f.wake
		}
	}
	g.codes.ended(f.reply.Code)
	return f, nil
}

// gaveUp is the error of a request whose caller's context ended.
func gaveUp(ctx context.Context, out zmsg.Outcome) error {
	code := zmsg.CodeCancelled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		code = zmsg.CodeTimeout
	}
	return fmt.Errorf("%w: %w", &zmsg.Error{Code: code, Outcome: out}, context.Cause(ctx))
}

// call sends a request for a handler that waits.
func (c *Context) call(to Ref, req proto.Message) (*future, error) {
	if c.maySuspend() {
		return c.callReentrant(to, req)
	}
	g := c.cell.g
	f := g.futures.get()
	deadline := c.until()
	token := f.arm(deadline)
	x := c.cell.more()
	c.cell.mu.Lock()
	severed := x.severed // else sever finds f
	if !severed {
		x.waiting, x.token, x.waitsFor = f, token, to
	}
	c.cell.mu.Unlock()
	if severed {
		f.close(token)
		f.put()
		g.codes.ended(cutReply.Code)
		return nil, &zmsg.Error{Code: cutReply.Code, Outcome: zmsg.NotExecuted, Text: cutReply.Text}
	}
	s := sending{f: f, token: token, deadline: deadline, from: c.cell, chain: c.waiting(), trace: c.SendTrace()}
	s.session, s.user = c.Session(), c.User()
	err := to.request(req, &s)
	if err == nil {
		c.waitWith(f, token)
		f.await(token)
		c.waited(f)
		g.codes.ended(f.reply.Code)
	}
	c.cell.mu.Lock()
	x.waiting, x.waitsFor = nil, Ref{}
	c.cell.mu.Unlock()
	if err != nil {
		if !f.close(token) {
			<-f.wake // cut off meanwhile
		}
		f.put()
		g.codes.ended(zmsg.CodeOf(err))
		return nil, err
	}
	return f, nil
}

// then sends a request whose outcome comes to the actor's mailbox.
func (c *Context) then(to Ref, req proto.Message, fn func(c *Context, r *zmsg.Reply)) {
	f := c.promise(fn)
	deadline := c.until()
	token := f.arm(deadline)
	if c.tap != nil && c.tap.then(c, f, token, to, req) {
		return
	}
	s := sending{f: f, token: token, deadline: deadline, from: c.cell, chain: c.chain(), trace: c.SendTrace()}
	s.session, s.user = c.Session(), c.User()
	if err := to.request(req, &s); err != nil {
		r := zmsg.ErrorReply(err)
		f.Reply(token, &r)
	}
}

// promise returns a future, not armed yet, whose outcome runs fn in the actor's turn, in place of the present message.
func (c *Context) promise(fn func(c *Context, r *zmsg.Reply)) *future {
	f := c.cell.g.futures.get()
	f.cell, f.epoch, f.then, f.from = c.cell, c.cell.epoch.Load(), fn, c.it.from
	if c.it.msg != nil {
		f.head = zmsg.NewMessage(c.it.msg.ID)
		f.head.CopyHead(c.it.msg)
		f.head.Chain = c.chain()
	} else if !c.trace.IsZero() {
		f.head = zmsg.NewMessage(c.it.id)
		f.head.Trace = c.trace
	}
	c.cell.pending++
	return f
}

// until is the deadline of a request of this handler.
func (c *Context) until() int64 {
	t := c.cell.g.futures
	deadline := t.until(c.cell.g.cfg.AskTimeout)
	if d, ok := c.Deadline(); ok {
		deadline = min(deadline, int64(d.Sub(t.base)))
	}
	return deadline
}

// sending is what goes with a request.
type sending struct {
	f        *future
	token    uint64
	deadline int64
	done     <-chan struct{} // of the asker's context; nil if it has none
	from     *cell
	chain    []uint64
	trace    zmsg.Trace
	session  zmsg.SessionRef // only for a request that goes by its id, or to an object
	user     string
}

// group returns the group through which r sends, nil for the zero Ref.
func (r Ref) group() *Group {
	switch {
	case r.cell != nil:
		return r.cell.g
	case r.far != nil:
		return r.far.g
	default:
		return nil
	}
}

// request sends a request. On an error nothing was sent and nobody gives an outcome.
func (r Ref) request(req proto.Message, s *sending) error {
	if r == (Ref{}) {
		return zmsg.ErrUnknownActor
	}
	if len(s.chain) > 0 && (r.cell != nil || !r.far.found()) && slices.Contains(s.chain, r.Address().UID()) {
		return zmsg.ErrCycle
	}
	if r.cell != nil && len(s.chain) == 0 && s.trace.IsZero() {
		it := item{value: req, from: s.from, fut: s.f, token: s.token, deadline: s.deadline}
		err := r.cell.pushUser(&it)
		if err != nil {
			err = r.cell.overflow(&it, err, patience{waits: true, ask: s})
		}
		return err
	}
	m, err := newMessage(req)
	if err != nil {
		return err
	}
	m.Chain, m.Trace = s.chain, s.trace
	m.Deadline = s.f.table.base.Add(time.Duration(s.deadline))
	if s.from != nil {
		m.From = s.from.address()
	}
	m.SetReplier(s.f, s.token)
	if r.cell != nil {
		queued(m)
		it := item{msg: m, value: req, id: m.ID, from: s.from}
		if err = r.cell.pushUser(&it); err != nil {
			err = r.cell.overflow(&it, err, patience{waits: true, ask: s})
		}
	} else {
		if r.far.found() {
			m.Session, m.User = s.session, s.user
		}
		err = r.deliverFar(m)
	}
	if err != nil {
		m.TakeReplier()
		m.Release()
	}
	return err
}
