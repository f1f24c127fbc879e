package zrouter

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"zgame/zactor"
	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/zrouter/internal/entry"
	"zgame/zrouter/internal/testpb"
	"zgame/zstore"
)

// simProc is one start of a node, until it crashes or closes.
type simProc struct {
	w      *simWorld
	node   *simNode
	id     string
	ref    zmsg.NodeRef   // as it is now
	refs   []zmsg.NodeRef // all that it was
	rate   float64
	offset time.Duration
	until  time.Time // the safe part of the lease ends, by its clock
	snap   *zdiscovery.Snapshot
	kinds  []zdiscovery.Kind
	group  *zactor.Group
	manual *zactor.Manual
	set    *ManagerSet

	dead        bool
	died        time.Duration
	closedAt    time.Duration              // when it began to close
	handed      map[zmsg.Key]time.Duration // when it last told a new owner that it is that
	shut        bool                       // close was called
	leaving     bool
	joining     bool
	stepping    bool // an event that steps an actor is asked for
	pausedUntil time.Duration
	cutLease    time.Duration
	cutBus      time.Duration
	busDown     bool
	heard       time.Duration // when the last list arrives
	waits       []*simRequest
	jobs        int
	jobRead     zmsg.Key // what the job that runs has read

	lied, liedOf *zdiscovery.Snapshot // of mutants
	failed       []zmsg.Key
}

func (w *simWorld) startProc(n *simNode) {
	p := &simProc{w: w, node: n, id: n.id, rate: w.drawRate(), offset: w.between(0, 1000*time.Hour)}
	n.proc = p
	w.procs = append(w.procs, p)
	kind := p.kind()
	k, err := kind.spec()
	if err != nil {
		panic(err)
	}
	var kinds []AnyKind
	if n.hosts {
		kinds = []AnyKind{kind}
		p.kinds = []zdiscovery.Kind{{Type: k.typ, Name: k.name, Adverts: k.adverts, OnDemand: k.onDemand}}
	}
	sent := p.local()
	ref := w.members.join(p)
	p.become(ref)
	p.snap = w.members.snapshot()
	p.serve(sent)
	p.group, p.manual, err = zactor.NewManual(zactor.Config{Node: ref, Clock: simClock{p}, HandlerLimit: -1, QueueMark: -1, Seed: w.rng.Uint64() | 1})
	if err != nil {
		panic(err)
	}
	p.set, err = New(Config{
		Self: ref, Group: p.group, Link: p, Members: p, Store: newSimClient(p), Settings: w.cfg.settings, Clock: simClock{p},
		executor: simExecutor{p}, random: rand.New(rand.NewPCG(w.rng.Uint64(), 1)),
	}, kinds...)
	if err != nil {
		panic(err)
	}
	p.renew()
}

func (p *simProc) become(ref zmsg.NodeRef) {
	p.ref = ref
	p.refs = append(p.refs, ref)
	p.w.byRef[ref] = p
}

// crash ends the process, with all that it had in memory.
func (p *simProc) crash(why string) {
	w := p.w
	w.log("%s: %s", p.ref, why)
	w.oracle.trouble = w.now
	p.dead, p.died = true, w.now
	w.open -= len(p.waits)
	p.waits = nil
	w.oracle.died(p)
}

// heal ends what goes wrong with the process, as far as that can be.
func (p *simProc) heal() {
	if p.dead {
		return
	}
	now := p.w.now
	p.pausedUntil, p.cutLease, p.cutBus = min(p.pausedUntil, now), min(p.cutLease, now), min(p.cutBus, now)
	p.busDown = false
}

// settled is called behind everything that happened on the process.
func (p *simProc) settled() {
	if p.dead {
		return
	}
	p.w.oracle.look(p)
	p.pump()
}

// pump has an actor that has something to do take its turn soon.
func (p *simProc) pump() {
	if p.stepping || len(p.manual.Ready()) == 0 {
		return
	}
	p.stepping = true
	p.w.after(p.w.between(0, 300*time.Microsecond), p, func() {
		p.stepping = false
		if ready := p.manual.Ready(); len(ready) > 0 {
			p.manual.Step(ready[p.w.rng.IntN(len(ready))])
		}
	})
}

// close gives everything up, as ManagerSet.Close does, and then ends the process.
func (p *simProc) close(then func()) {
	w := p.w
	if p.closing() {
		return
	}
	w.log("%s: closes", p.ref)
	if m := w.mutant; m == nil || !m.forgetsClosing {
		p.set.closing.Store(true)
	}
	p.shut = true
	w.members.draining(p.ref)
	end := w.now + w.between(2*time.Second, 20*time.Second)
	if w.calm {
		end = w.now + 25*time.Second
	}
	drained := w.now // until then it serves as one that has given everything up
	if !w.calm && w.chance(0.5) {
		drained += w.between(0, 2*time.Second)
	}
	p.closedAt = w.now
	rep := new(Report)
	seen := make(map[*residence]bool)
	var round func()
	round = func() {
		left := p.set.releaseSome(seen, rep)
		if left == 0 && w.now < drained {
			w.after(p.world(20*time.Millisecond), p, round)
			return
		}
		if left > 0 && w.now < end {
			w.after(p.world(20*time.Millisecond), p, round)
			return
		}
		p.set.end(rep)
		if rep.Lost != left {
			w.fail("closing: %d objects are left, and %d reported", left, rep.Lost)
		}
		if w.calm && left > 0 && p.closedAt >= w.calmSince {
			w.fail("liveness: closing does not end, though nothing goes wrong any more: %d objects are left", left)
		}
		p.goAway(then, w.now+5*time.Second)
	}
	w.after(0, p, round)
}

// goAway ends a closed process, as soon as its actors have ended.
func (p *simProc) goAway(then func(), latest time.Duration) {
	w := p.w
	w.after(w.between(0, 10*time.Millisecond), p, func() { // what was told meanwhile is on its way
		if (p.group.Len() > 0 || p.jobs > 0) && w.now < latest { // Close waits for its jobs, and the group's for its actors
			p.goAway(then, latest)
			return
		}
		p.leaving = true
		for _, q := range append([]*simRequest(nil), p.waits...) {
			q.end(&zmsg.Reply{Code: zmsg.CodeUnavailable, Outcome: zmsg.Unknown, Text: "the link was closed"})
		}
		w.members.leave(p.ref)
		w.oracle.empty(p)
		p.crash("has closed")
		if then != nil {
			then()
		}
	})
}

func (p *simProc) closing() bool { return p.shut }

// failedSave and forgetSave are of the mutants that do not try a failed save again soon.
func (p *simProc) failedSave(c *zstore.Change) {
	if m := p.w.mutant; m != nil && (m.forgetsFailed || m.waitsFailed) && c.Op == zstore.OpSave {
		p.failed = append(p.failed, c.Key)
	}
}

func (p *simProc) forgetSave() {
	for _, k := range p.failed {
		sh := p.set.shard(k)
		sh.mu.Lock()
		if o := sh.objects[k]; o != nil && o.entry.Phase == entry.Active && !o.entry.Writing {
			if p.w.mutant.forgetsFailed {
				o.entry.Dirty = false
				o.saveAt, o.unsaved = time.Time{}, time.Time{}
			} else {
				o.saveAt = p.local().Add(600 * time.Second)
				o.arm(p.local())
			}
		}
		sh.mu.Unlock()
	}
	p.failed = p.failed[:0]
}

var errSimActivate = errors.New("the simulation says that this cannot be loaded")

// kind is the kind of the objects of the simulation: lines that are appended, each with a name of its own.
func (p *simProc) kind() Kind[*testpb.Log] {
	w := p.w
	type ctx = Context[*testpb.Log]
	handled := func(c *ctx, line string) *testpb.Appended {
		w.oracle.handle(p, c, w.oracle.attempt(numberOf(c.Message())), line)
		return &testpb.Appended{N: int64(len(c.State().Lines))}
	}
	kind := Kind[*testpb.Log]{
		Type: simType, Name: "log", Version: 1,
		Handlers: []Handler[*testpb.Log]{
			Handle(func(c *ctx, req *testpb.Append) (*testpb.Appended, error) { return handled(c, req.Line), nil }, FromClients()),
			Handle(func(c *ctx, req *testpb.Keep) (*testpb.Appended, error) { return handled(c, req.Line), nil }, Durable(), FromClients()),
			HandleTell(func(c *ctx, req *testpb.Note) error { handled(c, req.Line); return nil }),
			Handle(func(c *ctx, _ *testpb.Get) (*testpb.Lines, error) {
				handled(c, "")
				return &testpb.Lines{Lines: append([]string(nil), c.State().Lines...)}, nil
			}),
			Handle(func(c *ctx, _ *testpb.Boom) (*testpb.Lines, error) {
				w.oracle.panics(p, c)
				c.State().Lines = append(c.State().Lines, halfDone)
				c.Dirty()
				panic("boom")
			}),
		},
		OnActivate: func(c *ctx) error {
			if w.chance(w.cfg.unusable) {
				w.log("%s: %s cannot be loaded", p.ref, c.Key().ID)
				return errSimActivate
			}
			w.oracle.loaded(p, c)
			if w.chance(w.cfg.ticks) {
				c.After(w.between(50*time.Millisecond, 2*time.Second), func(c *ctx) { w.oracle.ticks(p, c) })
			}
			return nil
		},
		OnDeactivate:  func(c *ctx, why Reason) { w.oracle.unloaded(p, c, why) },
		BeforeRemove:  func(c *ctx) error { return w.oracle.freezes(p, c) },
		OnHandoff:     func(c *ctx) ([]byte, error) { return w.oracle.gives(p, c) },
		RemoveAborted: func(c *ctx) { w.oracle.thaws(p, c) },
		OnAdopt:       func(c *ctx, attachment []byte) error { return w.oracle.adopts(p, c, attachment) },
	}
	if w.cfg.onDemand {
		kind.Create = func(zmsg.Key) (*testpb.Log, error) { return new(testpb.Log), nil }
	} else {
		kind.PullOnlineServer = func(_ context.Context, k zmsg.Key) (Route, error) { return w.oracle.online(k) }
	}
	return kind
}

const (
	simType  = 7
	halfDone = "half done"
)
