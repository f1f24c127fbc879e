package zactor_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zmsg"
)

// TestModel lets clients and a few actors do whatever this package offers, at once, and holds what comes of it against the
// promises:
//
//   - a message that was taken is handled once or is a dead letter; one that was refused is not handled
//   - a request has one outcome; one that was not executed has not been handled
//   - one handler of an actor runs at a time, and none after OnStop
//   - OnStop runs once for each actor that started
//   - Down comes once for each watch, and not as long as the watched actor is there
//   - what Then and Async promise comes once, unless the instance ends first
//   - a shutdown ends everything; what it does not cut is done
//
// The scripts are drawn; the goroutines make of them what they like, so that a script which failed once may pass again.
func TestModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		s := script{
			kinds:   rapid.SliceOfN(rapid.Custom(drawKind), slots, slots).Draw(r, "kinds"),
			clients: rapid.SliceOfN(rapid.SliceOfN(rapid.Custom(drawStep), 10, 40), 3, 6).Draw(r, "clients"),
			hurry:   rapid.SampledFrom([]bool{false, false, false, true}).Draw(r, "hurry"),
		}
		var faults []string
		synctest.Test(t, func(t *testing.T) { faults = s.run(t) })
		for _, f := range faults {
			r.Error(f)
		}
	})
}

// slots is how many names there are for actors.
const slots = 4

// A script is what happens in one run.
type script struct {
	kinds   []kind
	clients [][]step
	hurry   bool // the shutdown has little time
}

// kind is what the actors of one slot are.
type kind struct {
	Mailbox   int
	Bytes     int
	Overflow  zactor.Overflow
	Reentrant bool
	Idle      time.Duration
	Do        zactor.Directive
	Backoff   time.Duration
	Restarts  int
	Flaky     bool // every third instance does not start
	Watches   int  // the slot that OnStart watches; -1: none
}

func drawKind(t *rapid.T) kind {
	return kind{
		Mailbox:   rapid.SampledFrom([]int{1, 2, 5, 100}).Draw(t, "mailbox"),
		Bytes:     rapid.SampledFrom([]int{0, 0, 512}).Draw(t, "bytes"),
		Overflow:  rapid.SampledFrom([]zactor.Overflow{zactor.Reject, zactor.Reject, zactor.DropOldest, zactor.DropNewest, zactor.Wait(5 * time.Millisecond)}).Draw(t, "overflow"),
		Reentrant: rapid.Bool().Draw(t, "reentrant"),
		Idle:      rapid.SampledFrom([]time.Duration{0, 0, 3 * time.Millisecond}).Draw(t, "idle"),
		Do:        rapid.SampledFrom([]zactor.Directive{zactor.Restart, zactor.Restart, zactor.Resume, zactor.Stop, zactor.Escalate}).Draw(t, "directive"),
		Backoff:   rapid.SampledFrom([]time.Duration{-1, 0, 2 * time.Millisecond}).Draw(t, "backoff"),
		Restarts:  rapid.SampledFrom([]int{0, 1, 100}).Draw(t, "restarts"),
		Flaky:     rapid.SampledFrom([]bool{false, false, true}).Draw(t, "flaky"),
		Watches:   rapid.SampledFrom([]int{-1, 0, 1, 2, 3}).Draw(t, "watches"),
	}
}

// Drawn from lists: numbers out of ranges are mostly small ones.
var (
	drawSlot = rapid.SampledFrom([]int{0, 1, 2, 3})
	drawFor  = rapid.SampledFrom([]time.Duration{0, 100 * time.Microsecond, time.Millisecond, 3 * time.Millisecond, 8 * time.Millisecond})
)

// step is one thing that a client does.
type step struct {
	What string
	Slot int
	For  time.Duration
	Act  *act
}

func drawStep(t *rapid.T) step {
	s := step{
		What: rapid.SampledFrom([]string{
			"tell", "tell", "tell", "ask", "ask", "ask", "cancelled", "over", "ensure", "ensure", "spawn all", "stop", "stop wait",
			"drain", "drain wait", "sleep", "burst",
		}).Draw(t, "what"),
		Slot: drawSlot.Draw(t, "slot"),
		For:  drawFor.Draw(t, "for"),
	}
	s.Act = drawAct(t, 2)
	return s
}

// act is what a handler does.
type act struct {
	What string
	Slot int
	For  time.Duration
	Then *act // what the message that it sends makes the other do
}

var acts = []string{
	"echo", "echo", "fail", "panic", "goexit", "sleep", "call", "call", "call", "ask", "then", "then", "defer", "defer never", "defer fail", "forward", "async", "after",
	"every", "loop", "watch", "watch", "unwatch", "child", "stop", "take", "tell", "reply", "panicking timer", "panicking async", "panicking then",
}

func drawAct(t *rapid.T, depth int) *act {
	a := &act{
		What: rapid.SampledFrom(acts).Draw(t, "act"),
		Slot: drawSlot.Draw(t, "to"),
		For:  drawFor.Draw(t, "for"),
	}
	if depth > 0 {
		a.Then = drawAct(t, depth-1)
	} else {
		a.Then = &act{What: "echo"}
	}
	return a
}

// model runs a script and keeps the books.
type model struct {
	g     *zactor.Group
	kinds []kind
	work  sync.WaitGroup // goroutines of handlers

	mu       sync.Mutex
	faults   []string
	sent     []*sent // by number
	lives    []*life
	watches  []*watching
	taken    int // one-way messages that somebody took
	handled  int // one-way messages that a handler ran for
	dead     int // one-way messages that are dead letters
	promised map[*promise]struct{}
}

// sent is one message.
type sent struct {
	act       *act
	request   bool
	refused   bool
	handled   int
	forwarded int
	outcomes  int
	outcome   error
}

// life is one actor, from Spawn to its end.
type life struct {
	name              string
	inside            bool
	instance, stopped int
	started           bool
	epoch             *epoch
}

// epoch is one instance.
type epoch struct{ over bool }

type watching struct {
	by    *epoch
	of    *life
	downs int
	ended bool
}

type promise struct {
	by   *epoch
	what string
	done int
}

func (m *model) fault(format string, args ...any) {
	m.faults = append(m.faults, fmt.Sprintf(format, args...))
}

func (m *model) locked(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// send notes a message; it is called before it is sent.
func (m *model) send(a *act, request bool) (n int64) {
	m.locked(func() {
		n = int64(len(m.sent))
		m.sent = append(m.sent, &sent{act: a, request: request})
	})
	return n
}

// told notes what came of sending a one-way message.
func (m *model) told(n int64, err error) {
	m.locked(func() {
		if m.sent[n].refused = err != nil; err == nil {
			m.taken++
		}
	})
}

// ended notes the outcome of a request.
func (m *model) ended(n int64, err error) {
	m.locked(func() { m.sent[n].outcomes++; m.sent[n].outcome = err })
}

func (s script) run(t *testing.T) []string {
	t.Helper()
	m := &model{kinds: s.kinds, promised: map[*promise]struct{}{}}
	m.g = newModelGroup(t, m)
	for slot := range slots {
		_, _ = m.g.Spawn(m.name(slot), m.newActor(slot), m.options(slot)...)
	}
	var clients sync.WaitGroup
	for _, steps := range s.clients {
		clients.Go(func() {
			for _, st := range steps {
				m.step(t.Context(), st)
			}
		})
	}
	clients.Wait()
	patience := time.Minute
	if s.hurry {
		patience = time.Millisecond
	} else {
		time.Sleep(20 * time.Second) // longer than any timeout: what is going to happen has happened
		synctest.Wait()
		m.locked(m.checkWatches)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := m.g.Shutdown(ctx)
	m.work.Wait()
	synctest.Wait()
	m.locked(func() { m.checkAll(err, s.hurry) })
	return m.faults
}

func newModelGroup(t *testing.T, m *model) *zactor.Group {
	t.Helper()
	cfg := zactor.Config{AsyncWorkers: 1, AsyncQueue: 2, AsyncFull: zactor.AsyncDropOldest, AskTimeout: 50 * time.Millisecond}
	cfg.Node = zmsg.NodeRef{ID: "n1", Epoch: 1}
	note, _ := zmsg.IDOf(&testpb.Note{})
	cfg.OnDeadLetter = func(d zactor.DeadLetter) {
		if d.ID == note && d.Reason != "stale" {
			m.locked(func() { m.dead++ })
		}
	}
	g, err := zactor.NewGroup(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func (m *model) name(slot int) string { return fmt.Sprint("a", slot) }

func (m *model) options(slot int) []zactor.SpawnOption {
	k := m.kinds[slot]
	opts := []zactor.SpawnOption{
		zactor.WithMailbox(k.Mailbox), zactor.WithMailboxBytes(k.Bytes), zactor.WithOverflow(k.Overflow), zactor.WithIdle(k.Idle),
		zactor.WithPolicy(zactor.Policy{
			Decide:      func(error) zactor.Directive { return k.Do },
			MaxRestarts: k.Restarts, MinBackoff: k.Backoff, MaxBackoff: 10 * time.Millisecond,
		}),
	}
	if k.Reentrant {
		opts = append(opts, zactor.Reentrant())
	}
	return opts
}

// to returns the actor that has the slot's name now.
func (m *model) to(slot int) (ref zactor.Ref) {
	ref, _ = m.g.Lookup(m.name(slot))
	return ref
}

// step is what a client does.
func (m *model) step(ctx context.Context, s step) {
	ref := m.to(s.Slot)
	short, cancel := context.WithTimeout(ctx, s.For+time.Millisecond)
	defer cancel()
	switch s.What {
	case "tell":
		n := m.send(s.Act, false)
		m.told(n, ref.Tell(&testpb.Note{N: n}))
	case "burst":
		for range 5 {
			n := m.send(s.Act, false)
			m.told(n, ref.Tell(&testpb.Note{N: n}))
		}
	case "ask":
		m.ask(ctx, ref, s.Act)
	case "cancelled":
		m.ask(short, ref, s.Act)
	case "over":
		cancel()
		m.ask(short, ref, s.Act)
	case "ensure":
		_, _ = m.g.Ensure(short, m.name(s.Slot), m.newActor(s.Slot), m.options(s.Slot)...)
	case "spawn all":
		next := (s.Slot + 1) % slots
		_, _ = m.g.SpawnAll(
			zactor.Spec{Name: m.name(s.Slot), New: m.newActor(s.Slot), Options: m.options(s.Slot)},
			zactor.Spec{Name: m.name(next), New: m.newActor(next), Options: m.options(next)},
		)
	case "stop":
		_ = m.g.Stop(ref)
	case "stop wait":
		_ = m.g.StopWait(short, ref)
	case "drain":
		_ = m.g.StopDrained(ref)
	case "drain wait":
		_ = m.g.StopDrainedWait(short, ref)
	case "sleep":
		time.Sleep(s.For)
	}
}

func (m *model) ask(ctx context.Context, to zactor.Ref, a *act) {
	n := m.send(a, true)
	_, err := zactor.Ask[testpb.Pong](ctx, to, &testpb.Ping{N: n})
	m.ended(n, err)
}

// modelActor is one instance.
type modelActor struct {
	m     *model
	kind  kind
	life  *life
	epoch *epoch
	watch zactor.Watch
}

func (m *model) newActor(slot int) func() zactor.Actor { return m.factory(m.kinds[slot], m.name(slot)) }

func (m *model) factory(k kind, name string) func() zactor.Actor {
	l := &life{name: name}
	m.locked(func() { m.lives = append(m.lives, l) })
	return func() zactor.Actor {
		a := &modelActor{m: m, kind: k, life: l, epoch: &epoch{}}
		m.locked(func() {
			if l.epoch != nil {
				l.epoch.over = true
			}
			l.epoch = a.epoch
			l.instance++
		})
		return a
	}
}

func (a *modelActor) Handlers() []zactor.Handler {
	return []zactor.Handler{
		zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) { return a.handle(c, p, p.GetN()) }),
		zactor.HandleTell(func(c *zactor.Context, n *testpb.Note) error {
			_, err := a.handle(c, n, n.GetN())
			return err
		}),
	}
}

// enter and leave stand around what runs in the actor's turn.
func (a *modelActor) enter(where string) {
	a.m.locked(func() {
		switch l := a.life; {
		case l.inside:
			a.m.fault("%s: %s runs while another does", l.name, where)
		case l.stopped > 0 && where != "OnStop":
			a.m.fault("%s: %s runs after OnStop", l.name, where)
		case l.epoch != a.epoch:
			a.m.fault("%s: %s of an instance that is over", l.name, where)
		}
		a.life.inside = true
	})
}

func (a *modelActor) leave() { a.m.locked(func() { a.life.inside = false }) }

// waits calls f, during which a reentrant actor does other things.
func (a *modelActor) waits(f func()) {
	if a.kind.Reentrant {
		a.leave()
		defer a.enter("what comes after Call")
	}
	f()
}

func (a *modelActor) OnStart(c *zactor.Context) error {
	a.enter("OnStart")
	defer a.leave()
	if a.kind.Flaky && a.life.instance%3 == 0 {
		return errEnd
	}
	a.m.locked(func() { a.life.started = true })
	if slot := a.kind.Watches; slot >= 0 {
		a.watchSlot(c, slot)
	}
	return nil
}

func (a *modelActor) OnRestart(c *zactor.Context, _ error) {
	a.enter("OnRestart")
	defer a.leave()
	if n := len(c.Children()); n > 10 {
		panic("too many")
	}
}

func (a *modelActor) OnStop(c *zactor.Context, why zactor.Reason) {
	a.enter("OnStop")
	defer a.leave()
	a.m.locked(func() {
		a.life.stopped++
		a.epoch.over = true
		if n := len(c.Children()); n > 0 {
			a.m.fault("%s: %d children in OnStop, %v", a.life.name, n, why)
		}
	})
	_, _ = a.perform(c, &act{What: "after"}, 0)
	_, _ = a.perform(c, &act{What: "watch", Slot: 1}, 0)
}

// handle is a handler: it does what the message's act says.
func (a *modelActor) handle(c *zactor.Context, msg proto.Message, n int64) (*testpb.Pong, error) {
	a.enter("a handler")
	defer a.leave()
	_, request := msg.(*testpb.Ping)
	var do *act
	a.m.locked(func() {
		s := a.m.sent[n]
		do = s.act
		s.handled++
		if !request {
			a.m.handled++
		}
	})
	return a.perform(c, do, n)
}

// perform does an act, about message n.
func (a *modelActor) perform(c *zactor.Context, do *act, n int64) (*testpb.Pong, error) {
	m := a.m
	later := func(what string, f func()) func(*zactor.Context) {
		return func(*zactor.Context) {
			a.enter(what)
			defer a.leave()
			f()
		}
	}
	nothing := func() {}
	pong := &testpb.Pong{N: n}
	switch do.What {
	case "fail":
		return nil, zmsg.Errorf(1001, "no")
	case "panic":
		panic("on purpose")
	case "goexit":
		runtime.Goexit()
	case "sleep":
		time.Sleep(do.For)
	case "call", "ask":
		k := m.send(do.Then, true)
		var err error
		if do.What == "ask" {
			_, err = zactor.Ask[testpb.Pong](c.Context(), m.to(do.Slot), &testpb.Ping{N: k})
		} else {
			a.waits(func() { _, err = zactor.Call[testpb.Pong](c, m.to(do.Slot), &testpb.Ping{N: k}) })
		}
		m.ended(k, err)
		return pong, err
	case "then", "panicking then":
		k, p := m.send(do.Then, true), a.promise("Then")
		d := c.Defer()
		zactor.Then(c, m.to(do.Slot), &testpb.Ping{N: k}, func(_ *zactor.Context, _ *testpb.Pong, err error) {
			a.enter("Then")
			defer a.leave()
			m.ended(k, err)
			m.kept(p)
			if do.What != "then" {
				panic("on purpose")
			}
			d.Reply(pong)
		})
		return nil, zactor.ErrDeferred
	case "defer", "defer fail":
		d := c.Defer()
		m.work.Go(func() {
			time.Sleep(do.For)
			if do.What == "defer fail" {
				d.Fail(errEnd)
			}
			d.Reply(pong)
			if d.Reply(pong) || d.Fail(errEnd) {
				m.locked(func() { m.fault("%s: a second reply counts", a.life.name) })
			}
		})
		return nil, zactor.ErrDeferred
	case "defer never":
		c.Defer()
		return nil, zactor.ErrDeferred
	case "forward":
		to := m.to(do.Slot)
		m.locked(func() {
			s := m.sent[n]
			if s.forwarded++; s.forwarded >= 2 {
				s.act = &act{What: "echo"} // else it may go round for ever
			}
		})
		err := c.Forward(to)
		m.locked(func() {
			if err != nil {
				m.sent[n].forwarded--
			} else if !m.sent[n].request {
				m.taken++
			}
		})
		return nil, err
	case "async", "panicking async":
		p := a.promise("Async")
		work := func(context.Context) (int, error) {
			time.Sleep(do.For)
			if do.What != "async" {
				runtime.Goexit()
			}
			return 1, nil
		}
		err := zactor.Async(c, work, func(_ *zactor.Context, _ int, err error) {
			a.enter("Async")
			defer a.leave()
			m.kept(p)
			if err != nil && do.What != "async" {
				panic(err)
			}
		})
		if err != nil {
			m.kept(p)
		}
	case "after":
		c.After(do.For, later("After", nothing))
	case "every":
		c.EveryKey("every", do.For+time.Millisecond, later("Every", nothing))
	case "loop":
		l := c.Loop(200, func(c *zactor.Context, _ zactor.Tick) { later("Loop", nothing)(c) })
		c.AfterKey("loop", do.For, func(*zactor.Context) { l.Stop() })
	case "panicking timer":
		c.AfterKey("panic", do.For, later("After", func() { panic("on purpose") }))
	case "watch":
		a.watchSlot(c, do.Slot)
	case "unwatch":
		a.watch.Stop()
		m.locked(func() {
			if w := a.lastWatch(); w != nil {
				w.ended = true
			}
		})
	case "child":
		k := a.kind
		k.Watches, k.Flaky = -1, false
		ref, err := c.Spawn("", m.factory(k, a.life.name+"/child"), zactor.WithPolicy(zactor.Policy{
			Decide: func(error) zactor.Directive { return zactor.Escalate },
		}))
		if err == nil && do.Then != nil {
			note := m.send(do.Then, false)
			m.told(note, c.Tell(ref, &testpb.Note{N: note}))
		}
	case "stop":
		c.Stop()
	case "take":
		msg := c.Take()
		m.work.Go(func() {
			time.Sleep(do.For)
			msg.Reply(&zmsg.Reply{Value: pong})
			msg.Release()
		})
	case "tell":
		note := m.send(do.Then, false)
		m.told(note, c.Tell(m.to(do.Slot), &testpb.Note{N: note}))
	case "reply":
		if c.Reply(pong) && c.ReplyError(errEnd) {
			m.locked(func() { m.fault("%s: a second reply counts", a.life.name) })
		}
	}
	return pong, nil
}

// lifeOf is the actor whose ref this is; nil if it cannot be told.
func (m *model) lifeOf(slot int, ref zactor.Ref) *life {
	for _, l := range m.lives {
		if l.name == m.name(slot) && l.started && l.stopped == 0 && !ref.IsZero() {
			return l
		}
	}
	return nil
}

func (a *modelActor) lastWatch() *watching {
	for _, w := range slices.Backward(a.m.watches) {
		if w.by == a.epoch {
			return w
		}
	}
	return nil
}

func (a *modelActor) watchSlot(c *zactor.Context, slot int) {
	m := a.m
	ref := m.to(slot)
	w := &watching{by: a.epoch}
	m.locked(func() {
		if w.of = m.lifeOf(slot, ref); w.of != nil && m.to(slot) != ref {
			w.of = nil
		}
		m.watches = append(m.watches, w)
	})
	a.watch = c.Watch(ref, func(_ *zactor.Context, d zactor.Down) {
		a.enter("Down")
		defer a.leave()
		m.locked(func() {
			if w.downs++; w.downs > 1 || w.ended {
				m.fault("%s: Down comes %d times; taken back: %v", a.life.name, w.downs, w.ended)
			}
			if w.of != nil && w.of.stopped == 0 {
				m.fault("%s: Down of %s, which is there: %v", a.life.name, w.of.name, d.Reason)
			}
		})
	})
}

func (a *modelActor) promise(what string) *promise {
	p := &promise{by: a.epoch, what: what}
	a.m.locked(func() { a.m.promised[p] = struct{}{} })
	return p
}

func (m *model) kept(p *promise) {
	m.locked(func() {
		if p.done++; p.done > 1 {
			m.fault("%s comes %d times", p.what, p.done)
		}
		delete(m.promised, p)
	})
}

// checkWatches runs when all is quiet.
func (m *model) checkWatches() {
	for _, w := range m.watches {
		if !w.by.over && !w.ended && w.of != nil && w.downs != min(w.of.stopped, 1) {
			m.fault("%d times Down of %s, which has stopped %d times", w.downs, w.of.name, w.of.stopped)
		}
	}
	for p := range m.promised {
		if !p.by.over {
			m.fault("what %s promised has not come", p.what)
		}
	}
}

func (m *model) checkAll(shutdown error, hurry bool) {
	var cut *zactor.CutError
	if shutdown != nil && !errors.As(shutdown, &cut) {
		m.fault("Shutdown: %v", shutdown)
	}
	if cut != nil && !hurry {
		m.fault("Shutdown had a minute and nothing to do: %v", shutdown)
	}
	if cut != nil {
		for _, c := range cut.Actors {
			if c.Stuck {
				m.fault("stuck: %v", shutdown)
			}
		}
	}
	if n := m.g.Len(); n > 0 {
		m.fault("%d actors are left", n)
	}
	for _, l := range m.lives {
		if l.started && l.stopped != 1 || !l.started && l.stopped > 0 {
			m.fault("%s: started %v, OnStop ran %d times", l.name, l.started, l.stopped)
		}
	}
	if m.taken != m.handled+m.dead {
		m.fault("one-way messages: %d taken, %d handled, %d dead letters", m.taken, m.handled, m.dead)
	}
	for n, s := range m.sent {
		switch {
		case s.handled > 1+s.forwarded:
			m.fault("message %d (%+v) was handled %d times", n, *s.act, s.handled)
		case s.refused && s.handled > 0:
			m.fault("message %d (%+v) was refused, and handled", n, *s.act)
		case s.request && s.outcomes > 1:
			m.fault("request %d (%+v) has %d outcomes", n, *s.act, s.outcomes)
		case !s.request || s.outcomes == 0:
		case s.outcome == nil && s.handled == 0:
			m.fault("request %d (%+v) was answered by nobody", n, *s.act)
		case s.outcome != nil && zmsg.OutcomeOf(s.outcome) == zmsg.NotExecuted && s.handled > s.forwarded:
			m.fault("request %d (%+v) was not executed, but handled: %v", n, *s.act, s.outcome)
		case s.outcome != nil && zmsg.OutcomeOf(s.outcome) == zmsg.Executed && s.handled == 0:
			m.fault("request %d (%+v) was executed by nobody: %v", n, *s.act, s.outcome)
		}
	}
}
