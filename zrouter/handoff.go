package zrouter

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zactor"
	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/zrouter/internal/entry"
	"zgame/zrouter/internal/handoffpb"
	"zgame/zstore"
)

// What two nodes say to each other when an object moves: control envelopes, in the same lane as the requests that are forwarded. See
// docs/wire.md.
const (
	prepareID  = 33 // can you take it over? Key, Version, Request: number of the question, Seq: version of the state's encoding
	preparedID = 34 // the answer: Key, Request; Code, Text: why not; Owner, Version: a newer route
	hintID     = 35 // you own it: Key, Version, Body: handoffpb.Given, or empty
	goneID     = 36 // another node is dead, and some of its objects have their home with you: Owner; see remember.go
)

// Controls reports whether a control envelope's id is one that Control takes.
func Controls(id uint32) bool { return id >= UpdateID && id <= goneID }

// maxInline is the largest hint that has the state with it; with a larger one the target loads from the store.
const maxInline = 256 << 10

// move is one transfer that was asked for. Guarded by the shard's mu.
type move struct {
	to      zmsg.NodeRef
	silent  bool
	private []byte
	then    func(r Route, err error)

	next    *move // behind it
	queued  bool  // it is looked at when what is carried out now is done
	begun   bool
	number  uint64    // of the question to the target
	refusal string    // what the target says
	code    zmsg.Code // with which; OK: it said nothing
	written bool      // the state was asked for
	given   *zstore.Change
	timer   zactor.ClockTimer
	began   time.Time
	frozen  time.Time
	wrote   time.Time // when the write began
}

// prepare asks the target.
func (t *turn) prepare(o *object, x *entry.Effect) {
	s, m := t.sh.set, o.moves
	e := zmsg.Envelope{ID: prepareID, Key: o.key, Version: x.Route.Version, Request: m.number, Seq: uint64(o.kind.version)}
	if err := s.link.SendControl(x.Route.Owner, &e); err != nil {
		m.refusal = "cannot be asked: " + err.Error()
		t.later(o, entry.Event{Kind: entry.Unprepared}, nil)
		return
	}
	t.within(o, m, s.settings.PrepareTimeout, func(t *turn) {
		m.refusal = "does not say that it can take the object"
		t.tell(o, &entry.Event{Kind: entry.Unprepared})
	})
}

// within has f called when a step of a move takes longer than d.
func (t *turn) within(o *object, m *move, d time.Duration, f func(t *turn)) {
	sh, k, number := t.sh, o.key, m.number
	if m.timer != nil {
		m.timer.Stop()
	}
	m.timer = sh.set.clock.AfterFunc(d, func() {
		t := sh.lock()
		defer t.end()
		if o := sh.objects[k]; o != nil && o.moves == m && m.number == number && !o.inert {
			f(t)
			t.settle(o)
		}
	})
}

// prepared takes the target's answer.
func (t *turn) prepared(o *object, e *zmsg.Envelope) {
	m := o.moves
	if m == nil || !m.begun || m.number != e.Request || e.Request == 0 || !m.frozen.IsZero() {
		return
	}
	if e.Code == zmsg.CodeOK {
		t.serving(o)
		t.tell(o, &entry.Event{Kind: entry.Prepared})
		t.watchQuiet(o, m)
		return
	}
	m.code, m.refusal = e.Code, string([]byte(e.Text))
	t.tell(o, &entry.Event{Kind: entry.Unprepared, Route: Route{Owner: e.Owner, Version: e.Version}})
}

// watchQuiet bounds how long what runs, and then the hooks, may hold a move up.
func (t *turn) watchQuiet(o *object, m *move) {
	if o.moves != m || !m.begun || o.entry.Phase != entry.Freezing && o.entry.Phase != entry.Moving {
		return
	}
	t.sh.set.counts.HandoffSeconds.With("prepare").Observe(t.time().Sub(m.began).Seconds())
	if m.frozen = t.time(); m.wrote.IsZero() {
		m.wrote = m.frozen
	}
	t.within(o, m, o.kind.set.QuiesceTimeout, func(t *turn) {
		if !t.hooksOverdue(o) {
			t.tell(o, &entry.Event{Kind: entry.Unquiet})
		}
	})
}

// hint tells the new owner that it is that, and what the write had.
func (t *turn) hint(o *object, x *entry.Effect) {
	s := t.sh.set
	e := zmsg.Envelope{ID: hintID, Key: o.key, Version: x.Route.Version, Owner: x.Route.Owner}
	if m := o.moves; m != nil && m.given != nil {
		w := &m.given.Write
		g := handoffpb.Given{Rev: x.Rev, Schema: w.Schema, State: w.State, Attachment: w.Attachment}
		if !m.frozen.IsZero() {
			g.FrozenMs = m.frozen.UnixMilli()
		}
		for i := range w.Done {
			g.Done = append(g.Done, &handoffpb.Done{Origin: w.Done[i].Origin, Seq: w.Done[i].Seq, Reply: w.Done[i].Reply})
		}
		if proto.Size(&g) <= maxInline {
			e.Body, _ = proto.Marshal(&g) // without it the target reads the record
		}
	}
	if err := s.link.SendControl(x.Route.Owner, &e); err != nil && e.Body != nil {
		e.Body = nil
		_ = s.link.SendControl(x.Route.Owner, &e) // lost: the first request has the target look
	}
}

// prepareAsked answers a node that wants to hand an object over.
func (s *ManagerSet) prepareAsked(e *zmsg.Envelope, from zmsg.NodeRef) {
	answer := zmsg.Envelope{ID: preparedID, Key: e.Key, Request: e.Request}
	if code, why := s.cannotTake(e); code != zmsg.CodeOK {
		answer.Code, answer.Text = code, why
		_ = s.link.SendControl(from, &answer) // lost: who asked does not wait for long
		return
	}
	t := s.shard(e.Key).lock()
	defer t.end()
	o := t.object(e.Key)
	t.asking = &answer
	t.tell(o, &entry.Event{Kind: entry.PrepareAsked, From: s.nodeRef(from), Route: Route{Owner: from, Version: e.Version}})
	t.asking = nil
	t.expect(o)
	t.settle(o)
}

// cannotTake says why this node cannot take an object over, whatever it knows of it: CodeRefused where it takes no other either, CodeBusy
// where it may soon.
func (s *ManagerSet) cannotTake(e *zmsg.Envelope) (zmsg.Code, string) {
	k := s.kinds[e.Key.Type]
	switch {
	case zstore.CheckKey(e.Key) != nil:
		return zmsg.CodeConflict, "does not take such a key"
	case k == nil:
		return zmsg.CodeRefused, "does not host the kind"
	case s.closing.Load():
		return zmsg.CodeRefused, "drains"
	case e.Seq > uint64(k.version):
		return zmsg.CodeConflict, "runs an older program, which cannot read the object's state"
	case !s.serving(s.clock.Now()):
		return zmsg.CodeRefused, "has no valid lease"
	case s.full():
		return zmsg.CodeBusy, "has as many objects as it may"
	}
	return zmsg.CodeOK, ""
}

// notFit says why a node does not take objects of a kind, as its record has it.
func notFit(n *zdiscovery.Node, typ uint32) string {
	switch {
	case n.State != zdiscovery.Ready:
		return "is " + string(n.State)
	case !slices.ContainsFunc(n.Kinds, func(k zdiscovery.Kind) bool { return k.Type == typ }):
		return "does not host the kind"
	}
	return ""
}

// answerPrepare sends what the entry has decided about a question.
func (t *turn) answerPrepare(o *object, x *entry.Effect) {
	a := *t.asking
	a.Key = o.key
	if x.Op == entry.TellUnprepared {
		a.Code, a.Text = zmsg.CodeConflict, "has a part in the object itself"
		if r := o.entry.Route; r.Version > x.Route.Version {
			a.Owner, a.Version = r.Owner, r.Version
		}
	}
	_ = t.sh.set.link.SendControl(x.Route.Owner, &a) // lost: who asked does not wait for long
}

// longestExpected bounds how long a target waits for a write that is under way.
const longestExpected = 30 * time.Second

// expectation is the room that is kept for an object which this node has agreed to take over.
type expectation struct{ timer zactor.ClockTimer }

// expect keeps room for what the entry has agreed to take over, for a while.
func (t *turn) expect(o *object) {
	if o.entry.Expect == 0 {
		return
	}
	s, sh, k := t.sh.set, t.sh, o.key
	x := o.expects
	if x == nil {
		s.expected.Add(1)
	} else {
		x.timer.Stop()
	}
	x = new(expectation)
	o.expects = x
	x.timer = s.clock.AfterFunc(s.settings.PrepareTimeout+o.kind.set.QuiesceTimeout+min(2*s.settings.StoreTimeout, longestExpected), func() {
		t := sh.lock()
		defer t.end()
		if o := sh.objects[k]; o != nil && o.expects == x {
			t.tell(o, &entry.Event{Kind: entry.Unexpect})
			t.settle(o)
		}
	})
}

// unexpect gives the room back.
func (s *ManagerSet) unexpect(o *object) {
	if o.expects != nil {
		o.expects.timer.Stop()
		o.expects = nil
		s.expected.Add(-1)
	}
}

// hinted takes the word of an old owner that this node owns the object now.
func (s *ManagerSet) hinted(e *zmsg.Envelope) {
	k := s.kinds[e.Key.Type]
	if k == nil || e.Key.ID == "" || e.Version == 0 || !s.self.Is(e.Owner) {
		return
	}
	var g handoffpb.Given
	given := len(e.Body) > 0 && proto.Unmarshal(e.Body, &g) == nil && g.GetSchema() <= k.version
	sh := s.shard(e.Key)
	t := sh.lock()
	defer t.end()
	if s.closed.Load() {
		return
	}
	o := t.object(e.Key)
	ev := entry.Event{Kind: entry.Hinted, Route: Route{Owner: s.self.Ref(), Version: e.Version}, Rev: g.GetRev(), Found: given}
	if given {
		rec := &zstore.Record{
			Key: o.key, Own: zstore.Own{Node: s.self.Ref(), Version: e.Version, Pending: true}, Rev: g.GetRev(),
			Schema: g.GetSchema(), State: g.GetState(), Attachment: g.GetAttachment(),
		}
		for _, d := range g.GetDone() {
			rec.Done = append(rec.Done, zstore.Done{Origin: d.GetOrigin(), Seq: d.GetSeq(), Reply: d.GetReply()})
		}
		t.given, t.frozen = rec, g.GetFrozenMs()
	}
	t.serving(o)
	t.tell(o, &ev)
	t.given, t.frozen = nil, 0
	t.settle(o)
}

// attach makes what a record keeps of what the old owner hands over; nil: nothing.
func attach(hook []byte, attached bool, private []byte, gates []*handoffpb.BoundGate) ([]byte, error) {
	if !attached && private == nil && gates == nil {
		return nil, nil
	}
	return proto.Marshal(&handoffpb.Attachment{Hook: hook, Private: private, Attached: true, Gates: gates})
}
