package zrouter

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zrouter/internal/entry"
	"zgame/zrouter/internal/testpb"
	"zgame/zstore"
)

// simOracle sees everything, and says what does not hold. The names in its words are those of docs and of the list of invariants.
type simOracle struct {
	w        *simWorld
	keys     []zmsg.Key
	attempts []*simAttempt // by number, from 1
	lines    map[string]*simLine
	ofKey    map[zmsg.Key][]*simLine
	mark     uint64

	committed map[zmsg.Key][]zmsg.NodeRef // by version, from 1: who became the owner
	running   map[zmsg.Key][]*simRun
	panicked  map[simPlace]time.Duration // when a handler last panicked
	arrivals  map[simArrival]simCame
	reads     map[simPlace]time.Duration // when a read last ended
	proven    map[simPlace]time.Duration // when a write last proved the ownership
	streams   map[simStream]*simAttempt  // the last that was handled
	callers   map[simCaller]*simAttempt  // the one that was asked for last of those that were handled
	unmoved   map[zmsg.Key]time.Duration // when the owner last changed otherwise than by a move to another node
	trouble   time.Duration              // when something was last lost on the way, or a node died
	timers    int
	moves     []*simMove
	commits   []simCommit
	frozen    map[*residence]bool // BeforeRemove was called, and nothing that ends it
	transfers int                 // that ended well
}

type simPlace struct {
	p   *simProc
	key zmsg.Key
}

type simArrival struct {
	p   *simProc
	seq uint64
}

type simCame struct {
	at   time.Duration
	hint zmsg.RouteVersion
}

// simLine is a line that clients ask to append.
type simLine struct {
	id       string
	key      zmsg.Key
	attempts []*simAttempt
	runs     []*simRun
	acked    bool
	durable  bool // it was acknowledged as saved
	ackedAt  time.Duration
	lost     bool     // was seen missing, with an excuse, or deleted
	behind   *simLine // the same client's line that was acknowledged before this one was asked for
	mark     uint64
	pos      int
	session  uint64 // of the client, and its seq there
	seq      uint64
}

// simRun is one run of a handler.
type simRun struct {
	p       *simProc
	ref     zmsg.NodeRef
	version zmsg.RouteVersion
	attempt *simAttempt // nil: a timer
	start   time.Duration
	end     time.Duration // 0: it runs
}

func (o *simOracle) init(w *simWorld) {
	*o = simOracle{
		w: w, attempts: make([]*simAttempt, 1), lines: make(map[string]*simLine), ofKey: make(map[zmsg.Key][]*simLine),
		committed: make(map[zmsg.Key][]zmsg.NodeRef), running: make(map[zmsg.Key][]*simRun), panicked: make(map[simPlace]time.Duration),
		arrivals: make(map[simArrival]simCame), reads: make(map[simPlace]time.Duration),
		proven: make(map[simPlace]time.Duration), streams: make(map[simStream]*simAttempt), callers: make(map[simCaller]*simAttempt), unmoved: make(map[zmsg.Key]time.Duration), frozen: make(map[*residence]bool),
	}
	for i := range w.cfg.keys {
		o.keys = append(o.keys, zmsg.Key{Type: simType, ID: string(rune('x' + i))})
	}
}

// onlyLooked is a key that nobody asks for anything but where it is.
var onlyLooked = zmsg.Key{Type: simType, ID: "looked at"}

func (o *simOracle) attempt(seq uint64) *simAttempt {
	if seq == 0 || seq >= uint64(len(o.attempts)) {
		return nil
	}
	return o.attempts[seq]
}

func linesOf(state []byte) []string {
	l := new(testpb.Log)
	if proto.Unmarshal(state, l) != nil {
		return []string{"garbage"}
	}
	return l.Lines
}

// wrote is told of each write that lands, before it has.
func (o *simOracle) wrote(p *simProc, c *zstore.Change, cur, next *zstore.Record) {
	w, k := o.w, c.Key
	if k == onlyLooked {
		w.fail("I14: looking has written: %s by %s", c.Op, p.ref)
	}
	if next.Rev != cur.Rev+1 {
		w.fail("I2: %s of %s by %s makes revision %d of %d", c.Op, k.ID, p.id, next.Rev, cur.Rev)
	}
	moves := c.Op != zstore.OpSave
	if want := cur.Own.Version; moves && next.Own.Version != want+1 || !moves && next.Own.Version != want {
		w.fail("I2: %s of %s by %s makes version %d of %d", c.Op, k.ID, p.id, next.Own.Version, want)
	}
	switch c.Op {
	case zstore.OpCreate, zstore.OpClaim:
		if !slices.Contains(p.refs, c.Node) {
			w.fail("I1: %s makes %s the owner of %s", p.ref, c.Node, k.ID)
		}
		if was := cur.Own.Node; !was.IsZero() && w.members.valid(was) && !slices.Contains(p.refs, was) {
			w.fail("I1: %s claims %s from %s, which is alive", p.ref, k.ID, was)
		} else if q := w.byRef[was]; q != nil && q != p && !q.dead && q.ref == was && q.pausedUntil <= w.now && q.local().Before(q.until) {
			w.fail("I1: %s claims %s from %s, which takes its lease for valid", p.ref, k.ID, was)
		}
		o.committed[k] = append(o.committed[k], next.Own.Node)
	case zstore.OpMove, zstore.OpDelete:
		o.committed[k] = append(o.committed[k], next.Own.Node)
		if c.Op == zstore.OpMove {
			o.commitsMove(p, c)
		}
		fallthrough
	case zstore.OpSave:
		if !slices.Contains(p.refs, c.Own.Node) {
			w.fail("I1: %s by %s overwrites %s of the owner %s", c.Op, p.ref, k.ID, c.Own.Node)
		}
		o.proven[simPlace{p, k}] = w.now
	default:
		w.fail("nothing asks for %s", c.Op)
	}
	if moves && (c.Op != zstore.OpMove || c.Node.IsZero()) {
		o.unmoved[k] = w.now
	}
	if len(o.committed[k]) != int(next.Own.Version) {
		w.fail("I3: version %d of %s is the %dth owner", next.Own.Version, k.ID, len(o.committed[k]))
	}
	if c.Op == zstore.OpDelete {
		for _, l := range o.ofKey[k] {
			l.lost = l.lost || len(l.runs) > 0
		}
		return
	}
	was, is := linesOf(cur.State), linesOf(next.State)
	if len(is) < len(was) || !slices.Equal(was, is[:len(was)]) {
		w.fail("I10: %s of %s by %s loses lines: had %v, has %v", c.Op, k.ID, p.ref, was, is)
	}
	if slices.Contains(is, halfDone) {
		w.fail("M6: %s saves the state of %s that a panic left half done", p.ref, k.ID)
	}
}

// route is told of routes that a node remembers, or tells others.
func (o *simOracle) route(p *simProc, what string, k zmsg.Key, r Route) {
	if r.Version == 0 && r.Owner.IsZero() {
		return
	}
	if !o.knows(k, r) {
		o.w.fail("I3: %s of %s says that %s owns %s since version %d, which nobody has committed", what, p.ref, r.Owner, k.ID, r.Version)
	}
}

// knows reports whether a route was committed.
func (o *simOracle) knows(k zmsg.Key, r Route) bool {
	c := o.committed[k]
	return r.Version > 0 && int(r.Version) <= len(c) && c[r.Version-1] == r.Owner
}

// look looks at what a process remembers.
func (o *simOracle) look(p *simProc) {
	for _, k := range o.keys {
		sh := p.set.shard(k)
		sh.mu.Lock()
		var r Route
		if x := sh.objects[k]; x != nil {
			r = x.entry.Route
		} else {
			r = peekRoute(sh, k)
		}
		sh.mu.Unlock()
		o.route(p, "the memory", k, r)
	}
}

// sends is told of each request that a node sends to another.
func (o *simOracle) sends(p *simProc, to zmsg.NodeRef, e *zmsg.Envelope, m *zmsg.Message) {
	w := o.w
	if a := o.attempt(numberOf(m)); a != nil {
		a.sent++
		a.version = e.Version
	}
	if m.Hops == 0 || m.Hops > 16 || m.Hops > 3 && e.Version <= o.arrivals[simArrival{p, numberOf(m)}].hint {
		w.fail("I8: %s sends %d of %s on hop %d", p.ref, numberOf(m), e.Key.ID, m.Hops)
	}
	if slices.Contains(p.refs, to) {
		w.fail("%s sends %d of %s to itself", p.ref, numberOf(m), e.Key.ID)
	}
	if m.Hops < 2 {
		return
	}
	came := o.arrivals[simArrival{p, numberOf(m)}]
	if e.Version <= came.hint && o.reads[simPlace{p, e.Key}] < came.at {
		w.fail("I8: %s forwards %d of %s, which came with version %d, by version %d, and has not looked at the record", p.ref, numberOf(m), e.Key.ID, came.hint, e.Version)
	}
}

func (o *simOracle) receives(p *simProc, e *zmsg.Envelope, m *zmsg.Message) {
	o.arrivals[simArrival{p, numberOf(m)}] = simCame{o.w.now, e.Version}
}

// begins checks the start of a handler.
func (o *simOracle) begins(p *simProc, c *Context[*testpb.Log], a *simAttempt) *simRun {
	k, version, lines, hops := c.Key(), c.Version(), c.State().Lines, uint32(0)
	if m := c.Message(); m != nil {
		hops = m.Hops
	}
	w := o.w
	r := &simRun{p: p, ref: p.ref, version: version, attempt: a, start: w.now}
	if !w.members.valid(p.ref) {
		w.fail("I4: a handler of %s starts on %s, whose lease is over", k.ID, p.ref)
	}
	rec := w.store.records[k]
	if rec.Own.Node != p.ref || rec.Own.Version != version {
		w.fail("I4: a handler of %s starts on %s as owner since version %d; the owner is %s since %d", k.ID, p.ref, version, rec.Own.Node, rec.Own.Version)
	}
	if o.frozen[c.cell.res] {
		w.fail("D5: a handler of %s starts on %s, which is handing it over", k.ID, p.ref)
	}
	for _, other := range o.running[k] {
		if w.members.valid(other.ref) && other.p.ref == other.ref && !other.p.dead {
			w.fail("I5: a handler of %s starts on %s while one runs on %s", k.ID, p.ref, other.ref)
		}
	}
	if a != nil {
		if a.replies > 0 && a.code != zmsg.CodeOK && a.outcome == zmsg.NotExecuted {
			w.fail("request %d runs on %s, and has ended as not executed", a.seq, p.ref)
		}
		if a.runs++; a.runs > 1 {
			w.fail("request %d runs twice, now on %s", a.seq, p.ref)
		}
		a.ran = r
		o.inOrder(r, hops)
	}
	o.seen(k, lines, "a handler on "+p.ref.String())
	o.saved(r, k, rec.State)
	o.running[k] = append(o.running[k], r)
	return r
}

// inOrder checks that what one client asked for one after the other, and what went the same way, is handled in that order.
func (o *simOracle) inOrder(r *simRun, hops uint32) {
	a := r.attempt
	o.ofCaller(r, hops)
	if a.user == nil || a.op.once || hops > 1 || a.sent != int(hops) || (hops == 0) != (r.p == a.p) { // it went another way before
		return
	}
	s := simStream{a.user, a.at, a.key, r.ref, r.version, a.version, hops}
	if last := o.streams[s]; last != nil && last.seq > a.seq {
		o.w.fail("I12: %s handles request %d of %s behind %d, which %s asked for later", r.p.ref, a.seq, a.key.ID, last.seq, a.user.name)
	}
	o.streams[s] = a
}

// ofCaller checks that what one client asked one node for is handled in that order, however often the object moves meanwhile, as long as
// nothing else happens to it, and nothing is lost on the way.
func (o *simOracle) ofCaller(r *simRun, hops uint32) {
	a := r.attempt
	if a.user == nil || a.op.once || a.sent != int(hops) { // it was sent again
		return
	}
	c := simCaller{a.user, a.at, a.key}
	if last := o.callers[c]; last == nil || last.seq < a.seq {
		o.callers[c] = a
	} else if o.trouble < a.asked && o.unmoved[a.key] < a.asked {
		o.w.fail("I12: %s handles request %d of %s behind %d, which %s asked for later, and the object was only moved", r.p.ref, a.seq, a.key.ID, last.seq, a.user.name)
	}
}

// simCaller is one client, at one node, and an object.
type simCaller struct {
	user *simUser
	at   zmsg.NodeRef
	key  zmsg.Key
}

// simStream is what one client asks one owner for.
type simStream struct {
	user    *simUser
	at      zmsg.NodeRef
	key     zmsg.Key
	owner   zmsg.NodeRef
	version zmsg.RouteVersion
	sent    zmsg.RouteVersion // by which route
	hops    uint32
}

// seen checks a state that somebody sees, who must see everything that was acknowledged before.
func (o *simOracle) seen(k zmsg.Key, lines []string, who string) {
	w := o.w
	o.mark++
	for i, id := range lines {
		l := o.lines[id]
		switch {
		case id == halfDone:
			w.fail("%s sees in %s what a panic left half done", who, k.ID)
		case l == nil || l.key != k:
			w.fail("%s sees %q in %s", who, id, k.ID)
		case l.mark == o.mark:
			w.fail("I7: %s sees %s twice in %s", who, id, k.ID)
		case l.lost:
			w.fail("%s sees %s in %s, which was lost", who, id, k.ID)
		default:
			l.mark, l.pos = o.mark, i
		}
	}
	for _, l := range o.ofKey[k] {
		if l.mark == o.mark || !l.acked || l.lost {
			continue
		}
		if l.durable {
			w.fail("I10: %s does not see %s in %s, which was acknowledged as saved", who, l.id, k.ID)
		}
		if !o.excused(l) {
			w.fail("I10: %s does not see %s in %s, which was acknowledged, and nothing happened to its owner", who, l.id, k.ID)
		}
		l.lost = true
	}
}

// excused reports that what ran may be lost: its node crashed, or lost its lease, or the handler of another request panicked.
func (o *simOracle) excused(l *simLine) bool {
	for _, r := range l.runs {
		if r.p.dead || o.w.members.ended[r.ref] || r.p.ref != r.ref || o.panicked[simPlace{r.p, l.key}] >= r.end {
			return true
		}
	}
	return false
}

// saved checks that nothing runs while what was acknowledged from memory is unsaved for too long.
func (o *simOracle) saved(r *simRun, k zmsg.Key, state []byte) {
	w, p := o.w, r.p
	if w.now-p.pausedUntil < 3*time.Second || r.attempt != nil && r.attempt.op.name == "do" { // work may make a state smaller that cannot be saved
		return
	}
	most := w.cfg.settings.MaxUnsavedAge + 3*time.Second
	var in []string
	for _, l := range o.ofKey[k] {
		if !l.acked || l.lost || len(l.runs) == 0 || l.runs[len(l.runs)-1].p != p || time.Duration(float64(w.now-l.ackedAt)*p.rate) <= most {
			continue
		}
		if o.excused(l) {
			continue
		}
		if in == nil {
			in = linesOf(state)
		}
		if !slices.Contains(in, l.id) {
			w.fail("I10: a handler of %s starts on %s, and %s, acknowledged %v ago, is not saved", k.ID, p.ref, l.id, w.now-l.ackedAt)
		}
	}
}

// handle is what the handlers do: it takes some time, and appends line if there is one.
func (o *simOracle) handle(p *simProc, c *Context[*testpb.Log], a *simAttempt, line string) {
	w, k := o.w, c.Key()
	state := c.State()
	n := len(state.Lines)
	w.log("%s: handles %d of %s under version %d, %d lines", p.ref, a.number(), k.ID, c.Version(), n)
	if a == nil {
		w.fail("%s handles a message that nobody sent", p.ref)
		return
	}
	r := o.begins(p, c, a)
	if w.cfg.handler > 0 && w.chance(0.5) {
		w.busy(p, w.between(0, w.cfg.handler))
	}
	r.end = max(w.now, 1)
	o.running[k] = slices.DeleteFunc(o.running[k], func(x *simRun) bool { return x == r })
	if p.dead {
		return
	}
	if len(state.Lines) != n {
		w.fail("I5: the state of %s was changed while a handler ran on %s", k.ID, p.ref)
	}
	if a.op.name == "delete" {
		w.log("%s: deletes %s", p.ref, k.ID)
		c.Delete()
		return
	}
	if line == "" {
		return
	}
	l := o.lines[line]
	if l.runs = append(l.runs, r); l.lost { // and asked for again
		l.lost, l.acked, l.durable = false, false, false
	}
	state.Lines = append(state.Lines, line)
	if a.save {
		c.Save()
	} else {
		c.Dirty()
	}
}

// panics is told by a handler that is about to panic.
func (o *simOracle) panics(p *simProc, c *Context[*testpb.Log]) {
	a := o.attempt(numberOf(c.Message()))
	o.w.log("%s: panics at %d of %s", p.ref, a.number(), c.Key().ID)
	r := o.begins(p, c, a)
	o.running[c.Key()] = slices.DeleteFunc(o.running[c.Key()], func(x *simRun) bool { return x == r })
	o.panicked[simPlace{p, c.Key()}] = o.w.now
}

func (o *simOracle) loaded(p *simProc, c *Context[*testpb.Log]) {
	o.w.log("%s: has %s in memory, %d lines", p.ref, c.Key().ID, len(c.State().Lines))
}

// ticks is a timer of an object: it appends a line, which counts as acknowledged, unless the object is being given up.
func (o *simOracle) ticks(p *simProc, c *Context[*testpb.Log]) {
	w, k := o.w, c.Key()
	o.timers++
	l := &simLine{id: fmt.Sprintf("t.%d", o.timers), key: k}
	o.lines[l.id] = l
	o.ofKey[k] = append(o.ofKey[k], l)
	w.log("%s: a timer of %s appends %s", p.ref, k.ID, l.id)
	l.runs = append(l.runs, &simRun{p: p, ref: p.ref, version: c.Version(), start: w.now, end: max(w.now, 1)})
	c.State().Lines = append(c.State().Lines, l.id)
	c.Dirty()
	res := c.cell.res
	res.sh.mu.Lock()
	if !res.dropped && res.o.entry.Phase == entry.Active {
		l.acked, l.ackedAt = true, w.now
	}
	res.sh.mu.Unlock()
}

// online is what the game says of who has an object: right or old, or nothing.
func (o *simOracle) online(k zmsg.Key) (Route, error) {
	w := o.w
	if w.chance(0.1) {
		return Route{}, errors.New("the game does not know")
	}
	c := o.committed[k]
	if len(c) == 0 || w.chance(0.5) {
		return Route{}, nil
	}
	v := w.rng.IntN(len(c))
	if c[v].IsZero() {
		return Route{}, nil
	}
	return Route{Owner: c[v], Version: zmsg.RouteVersion(v + 1)}, nil
}

// unloaded is told when an object leaves memory.
func (o *simOracle) unloaded(p *simProc, c *Context[*testpb.Log], why Reason) {
	w, k := o.w, c.Key()
	delete(o.frozen, c.cell.res)
	if p.dead {
		return
	}
	lines := c.State().Lines
	w.log("%s: %s leaves memory: %s, %d lines", p.ref, k.ID, why, len(lines))
	if why != Released && why != Moved || w.store.records[k].Deleted || c.cell.res.deleted.Load() {
		return
	}
	in := linesOf(w.store.records[k].State)
	for _, id := range lines {
		// What a timer changed behind the state that was written is not saved.
		if l := o.lines[id]; !slices.Contains(in, id) && !l.lost && (l.acked || len(l.attempts) > 0) {
			w.fail("I10: %s has released %s, and %s is not saved: had %v, saved %v", p.ref, k.ID, id, lines, in)
			return
		}
	}
}

// died is told when a process has ended: the handlers that ran have no end.
func (o *simOracle) died(p *simProc) {
	for k, l := range o.running {
		o.running[k] = slices.DeleteFunc(l, func(r *simRun) bool { return r.p == p })
	}
	for _, a := range o.attempts[1:] {
		if a.p == p && !a.over {
			a.finish(zmsg.CodeNodeLost, zmsg.Unknown)
		}
	}
}

// answers is told of each success when the node that ran it tells it.
func (o *simOracle) answers(p *simProc, a *simAttempt) {
	if a == nil || a.durable || a.save || a.ran == nil || a.ran.p != p || a.answered {
		return
	}
	a.answered = true
	if w := o.w; (a.ran.ref != p.ref || !w.members.valid(p.ref)) && o.proven[simPlace{p, a.key}] < a.ran.end {
		w.fail("I4: %s acknowledges %d of %s from memory, and its lease is over", p.ref, a.seq, a.key.ID)
	}
}

// probe has every key asked for at every node, until it answers.
func (o *simOracle) probe(limit time.Duration) {
	w := o.w
	end := w.now + limit
	left := 0
	for _, n := range w.nodes {
		for _, k := range o.keys {
			left++
			var try func()
			try = func() {
				w.ask(n.proc, simOp{name: "get"}, k, nil, func(a *simAttempt) {
					switch {
					case a.code == zmsg.CodeOK:
						left--
					case w.now >= end:
					case (a.code == zmsg.CodeNotFound || a.code == zmsg.CodeNotInServer) && !w.cfg.onDemand:
						w.ask(w.nodes[0].proc, simOp{name: "own"}, k, nil, func(*simAttempt) { w.after(200*time.Millisecond, nil, try) })
					default:
						w.after(200*time.Millisecond, nil, try)
					}
				})
			}
			w.after(0, nil, try)
		}
	}
	for left > 0 && w.now < end && w.broken == "" {
		w.run(w.now + 100*time.Millisecond)
	}
	if left > 0 {
		w.fail("liveness: %d of %d do not get an answer within %v, though nothing goes wrong any more", left, len(w.nodes)*len(o.keys), limit)
	}
}

// final looks at what the records hold at last.
func (o *simOracle) final() {
	w := o.w
	for _, k := range o.keys {
		lines := linesOf(w.store.records[k].State)
		o.seen(k, lines, "the last record")
		for _, l := range o.ofKey[k] {
			if b := l.behind; b != nil && b.mark == o.mark && l.mark == o.mark && b.pos > l.pos {
				w.fail("I12: %s stands before %s in %s, which was acknowledged before the other was asked for", l.id, b.id, k.ID)
			}
		}
	}
}

// empty looks at what a closed process has left.
func (o *simOracle) empty(p *simProc) {
	w := o.w
	for i := range p.set.shards {
		if n := len(p.set.shards[i].objects); n > 0 {
			w.fail("leak: %s has closed, and has %d objects", p.ref, n)
		}
	}
	if n, m := p.set.kept.Load(), p.set.residents.Load(); n != 0 || m != 0 {
		w.fail("leak: %s has closed, and counts %d calls that wait and %d objects in memory", p.ref, n, m)
	}
	if n := p.set.expected.Load(); n != 0 {
		w.fail("leak: %s has closed, and expects %d objects", p.ref, n)
	}
	if n := p.set.keptBytes.Load(); n != 0 {
		w.fail("leak: %s has closed, and counts %d bytes that wait", p.ref, n)
	}
	o.unended(p)
	if n := p.group.Len(); n > 0 {
		w.fail("leak: %s has closed, and has %d actors", p.ref, n)
	}
	for _, a := range o.attempts[1:] {
		if a.p == p && a.replies == 0 && a.wants && a.begun {
			w.fail("I6: %s has closed, and request %d (%s) has not ended", p.ref, a.seq, a.op.name)
		}
	}
}

// rest looks whether anything is left when all processes are closed.
func (o *simOracle) rest() {
	w := o.w
	for _, p := range w.procs {
		if !p.dead {
			w.fail("liveness: %s does not close", p.ref)
		}
	}
	if w.open != 0 {
		w.fail("leak: links wait for %d requests", w.open)
	}
}

// peekRoute is the route to an object at rest.
func peekRoute(sh *shard, k zmsg.Key) Route {
	if s := sh.routes.find(k); s != nil {
		return Route{Owner: sh.routes.nodes.ref(s.owner), Version: s.version}
	}
	return Route{}
}
