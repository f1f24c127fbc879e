package zactor

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
)

// replayer is the tap of a replay: it gives the actor the inputs of a record one by one, and stands for all others. Everything
// runs on the goroutine of Replay.
type replayer struct {
	rec    *Record
	report *Report
	clock  *replayClock
	g      *Group
	m      *Manual
	ref    Ref
	tapped bool // the actor has been made; further ones are its children

	next    int    // the next input of the record
	resumed uint64 // the highest recordedOp.Resumed that has been served
	cur     playing

	kept    map[opID]keptFuture // Thens and Asyncs whose outcome has not come
	watches map[opID]*watch
	names   map[zmsg.Address]string
}

// playing is an input that the actor has been given.
type playing struct {
	in     *recordedInput // nil: none
	line   int            // in the report's Turns
	begun  bool           // code of the actor has run
	nested bool           // within a Call of a reentrant actor
}

type keptFuture struct {
	f     *future
	token uint64
}

// replayClock stands at the time of the input. What it is asked to call it never calls: ticks are inputs.
type replayClock struct{ now time.Time }

func (k *replayClock) Now() time.Time                             { return k.now }
func (k *replayClock) AfterFunc(time.Duration, func()) ClockTimer { return neverTimer{} }

type neverTimer struct{}

func (neverTimer) Stop() bool               { return true }
func (neverTimer) Reset(time.Duration) bool { return true }

// maxForcedID bounds the ids that a replay gives to actors as they were: the table of ids grows with the largest.
const maxForcedID = 1 << 24

func newReplayer(rec *Record) *replayer {
	return &replayer{
		rec: rec, report: &Report{Header: rec.Header}, clock: &replayClock{now: rec.Header.At},
		kept: make(map[opID]keptFuture), watches: make(map[opID]*watch), names: make(map[zmsg.Address]string),
	}
}

func (p *replayer) run(factory func() Actor, o ReplayOptions) (*Report, error) {
	h, inputs := &p.rec.Header, p.rec.inputs
	if len(inputs) > 0 {
		p.clock.now = inputs[0].At
	}
	g, m, err := NewManual(Config{
		Node: h.Actor.Node, Logger: o.Logger, Middleware: o.Middleware, Clock: p.clock, Sessions: replaySessions{p},
		Policy: Policy{Decide: func(error) Directive { return Resume }},
	})
	if err != nil {
		return nil, err
	}
	p.g, p.m, g.replay = g, m, p
	p.collectNames()
	p.forceID(h.Actor.Actor)
	if len(inputs) > 0 && inputs[0].Kind == inputStart {
		p.take()
	}
	p.ref, err = g.Spawn(h.Name, factory, WithType(h.Type), Private())
	p.cur = playing{}
	switch {
	case err != nil && p.report.Panic != nil:
		return p.report, nil // as OnStart of the record may have
	case err != nil:
		return nil, err
	}
	if h.Base == BaseSnapshot {
		if err := p.restore(); err != nil {
			return nil, err
		}
	}
	for p.next < len(inputs) && p.report.Stopped == "" {
		p.feed()
	}
	return p.report, nil
}

func (p *replayer) restore() (err error) {
	a := p.ref.cell.actor
	s, ok := a.(Snapshotter)
	if !ok {
		return fmt.Errorf("zactor: the record begins with a snapshot, and a %T is no zactor.Snapshotter", a)
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("zactor: Restore of the record's snapshot panicked: %v", v)
		}
	}()
	if err := s.Restore(p.rec.Header.State); err != nil {
		return fmt.Errorf("zactor: Restore of the record's snapshot: %w", err)
	}
	return nil
}

// collectNames learns the names of actors of the record, so that replay and record speak of them alike.
func (p *replayer) collectNames() {
	for i := range p.rec.inputs {
		in := &p.rec.inputs[i]
		if in.Head != nil && in.Head.Name != "" {
			p.names[in.Head.From] = in.Head.Name
		}
		for _, op := range in.Did {
			if op.Name != "" && !op.To.IsZero() { // an object has no address
				p.names[op.To] = op.Name
			}
		}
	}
}

// named returns the ref of an actor that the record's node may have had.
func (p *replayer) named(name string) Ref {
	f := &far{g: p.g, name: name}
	for addr, n := range p.names {
		if n == name {
			f.addr = addr
		}
	}
	return Ref{far: f}
}

// forceID makes the next actor's id the recorded one.
func (p *replayer) forceID(id uint64) {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	if id > p.g.table.next && id < maxForcedID {
		p.g.table.next = id - 1
	}
}

// tapFor returns the tap of an actor of the replay's group: the first one's, the others only stand there.
func (p *replayer) tapFor() tap {
	if p.tapped {
		return nil
	}
	p.tapped = true
	return p
}

// take begins the next input.
func (p *replayer) take() *recordedInput {
	in := &p.rec.inputs[p.next]
	p.next++
	p.clock.now = in.At
	p.report.Turns = append(p.report.Turns, ReplayedTurn{Turn: in.Turn, Input: describeInput(in)})
	p.cur = playing{in: in, line: len(p.report.Turns) - 1, nested: p.cur.in != nil}
	return in
}

// note adds a line to the turn.
func (p *replayer) note(format string, args ...any) {
	if p.cur.in != nil {
		t := &p.report.Turns[p.cur.line]
		t.Did = append(t.Did, fmt.Sprintf(format, args...))
	}
}

// differs tells of another way than the record's.
func (p *replayer) differs(format string, args ...any) {
	if p.cur.in != nil {
		t := &p.report.Turns[p.cur.line]
		t.Differs = append(t.Differs, fmt.Sprintf(format, args...))
	}
}

// feed gives the actor its next input, and lets it handle it.
func (p *replayer) feed() {
	before := p.cur
	in := p.take()
	defer func() { p.cur = before }()
	if why := in.missing(); why != "" {
		p.report.Stopped = fmt.Sprintf("input %d is not in the record: %s", in.Turn, why)
		return
	}
	c := p.ref.cell
	if c.reason() != 0 {
		p.report.Stopped = fmt.Sprintf("the actor has stopped itself before input %d", in.Turn)
		return
	}
	if !p.give(in) {
		return
	}
	if p.cur.nested {
		c.step(p.m) // in the middle of a step, where the Manual does not know of it
	} else {
		p.m.Step(p.ref)
	}
	last := p.next == len(p.rec.inputs)
	panicked := p.report.Turns[p.cur.line].Panic != ""
	switch {
	case !p.cur.begun:
		p.differs("no code of the actor ran for it")
	case panicked && in.Panic == "" && !last:
		p.report.Stopped = fmt.Sprintf("the actor panics at input %d, before the record does", in.Turn)
	case panicked && !last:
		p.report.Panic, p.report.Same = nil, false // the actor went on then too
	case !panicked && in.Panic != "" && !last:
		p.differs("the record has a panic: %s", in.Panic)
	}
}

// missing says why the input cannot be given to an actor, "" if it can.
func (in *recordedInput) missing() string {
	switch {
	case in.Missing != "":
		return in.Missing
	case in.Reply != nil:
		return in.Reply.Missing
	case in.Result != nil && in.Result.Form == formOpaque:
		return fmt.Sprintf("the result of Async is opaque: a %s is no protobuf message, no encoding.BinaryMarshaler, and does not survive JSON", in.Result.Type)
	default:
		return ""
	}
}

// give puts the input where the actor finds it. It reports false, after saying why, when there is nothing that would take it.
func (p *replayer) give(in *recordedInput) bool {
	c := p.ref.cell
	switch in.Kind {
	case inputMessage:
		m := p.build(in)
		if err := c.pushControl(&item{msg: m, id: m.ID}); err != nil {
			p.differs("%v", err)
			return false
		}
	case inputThen, inputAsync:
		k, ok := p.kept[in.Of]
		if !ok {
			return p.lost(in, "what it is the outcome of was begun")
		}
		delete(p.kept, in.Of)
		var r zmsg.Reply
		if in.Reply != nil {
			r = in.Reply.reply()
		}
		k.f.Reply(k.token, &r)
	case inputTimer:
		t := p.timerOf(in)
		if t == nil {
			return p.lost(in, "the timer was set")
		}
		_ = c.pushControl(&item{kind: itemTimer, value: t, token: t.gen}) // refused by nobody: the actor is there
	case inputDown:
		w := p.watches[in.Of]
		if w == nil {
			return p.lost(in, "the watch was begun")
		}
		delete(p.watches, in.Of)
		p.remove(w.of.cell)
		w.down(in.Reason)
	case inputEscalation:
		var child Ref
		if in.Child != nil {
			child = Ref{far: &far{g: p.g, addr: *in.Child, name: in.Name}}
		}
		c.pushLane(escalation{&EscalatedError{Child: child, Cause: errors.New(in.Text)}, c.epoch.Load()})
	case inputStart:
		p.differs("left out: it is not the first input")
		return false
	}
	return true
}

// lost tells of an input that belongs to something which this run has not begun.
func (p *replayer) lost(in *recordedInput, what string) bool {
	if h := &p.rec.Header; h.Base != BaseStart && in.Of.turn != 0 && in.Of.turn <= h.Dropped {
		p.differs("left out: %s in turn %d, before the record", what, in.Of.turn)
	} else {
		p.differs("left out: in the record %s in turn %d, in this run it was not", what, in.Of.turn)
	}
	return false
}

func (p *replayer) timerOf(in *recordedInput) *timer {
	x := p.ref.cell.more()
	for t := x.timers.first; t != nil; t = t.next {
		if t.op == in.Of {
			return t
		}
	}
	if in.Key != "" {
		return x.timers.keys[in.Key] // OnStart, or another turn, has set it again
	}
	return nil
}

// build makes the message of the input.
func (p *replayer) build(in *recordedInput) *zmsg.Message {
	m := zmsg.NewMessage(in.ID)
	m.BorrowBody(append([]byte{}, in.Body...)) // not nil: there is a body, if an empty one
	h := in.Head
	if h == nil {
		return m
	}
	m.From, m.User, m.Session, m.Client, m.Seq = h.From, h.User, h.Session, h.Client, h.Seq
	m.Trace.ID, m.Chain, m.Hops, m.Once = h.Trace, h.Chain, h.Hops, h.Once
	if h.LeftNs > 0 {
		m.Deadline = in.At.Add(time.Duration(h.LeftNs))
	}
	if h.Wants {
		m.SetReplier(replayReplier{p}, 1)
	}
	return m
}

// replayReplier takes the actor's replies.
type replayReplier struct{ p *replayer }

func (r replayReplier) Reply(_ uint64, reply *zmsg.Reply) { r.p.note("reply %s", replyText(reply)) }

// replaySessions takes what the actor sends to clients past its Context, by Group.Sessions.
type replaySessions struct{ p *replayer }

func (s replaySessions) note(what string, to zmsg.SessionRef, p *zmsg.Push) error {
	what = fmt.Sprintf("sessions: %s %d", what, to.ID)
	if p != nil {
		what += " " + messageText(p.Value)
	}
	s.p.note("%s", what)
	return nil
}

func (s replaySessions) Push(to zmsg.SessionRef, p *zmsg.Push) error { return s.note("push", to, p) }

func (s replaySessions) PushMany(to []zmsg.SessionRef, p *zmsg.Push) error {
	return s.note(fmt.Sprintf("push to %d:", len(to)), zmsg.SessionRef{}, p)
}

func (s replaySessions) Publish(group string, p *zmsg.Push) error {
	return s.note("publish "+group, zmsg.SessionRef{}, p)
}

func (s replaySessions) Join(r zmsg.SessionRef, _ string) error  { return s.note("join", r, nil) }
func (s replaySessions) Leave(r zmsg.SessionRef, _ string) error { return s.note("leave", r, nil) }

func (s replaySessions) Kick(r zmsg.SessionRef, _ uint32, _ string) error {
	return s.note("kick", r, nil)
}

func (s replaySessions) Watch(r zmsg.SessionRef, _ uint64) error { return s.note("watch", r, nil) }

func (s replaySessions) Unwatch(r zmsg.SessionRef, _ uint64) error { return s.note("unwatch", r, nil) }

func (s replaySessions) Route(r zmsg.SessionRef, _ *zmsg.SessionRoute) error {
	return s.note("route", r, nil)
}

// begin is the beginning of a turn in the actor.
func (p *replayer) begin(x *Context) {
	p.cur.begun = true
	x.log = nil
	if p.cur.in != nil {
		in := *p.cur.in
		in.counts = [opKinds]uint16{}
		x.log = &in
	}
}

func (p *replayer) created(c *cell)                         { c.more().seed = max(1, p.rec.Header.Seed) }
func (p *replayer) started(x *Context)                      { p.begin(x) }
func (p *replayer) message(x *Context, _ *Handler)          { p.begin(x) }
func (p *replayer) outcome(x *Context, _ *future)           { p.begin(x) }
func (p *replayer) down(x *Context, _ downItem)             { p.begin(x) }
func (p *replayer) escalated(x *Context, _ *EscalatedError) { p.begin(x) }

func (p *replayer) tick(x *Context, t *timer) {
	p.begin(x)
	if x.log != nil {
		t.setSince(time.Duration(x.log.LateNs))
	}
}

func (p *replayer) crashed(_ *Context, k *crash) {
	h, r := &p.rec.Header, p.report
	r.Panic = &ReplayPanic{Value: panicText(k.value), Stack: string(k.stack)}
	r.Panic.Frame, r.Panic.Line = panicFrame(k.stack)
	// The compiler names functions within others by where it has put them; lines move when code is changed.
	r.Same = r.Panic.Value == h.Panic && (r.Panic.Frame == h.Frame || r.Panic.Line == h.Line)
	if p.cur.in != nil {
		r.Turns[p.cur.line].Panic = r.Panic.Value
	}
}

// count names the next doing of the turn, and finds what the record has of it.
func (p *replayer) count(in *recordedInput, k opKind) (opID, *recordedOp) {
	if in == nil {
		return opID{}, nil
	}
	id := in.count(k)
	return id, in.did(id)
}

// request notes a request and compares it with the one of the record.
func (p *replayer) request(in *recordedInput, k opKind, to Ref, req proto.Message) (opID, *recordedOp) {
	id, op := p.count(in, k)
	what := fmt.Sprintf("%s %s %s", opNames[k], p.nameOf(to), messageText(req))
	if op == nil {
		p.note("%s", what)
		p.differs("the record has no %s number %d in this turn: no outcome", opNames[k], id.n)
		return id, nil
	}
	if op.Reply != nil {
		what += " -> " + replyText(new(op.Reply.reply()))
	}
	p.note("%s", what)
	asked, _ := zmsg.IDOf(req)
	sum, _ := sumOf(nil, req)
	switch {
	case asked != op.ID:
		p.differs("the record has a %s of %s here", opNames[k], typeName(op.ID))
	case !p.same(to, op):
		p.differs("the record has a %s to %s here", opNames[k], p.text(op.To, op.Name))
	case sum != op.Sum:
		p.differs("the record has another content in this %s", opNames[k])
	}
	return id, op
}

func (p *replayer) same(to Ref, op *recordedOp) bool {
	if name := to.name(); name != "" && name == op.Name {
		return true
	}
	return to.Address() == op.To && (to.far == nil || !to.far.object)
}

func (p *replayer) nameOf(to Ref) string {
	if to.far != nil && to.far.byID {
		return "(by id)"
	}
	return p.text(to.Address(), to.name())
}

func (p *replayer) text(addr zmsg.Address, name string) string {
	switch {
	case name != "":
		return name
	case p.names[addr] != "":
		return p.names[addr]
	case addr.IsZero():
		return "nobody"
	default:
		return addr.String()
	}
}

var errNoOutcome error = &zmsg.Error{Code: zmsg.CodeUnavailable, Outcome: zmsg.Unknown, Text: "a replay: the record has no outcome of this request"}

func (p *replayer) call(x *Context, to Ref, req proto.Message) (*future, error) {
	in := x.log
	_, op := p.request(in, opCall, to, req)
	if op == nil {
		return nil, errNoOutcome
	}
	for op.Until > 0 && p.next < len(p.rec.inputs) && p.rec.inputs[p.next].Turn <= op.Until && p.report.Stopped == "" {
		p.feed() // of a reentrant actor, which went on meanwhile
	}
	if op.Resumed < p.resumed {
		p.differs("in the record this Call came back before others that it waits for here: a replay runs the handlers of a reentrant actor within each other")
	}
	p.resumed = max(p.resumed, op.Resumed)
	p.clock.now = in.At
	if !op.At.IsZero() {
		p.clock.now, x.now = op.At, op.At
	}
	return p.answer(op)
}

func (p *replayer) ask(_ context.Context, to Ref, req proto.Message, t *turnContext) (*future, error) {
	_, op := p.request(t.log, opAsk, to, req)
	if op == nil {
		return nil, errNoOutcome
	}
	return p.answer(op)
}

// answer makes a future that has its outcome.
func (p *replayer) answer(op *recordedOp) (*future, error) {
	switch {
	case op.Err != nil:
		return nil, op.Err.err()
	case op.Reply == nil:
		return nil, errNoOutcome
	case op.Reply.Missing != "":
		p.report.Stopped = "an answer is not in the record: " + op.Reply.Missing
		return nil, errNoOutcome
	}
	f := p.g.futures.get()
	f.close(f.arm(1<<63 - 1))
	f.reply = op.Reply.reply()
	return f, nil
}

func (p *replayer) then(x *Context, f *future, token uint64, to Ref, req proto.Message) bool {
	f.op, _ = p.request(x.log, opThen, to, req)
	p.kept[f.op] = keptFuture{f, token}
	return true
}

func (p *replayer) async(x *Context, f *future, token uint64, _ func() error) error {
	id, op := p.count(x.log, opAsync)
	p.note("async")
	if op != nil && op.Err != nil {
		return op.Err.err()
	}
	f.op = id
	p.kept[id] = keptFuture{f, token}
	return nil
}

func (p *replayer) result(x *Context, result any, err *error) {
	if x.log == nil || x.log.Result == nil {
		return
	}
	if fault := decodeResult(x.log.Result, reflect.ValueOf(result).Elem()); fault != nil {
		p.report.Stopped = fmt.Sprintf("the result of Async in input %d does not fit: %v", x.log.Turn, fault)
	}
	*err = x.log.Result.Err.err()
}

func (p *replayer) effect(x *Context, k opKind, e effect, _ func() error) error {
	_, op := p.count(x.log, k)
	what := opNames[k]
	if !e.to.IsZero() {
		what += " " + p.nameOf(e.to)
	}
	if !e.session.IsZero() {
		what += fmt.Sprintf(" session %d", e.session.ID)
	}
	if e.others > 0 {
		what += fmt.Sprintf(" and %d more", e.others)
	}
	if e.text != "" {
		what += " " + e.text
	}
	if e.msg != nil {
		what += " " + messageText(e.msg)
	}
	if op != nil && op.Err != nil {
		p.note("%s -> %s", what, op.Err.Text)
		return op.Err.err()
	}
	p.note("%s", what)
	return nil
}

// spawn lets a child stand there: it has the recorded id and handles nothing.
func (p *replayer) spawn(x *Context, name string, _ func() (Ref, error)) (Ref, error) {
	_, op := p.count(x.log, opSpawn)
	p.note("spawn %s", name)
	switch {
	case op == nil:
		p.differs("the record has no such spawn in this turn")
	case op.Err != nil:
		return Ref{}, op.Err.err()
	default:
		p.forceID(op.To.Actor)
		p.g.mu.RLock()
		before := p.g.names[name]
		p.g.mu.RUnlock()
		p.remove(before) // nobody told of its end
	}
	return p.g.spawn(x.cell, name, func() Actor { return standIn{} }, []SpawnOption{Private()})
}

// remove ends an actor that stands there: it has ended in the record.
func (p *replayer) remove(c *cell) {
	if c == nil || c == p.ref.cell {
		return
	}
	if _, is := c.actor.(standIn); !is {
		return
	}
	c.stop(StopRequested)
	p.m.Step(Ref{cell: c})
}

// standIn is an actor that handles nothing.
type standIn struct{}

func (standIn) Handlers() []Handler { return nil }

func (p *replayer) timer(x *Context) opID {
	id, _ := p.count(x.log, opTimer)
	return id
}

func (p *replayer) watch(x *Context, w *watch) bool {
	w.op, _ = p.count(x.log, opWatch)
	p.watches[w.op] = w
	if c := w.of.cell; c != nil {
		c.more() // where the end of a watch looks
	}
	p.note("watch %s", p.nameOf(w.of))
	return true
}

// send takes what the actor sends past its Context.
func (p *replayer) send(f *far, m *zmsg.Message) error {
	p.note("send %s %s", p.nameOf(Ref{far: f}), messageTextOf(m))
	if m.Wants() {
		p.differs("a request that was not made with Context.Context: its outcome is not in the record")
	}
	m.Release()
	return nil
}
