package zrouter

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zactor"
	"zgame/zmsg"
	"zgame/zrouter/internal/entry"
	"zgame/zrouter/internal/testpb"
	"zgame/zstore"
)

// simOp is something that a client asks for.
type simOp struct {
	name    string
	weight  int
	appends bool // a line
	durable bool // its success says that the line is saved
	save    bool // the handler asks for that
	once    bool // it is asked for again until it has succeeded
	client  bool // as a client's gate does it, by session and seq
}

var simOps = []simOp{
	{name: "append", weight: 25, appends: true},
	{name: "keep", weight: 20, appends: true, durable: true},
	{name: "append", weight: 6, appends: true, save: true},
	{name: "once", weight: 8, appends: true, once: true},
	{name: "once keep", weight: 8, appends: true, once: true, durable: true},
	{name: "client", weight: 5, appends: true, once: true, client: true},
	{name: "client", weight: 3, appends: true, once: true, client: true, save: true},
	{name: "client keep", weight: 5, appends: true, once: true, client: true, durable: true},
	{name: "note", weight: 8, appends: true},
	{name: "get", weight: 10},
	{name: "do", weight: 4, appends: true},
	{name: "look", weight: 5},
	{name: "own", weight: 3},
	{name: "save", weight: 2},
	{name: "delete"},
}

// simAttempt is one request.
type simAttempt struct {
	w       *simWorld
	seq     uint64
	op      simOp
	p       *simProc
	key     zmsg.Key
	line    *simLine
	durable bool
	save    bool
	wants   bool // an outcome
	begun   bool
	asked   time.Duration
	user    *simUser
	at      zmsg.NodeRef      // p, when it was asked for
	sent    int               // how often from one node to another
	version zmsg.RouteVersion // of the route that it was sent by last
	then    func(a *simAttempt)

	over     bool // for who asked: it has ended, or its deadline has passed, or its node has died
	replies  int
	code     zmsg.Code
	outcome  zmsg.Outcome
	runs     int
	ran      *simRun
	answered bool // the node that ran it has told its success

	told zmsg.GiveUp
	arg  uint64
}

// numberOf returns the number of the attempt that m is; a client's has a seq of its own.
func numberOf(m *zmsg.Message) uint64 {
	if m.Client {
		return uint64(m.Session.Gen)
	}
	return m.Seq
}

func (a *simAttempt) number() uint64 {
	if a == nil {
		return 0
	}
	return a.seq
}

// Reply implements zmsg.Replier.
func (a *simAttempt) Reply(token uint64, r *zmsg.Reply) {
	if token != a.seq {
		a.w.fail("I6: request %d gets the outcome of %d", a.seq, token)
		return
	}
	a.end(r.Code, r.Outcome, r.Text, Route{Owner: r.Owner, Version: r.Version})
}

// end takes the outcome.
func (a *simAttempt) end(code zmsg.Code, outcome zmsg.Outcome, text string, route Route) {
	w := a.w
	if a.p.dead {
		return
	}
	w.log("%s: request %d ends: %s %s %q, owner %s since %d", a.p.ref, a.seq, code, outcome, text, route.Owner, route.Version)
	if a.replies++; a.replies > 1 {
		w.fail("I6: request %d ends twice", a.seq)
		return
	}
	w.oracle.route(a.p, "an answer", a.key, route)
	switch {
	case code == zmsg.CodeOK:
		w.oracle.answers(a.p, a)
		a.succeeded()
	case outcome == zmsg.NotExecuted && a.runs > 0:
		w.fail("request %d ends as not executed, and has run on %s", a.seq, a.ran.ref)
	}
	if !a.over {
		a.finish(code, outcome)
	} else if a.code != zmsg.CodeOK && code != zmsg.CodeOK && outcome == zmsg.NotExecuted {
		a.code, a.outcome = code, outcome
	}
}

func (a *simAttempt) succeeded() {
	l := a.line
	if l == nil {
		return
	}
	w := a.w
	if len(l.runs) == 0 {
		w.fail("request %d succeeds, and nothing has run", a.seq)
	}
	if !l.acked {
		l.acked, l.ackedAt = true, w.now
	}
	if l.lost {
		return // deleted meanwhile
	}
	if a.durable || a.save {
		l.durable = true
		if !slices.Contains(linesOf(w.store.records[l.key].State), l.id) {
			w.fail("I10: request %d succeeds as saved, and %s is not in the record of %s", a.seq, l.id, l.key.ID)
		}
	}
}

// finish tells who asked.
func (a *simAttempt) finish(code zmsg.Code, outcome zmsg.Outcome) {
	a.over, a.code, a.outcome = true, code, outcome
	if then := a.then; then != nil {
		a.then = nil
		then(a)
	}
}

// OnGiveUp implements zmsg.Waiter.
func (a *simAttempt) OnGiveUp(_ uint64, g zmsg.GiveUp, arg uint64) bool {
	if a.replies > 0 {
		return false
	}
	if a.over {
		g.GaveUp(arg)
		return true
	}
	a.told, a.arg = g, arg
	return true
}

// Forget implements zmsg.Waiter.
func (a *simAttempt) Forget(_ uint64, g zmsg.GiveUp) {
	if a.told == g {
		a.told = nil
	}
}

// ask asks a process for something; then is told how it ended for who asked.
func (w *simWorld) ask(p *simProc, op simOp, k zmsg.Key, l *simLine, then func(a *simAttempt)) *simAttempt {
	a := &simAttempt{
		w: w, seq: uint64(len(w.oracle.attempts)), op: op, p: p, key: k, line: l, durable: op.durable || op.appends && w.cfg.settings.Durable == On, save: op.save,
		wants: op.name != "note", then: then,
	}
	w.oracle.attempts = append(w.oracle.attempts, a)
	if l != nil {
		l.attempts = append(l.attempts, a)
	}
	// What a client asks for happens on its process.
	w.after(0, p, func() { a.begin() })
	if p.dead {
		a.finish(zmsg.CodeNodeLost, zmsg.Unknown)
	}
	return a
}

func (a *simAttempt) begin() {
	a.begun, a.at, a.asked = true, a.p.ref, a.w.now
	w, p := a.w, a.p
	line := ""
	if a.line != nil {
		line = a.line.id
	}
	w.log("%s: request %d: %s of %s %s", p.ref, a.seq, a.op.name, a.key.ID, line)
	var req proto.Message
	switch a.op.name {
	case "append", "once", "client":
		req = &testpb.Append{Log: a.key.ID, Line: line}
	case "keep", "once keep", "client keep":
		req = &testpb.Keep{Log: a.key.ID, Line: line}
	case "note":
		req = &testpb.Note{Log: a.key.ID, Line: line}
	case "delete":
		req = &testpb.Keep{Log: a.key.ID}
	case "get":
		req = &testpb.Get{Log: a.key.ID}
	case "boom":
		req = &testpb.Boom{Log: a.key.ID}
	default:
		a.beginWithout(line)
		return
	}
	id, _ := zmsg.IDOf(req)
	m := zmsg.NewMessage(id)
	m.Value, m.Seq = req, a.seq
	if a.wants {
		m.SetReplier(a, a.seq)
	}
	switch {
	case a.op.client:
		m.Client, m.Session, m.Seq, m.Resent = true, zmsg.SessionRef{Gate: p.ref, ID: a.line.session, Gen: uint32(a.seq)}, a.line.seq, a.line.attempts[0] != a
	case a.op.once:
		m.Once = line
	}
	if a.wants && w.chance(0.4) && !w.calm {
		d := w.between(20*time.Millisecond, 3*time.Second)
		m.Deadline = p.local().Add(d)
		w.after(p.world(d), p, a.giveUp)
	}
	if err := p.set.DeliverObject(a.key, m); err != nil {
		m.TakeReplier()
		m.Release()
		r := zmsg.ErrorReply(err)
		a.end(r.Code, r.Outcome, r.Text, Route{})
		return
	}
	if !a.wants {
		a.finish(zmsg.CodeOK, zmsg.Executed)
	}
}

// giveUp is when the deadline has passed.
func (a *simAttempt) giveUp() {
	if a.over {
		return
	}
	a.w.log("%s: request %d is given up", a.p.ref, a.seq)
	if g := a.told; g != nil {
		a.told = nil
		g.GaveUp(a.arg)
	}
	a.finish(zmsg.CodeTimeout, zmsg.Unknown)
}

// beginWithout asks for what needs no message.
func (a *simAttempt) beginWithout(line string) {
	p := a.p
	var req entry.Req
	var work func(*zactor.Context)
	var first func(zmsg.Key) (zstore.Write, error)
	switch a.op.name {
	case "look":
		req.Look = true
	case "own":
		req.Own, req.Make = true, true
		first = func(zmsg.Key) (zstore.Write, error) { return zstore.Write{Schema: 1}, nil }
	case "do":
		req.Own, req.Work, req.Durable = true, true, a.durable
		work = func(zc *zactor.Context) {
			c := zc.Actor().(*cell[*testpb.Log])
			c.ctx = Context[*testpb.Log]{zc, c}
			a.w.oracle.handle(p, &c.ctx, a, line)
		}
	case "save":
		req.Own, req.Work, req.Durable = true, true, true
		work = func(*zactor.Context) {}
	}
	if err := p.set.check(a.key); err != nil {
		e := zmsg.ErrorReply(err)
		a.end(e.Code, e.Outcome, e.Text, Route{})
		return
	}
	p.set.begin(a.key, order{req: req, work: work, make: first}, func(r Route, err error) {
		if err == nil {
			a.end(zmsg.CodeOK, zmsg.Executed, "", r)
			return
		}
		e := zmsg.ErrorReply(err)
		a.end(e.Code, e.Outcome, e.Text, r)
	})
}

// simUser is a client.
type simUser struct {
	w       *simWorld
	name    string
	session uint64
	node    int
	pace    time.Duration
	pipes   float64 // how likely it does not wait
	n       int
	last    map[zmsg.Key]*simLine // acknowledged, in each key
}

func (w *simWorld) startClient(i int) {
	u := &simUser{
		w: w, name: fmt.Sprintf("u%d", i), session: uint64(i + 1), node: w.rng.IntN(len(w.nodes)), pace: w.between(50*time.Millisecond, 700*time.Millisecond),
		last: make(map[zmsg.Key]*simLine),
	}
	if w.chance(0.3) {
		u.pipes = 0.5
	}
	w.after(w.between(0, time.Second), nil, u.next)
}

// proc is where the client asks: mostly always the same node.
func (u *simUser) proc() *simProc {
	n := u.node
	if u.w.chance(0.1) {
		n = u.w.rng.IntN(len(u.w.nodes))
	}
	return u.w.nodes[n].proc
}

// next asks for the next thing.
func (u *simUser) next() {
	w := u.w
	if w.quiet {
		return
	}
	p := u.proc()
	if p == nil || p.dead {
		w.after(u.pace, nil, u.next)
		return
	}
	keys := w.oracle.keys
	k := keys[w.rng.IntN(len(keys))]
	op := u.pick()
	switch {
	case w.chance(w.cfg.panics):
		op = simOp{name: "boom"}
	case w.chance(w.cfg.deletes):
		op = simOp{name: "delete"}
	case !w.cfg.onDemand && w.chance(0.2):
		op = simOp{name: "own"}
	case op.name == "look" && w.chance(0.3):
		k = onlyLooked
	}
	if !p.node.hosts && (op.name == "do" || op.name == "own" || op.name == "save") {
		op = simOp{name: "get"}
	}
	var l *simLine
	if op.appends {
		u.n++
		l = &simLine{id: fmt.Sprintf("%s.%d", u.name, u.n), key: k, behind: u.last[k], session: u.session, seq: uint64(u.n)}
		w.oracle.lines[l.id] = l
		w.oracle.ofKey[k] = append(w.oracle.ofKey[k], l)
	}
	waits := !w.chance(u.pipes)
	tries := 0
	var then func(a *simAttempt)
	then = func(a *simAttempt) {
		switch {
		case a.code == zmsg.CodeOK && l != nil && op.name != "note":
			u.last[k] = l
		case op.once && a.code != zmsg.CodeOK && tries < 5 && !w.quiet:
			tries++
			w.after(w.between(20*time.Millisecond, time.Second), nil, func() {
				if p := u.proc(); p != nil && !p.dead && !w.quiet {
					w.ask(p, op, k, l, then)
				} else if waits {
					w.after(u.pace, nil, u.next)
				}
			})
			return
		}
		if waits {
			w.after(w.between(0, 2*u.pace), nil, u.next)
		}
	}
	w.ask(p, op, k, l, then).user = u
	if !waits {
		w.after(w.between(0, u.pace), nil, u.next)
	}
}

func (u *simUser) pick() simOp {
	all := 0
	for i := range simOps {
		all += simOps[i].weight
	}
	n := u.w.rng.IntN(all)
	for _, op := range simOps {
		if n -= op.weight; n < 0 {
			return op
		}
	}
	return simOps[0]
}
