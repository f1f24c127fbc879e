package zrouter

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"zgame/zactor"
	"zgame/zmsg"
)

// The simulation: some nodes, each a real ManagerSet on a zactor.Manual group, in one goroutine. Everything that takes time is an event in
// one queue; everything that may go wrong is decided by one source of random numbers. So a seed is a history, the same each time.
//
// A handler that takes time runs other events meanwhile (busy): those of the other nodes, and of its own. So handlers overlap as they do on
// real nodes, but for this: of two that run at once the one that began later ends first.

// simEvent is something that happens at a time, on a process or (proc is nil) in the world around.
type simEvent struct {
	at   time.Duration
	seq  uint64
	proc *simProc
	f    func()
}

// simWorld is one run.
type simWorld struct {
	seed   uint64
	mutant *simMutant // nil: everything as it is
	rng    *rand.Rand
	cfg    simShape

	now   time.Duration
	seq   uint64
	queue []simEvent // a heap by time, then by order of asking
	depth int        // of busy
	steps int

	calm      bool // no new faults
	calmSince time.Duration
	quiet     bool // no new requests of the clients
	members   simMembers
	store     simStore
	oracle    simOracle
	procs     []*simProc // in the order of their start
	nodes     []*simNode
	byRef     map[zmsg.NodeRef]*simProc
	lanes     map[simLaneKey]*simLane
	blocked   map[[2]string]time.Duration // from and to: until when nothing gets through
	open      int                         // requests that links wait for
	requests  uint64

	broken  string
	history func(format string, args ...any) // nil: nobody reads it
	lines   uint64                           // of the history
}

func (w *simWorld) log(format string, args ...any) {
	if w.history != nil {
		w.lines++
		w.history("%10.4f "+format, append([]any{w.now.Seconds()}, args...)...)
	}
}

// fail says that a promise does not hold. The first one counts; the run ends soon.
func (w *simWorld) fail(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
		w.log("BROKEN: %s", w.broken)
	}
}

func (w *simWorld) chance(p float64) bool { return p > 0 && w.rng.Float64() < p }

// between is a time from a to b.
func (w *simWorld) between(a, b time.Duration) time.Duration {
	if b <= a {
		return a
	}
	return a + time.Duration(w.rng.Int64N(int64(b-a)))
}

// after has f happen, d from now, on proc (nil: in the world around) if it is there still.
func (w *simWorld) after(d time.Duration, proc *simProc, f func()) {
	w.push(simEvent{at: w.now + max(0, d), proc: proc, f: f})
}

func (w *simWorld) push(e simEvent) {
	if e.seq == 0 { // what a pause holds up keeps its place
		w.seq++
		e.seq = w.seq
	}
	q := append(w.queue, e)
	i := len(q) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !before(&q[i], &q[up]) {
			break
		}
		q[i], q[up] = q[up], q[i]
		i = up
	}
	w.queue = q
}

func before(a, b *simEvent) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

func (w *simWorld) pop() simEvent {
	q := w.queue
	e := q[0]
	last := len(q) - 1
	q[0], q[last] = q[last], simEvent{}
	q = q[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			break
		}
		if c+1 < last && before(&q[c+1], &q[c]) {
			c++
		}
		if !before(&q[c], &q[i]) {
			break
		}
		q[i], q[c] = q[c], q[i]
		i = c
	}
	w.queue = q
	return e
}

// maxSteps bounds a run.
const maxSteps = 400_000

// step lets the next event happen; it reports false when there is none until then.
func (w *simWorld) step(until time.Duration) bool {
	if w.broken != "" || len(w.queue) == 0 || w.queue[0].at > until {
		return false
	}
	if w.steps++; w.steps > maxSteps {
		w.fail("more than %d events: something goes on for ever", maxSteps)
		return false
	}
	e := w.pop()
	w.now = max(w.now, e.at)
	switch p := e.proc; {
	case p == nil:
		e.f()
	case p.dead:
	case p.pausedUntil > w.now:
		e.at = p.pausedUntil
		w.push(e)
	default:
		e.f()
		p.settled()
	}
	return true
}

// run lets everything happen until then.
func (w *simWorld) run(until time.Duration) {
	for w.step(until) {
	}
	if w.broken == "" {
		w.now = max(w.now, until)
	}
}

// busy is the time that something on a process takes. What else happens meanwhile happens inside.
func (w *simWorld) busy(p *simProc, d time.Duration) {
	if d <= 0 || w.depth >= 6 {
		return
	}
	w.depth++
	end := w.now + d
	for w.broken == "" && !p.dead {
		end = max(end, p.pausedUntil)
		if !w.step(end) {
			break
		}
	}
	w.depth--
	if w.broken == "" && !p.dead {
		w.now = max(w.now, end)
	}
}

// simClock is the clock of a process. It runs at a rate of its own.
type simClock struct{ p *simProc }

var simEpoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func (c simClock) Now() time.Time { return c.p.local() }

func (c simClock) AfterFunc(d time.Duration, f func()) zactor.ClockTimer {
	t := &simTimer{p: c.p, f: f}
	t.Reset(d)
	return t
}

// simTimer is one call that a simClock has been asked for.
type simTimer struct {
	p     *simProc
	f     func()
	armed bool
	gen   uint64
}

// Stop implements zactor.ClockTimer.
func (t *simTimer) Stop() bool {
	was := t.armed
	t.armed = false
	t.gen++
	return was
}

// Reset implements zactor.ClockTimer.
func (t *simTimer) Reset(d time.Duration) bool {
	was := t.armed
	t.armed = true
	t.gen++
	gen := t.gen
	t.p.w.after(t.p.world(d), t.p, func() {
		if t.armed && t.gen == gen {
			t.armed = false
			t.f()
		}
	})
	return was
}

// local is the time of the process' clock.
func (p *simProc) local() time.Time {
	return simEpoch.Add(p.offset + time.Duration(float64(p.w.now)*p.rate))
}

// world is how long d of the process' clock takes.
func (p *simProc) world(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(float64(d)/p.rate) + 2
}

// simShape is what kind of world a seed makes.
type simShape struct {
	nodes, keys, clients int
	active               time.Duration // how long there are faults and requests
	lease                time.Duration // on the clock of the service
	settings             Settings
	oldRefs              bool // what was sent to an identity from before arrives
	onDemand             bool // a request makes an object, and takes over what nobody owns
	gateways             int  // nodes that host no objects

	// How likely things go wrong; 0 for many seeds, so that each fault is also seen alone.
	netLoss, netSlow                                                   float64
	readFails, writeFails, writeUnclear, slow                          float64
	crash, pause, cutLease, cutBus, cutStore, cutOff, alone, meanwhile float64 // per second
	leave, closing, oldNews, forget                                    float64 // per second
	moves                                                              float64 // per second
	atStep, veto                                                       float64 // of a move: something goes wrong with one of the two nodes, a hook says no
	panics, unusable, ticks, deletes                                   float64
	handler                                                            time.Duration // the longest a handler takes
}

// shape draws the shape of the seed.
func (w *simWorld) shape() {
	c := &w.cfg
	some := func(p, most float64) float64 {
		if w.chance(p) {
			return w.rng.Float64() * most
		}
		return 0
	}
	c.nodes, c.keys, c.clients = 2+w.rng.IntN(3), 1+w.rng.IntN(3), 3+w.rng.IntN(4)
	c.active = w.between(8*time.Second, 20*time.Second)
	c.lease = 2 * time.Second
	c.oldRefs, c.onDemand = w.chance(0.5), w.chance(0.8)
	if c.nodes > 2 && w.chance(0.3) {
		c.gateways = 1
	}
	c.ticks, c.deletes = some(0.3, 0.5), some(0.2, 0.05)
	c.netLoss, c.netSlow = some(0.4, 0.05), some(0.5, 0.1)
	c.readFails, c.writeFails, c.writeUnclear, c.slow = some(0.3, 0.2), some(0.4, 0.3), some(0.6, 0.4), some(0.5, 0.2)
	c.crash, c.pause = some(0.5, 0.3), some(0.5, 0.3)
	c.cutLease, c.cutBus, c.cutStore, c.cutOff = some(0.4, 0.3), some(0.3, 0.2), some(0.3, 0.2), some(0.3, 0.2)
	c.alone, c.meanwhile = some(0.3, 0.2), some(0.2, 0.3)
	c.leave, c.closing, c.oldNews, c.forget = some(0.5, 1), some(0.3, 0.15), some(0.4, 1), some(0.3, 0.5)
	c.panics, c.unusable = some(0.3, 0.1), some(0.2, 0.1)
	c.moves, c.atStep, c.veto = some(0.7, 5), some(0.4, 0.5), some(0.3, 0.3)
	c.handler = w.between(0, 60*time.Millisecond)
	c.settings = Settings{
		CacheUpdateInterval: w.between(2*time.Second, 8*time.Second), CacheFreeTimeout: w.between(time.Second, 6*time.Second),
		ObjectFreeTimeout: w.between(time.Second, 10*time.Second), StoreTimeout: time.Hour,
		PrepareTimeout: w.between(50*time.Millisecond, time.Second), QuiesceTimeout: w.between(10*time.Millisecond, 500*time.Millisecond),
		SaveDelay: w.between(100*time.Millisecond, 2*time.Second), MaxUnsavedAge: 6 * time.Second, Dedup: 64, ClientDedup: 64,
	}
	if w.chance(0.3) {
		c.settings.ReleaseOnIdle = Off
	}
	if w.chance(0.15) {
		c.settings.Durable = On
	}
	if w.chance(0.2) {
		c.settings.MaxQueue = 1 + w.rng.IntN(4)
	}
}

// simNode is a name under which processes run, one at a time.
type simNode struct {
	id    string
	hosts bool // objects
	proc  *simProc
}

func newSimWorld(seed uint64, mutant *simMutant, history func(format string, args ...any)) *simWorld {
	w := &simWorld{
		seed: seed, mutant: mutant, rng: rand.New(rand.NewPCG(seed, 0x5eed)), history: history,
		byRef: make(map[zmsg.NodeRef]*simProc), lanes: make(map[simLaneKey]*simLane), blocked: make(map[[2]string]time.Duration),
	}
	w.shape()
	w.oracle.init(w)
	w.store.init(w)
	w.members.init(w)
	for i := range w.cfg.nodes {
		w.nodes = append(w.nodes, &simNode{id: string(rune('a' + i)), hosts: i < w.cfg.nodes-w.cfg.gateways})
	}
	for _, n := range w.nodes {
		w.startProc(n)
	}
	for i := range w.cfg.clients {
		w.startClient(i)
	}
	w.after(w.between(0, 500*time.Millisecond), nil, w.disturb)
	w.log("seed %d: %+v", seed, w.cfg)
	return w
}

// simulate runs a seed to its end, and returns what did not hold.
func simulate(seed uint64, mutant *simMutant, history func(format string, args ...any)) (broken string, w *simWorld) {
	w = newSimWorld(seed, mutant, history)
	w.run(w.cfg.active)
	w.finish()
	return w.broken, w
}

// finish ends the faults and the requests, and looks at what is left.
func (w *simWorld) finish() {
	if w.broken != "" {
		return
	}
	w.log("--- no more faults")
	w.calm, w.quiet, w.calmSince = true, true, w.now
	w.cfg.netLoss, w.cfg.netSlow = 0, 0
	w.cfg.readFails, w.cfg.writeFails, w.cfg.writeUnclear, w.cfg.slow, w.cfg.panics, w.cfg.unusable, w.cfg.ticks = 0, 0, 0, 0, 0, 0, 0
	clear(w.blocked)
	w.store.cut = nil
	for _, p := range w.procs {
		p.heal()
	}
	for _, n := range w.nodes {
		if n.proc == nil || n.proc.dead {
			w.startProc(n)
		}
	}
	w.run(w.now + 4*w.cfg.lease)
	w.log("--- every key answers again, from every node")
	w.oracle.probe(20 * time.Second)
	w.run(w.now + 25*time.Second) // every save that failed is tried again within 10 s
	w.oracle.final()
	w.log("--- everything is given up")
	for _, p := range w.procs {
		if !p.dead {
			p.close(nil)
		}
	}
	w.run(w.now + 30*time.Second)
	w.oracle.rest()
}

// tail keeps the last lines of a history.
type tail struct {
	lines []string
	most  int
}

func (t *tail) add(format string, args ...any) {
	t.lines = append(t.lines, fmt.Sprintf(format, args...))
	if len(t.lines) > 2*t.most {
		t.lines = append(t.lines[:0], t.lines[len(t.lines)-t.most:]...)
	}
}

func (t *tail) String() string {
	return strings.Join(t.lines[max(0, len(t.lines)-t.most):], "\n")
}
