package zrouter

import (
	"errors"
	"sync/atomic"
	"time"

	"zgame/zactor"
	"zgame/zmsg"
	"zgame/zrouter/internal/entry"
	"zgame/zstore"
)

// stateful is the actor of an object, without the type of its state. Its methods are called in turns of the actor.
type stateful interface {
	// encode makes the write of the state as it is.
	encode() (zstore.Write, error)
	// handoff calls the hooks that come before an object goes to another node. Errors are a vetoError, or of encoding.
	handoff(zc *zactor.Context, private []byte) (attachment []byte, agreed bool, err error)
	// aborted calls the hook for that it has not gone.
	aborted(zc *zactor.Context)
}

// residence is one stay of an object in the memory of this node, with an actor of its own.
type residence struct {
	o       *object
	sh      *shard
	version zmsg.RouteVersion
	cell    stateful // set by the actor's start

	deleted atomic.Bool // Context.Delete was called
	leaves  atomic.Bool // Context.Stop was called
	dirty   atomic.Bool // what Dirty said since the entry was told

	inside  atomic.Bool // a handler runs: set in the actor's turn
	early   atomic.Bool // an outcome was given meanwhile, which has taken what Dirty had said by then
	broken  atomic.Bool // a handler did not return: it panicked
	current *call       // whose handler runs; owned by the actor's turn
	token   uint64      // with which its outcome is given

	bound      *bound       // the sessions that are bound to it; owned by the actor's turns, from the start on
	boundCount atomic.Int32 // how many
	trace      *zmsg.Trace  // in which the state was changed last, until it is saved; nil: in none that is recorded; owned by the actor's turn
	saves      afterSaves   // likewise
	actor      uint64       // the actor's id; set by its start

	frozen int64         // of the move that has brought it here: since when it takes no requests, Unix milliseconds; 0: none, or not known
	pause  time.Duration // likewise: for how long it took none, until the actor's start
	away   time.Duration // of the move that takes it away: for how long it took none, until the record named the new owner; guarded by the shard's mu

	// Guarded by the shard's mu.
	ref     zactor.Ref
	rec     *zstore.Record       // what to load: owned by the actor's start
	ring    *doneRing            // nil: of requests with a key it remembers none
	clients *clientDone          // nil: nor of those of clients
	running map[doneKey]*running // those that are remembered when they have run
	owing   bool                 // a remembered answer was to be told after a save of its own
	dropped bool                 // the entry has done with it
	gone    bool                 // its actor has ended
	crashed bool                 // by a panic
	resting bool                 // it leaves memory, and stays this node's
	agreed  bool                 // BeforeRemove was asked, and has not said no
	why     Reason
	snap    *write // waits for the state
	snapFn  func(*zactor.Context)
	timer   zactor.ClockTimer // calls tick
}

var (
	errLost   error = causeError(entry.Lost)
	errLapsed error = &zmsg.Error{Code: zmsg.CodeUnavailable, Outcome: zmsg.NotExecuted, Text: "the node's lease is not valid now"}
)

// begin is called in the actor's turn before a handler runs for m, or the work of a call.
func (r *residence) begin(m *zmsg.Message, work *call) (done bool, err error) {
	sh := r.sh
	if !sh.set.serving(sh.set.clock.Now()) {
		return false, zactor.NotRun(errLapsed)
	}
	if m != nil {
		if done, err := r.once(m); done || err != nil {
			return done, err
		}
	}
	if work != nil {
		_, r.token = work.replier(runs)
	}
	r.current = work
	if m != nil {
		var w zmsg.Waiter
		w, r.token = m.Waiter()
		r.current, _ = w.(*call)
	}
	r.inside.Store(true)
	return false, nil
}

// finish is called in the actor's turn after a handler has returned.
func (r *residence) finish() {
	r.inside.Store(false)
	r.current = nil
	if r.early.Load() {
		r.early.Store(false)
		r.tellChange()
	}
}

// noOutcome is called behind finish where the message came past the entry, so that no outcome tells what it has changed.
func (r *residence) noOutcome() {
	if r.dirty.Load() || r.leaving() {
		r.tellChange()
	}
}

// unwind is called in the actor's turn when a handler has ended, also by a panic.
func (r *residence) unwind() {
	if r.inside.Load() {
		r.broken.Store(true)
	}
}

// saveFirst has the answer of the message that is handled wait for the save, unless it was given.
func (r *residence) saveFirst() {
	if c := r.current; c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if r.token>>1 == c.gen {
			c.durable.Store(true)
		}
	}
}

// markDirty is called in the actor's turn. What a handler has changed is told with its outcome.
func (r *residence) markDirty() {
	if !r.dirty.Swap(true) && !r.inside.Load() {
		r.tellChange()
	}
}

// tellChange tells what no outcome will tell.
func (r *residence) tellChange() {
	t := r.sh.lock()
	t.changed(r)
	t.end()
}

// changed tells the entry of changes outside of requests, and that the object is to leave. While it is being loaded nothing is
// told: then what loads it does so.
func (t *turn) changed(r *residence) {
	if r.dropped || r.o.res != r {
		return
	}
	if r.dirty.Swap(false) {
		t.tell(r.o, &entry.Event{Kind: entry.Dirtied})
	}
	if !r.dropped && r.leaving() {
		t.tell(r.o, &entry.Event{Kind: entry.Leave})
		t.settle(r.o)
	}
}

// leaving reports that a handler has asked for the object's end, in memory or at all.
func (r *residence) leaving() bool { return r.deleted.Load() || r.leaves.Load() }

// leave is called in the actor's turn: the object is given up when what runs has ended.
func (r *residence) leave() {
	r.leaves.Store(true)
	if !r.inside.Load() {
		r.tellChange()
	}
}

// save has the state written by w: in the next turn of the actor. The shard's mu is held. It reports false when the actor has
// ended.
func (r *residence) save(w *write) bool {
	r.snap = w
	if r.snapFn == nil {
		r.snapFn = func(zc *zactor.Context) { r.snapshot(zc) }
	}
	if r.ref.Turn(r.snapFn, nil) != nil {
		r.snap = nil
		return false
	}
	return true
}

// snapshot hands the state to the write that waits for it, in a turn of the actor.
func (r *residence) snapshot(zc *zactor.Context) {
	sh := r.sh
	sh.mu.Lock()
	w := r.snap
	if w == nil {
		sh.mu.Unlock()
		return
	}
	done := r.done()
	var private []byte
	moves := w.op == entry.Move
	if m := r.o.moves; moves && m != nil {
		private = m.private
	}
	sh.mu.Unlock()

	var attachment []byte
	var agreed bool
	var err error
	if moves {
		attachment, agreed, err = r.cell.handoff(zc, private)
	}
	var data zstore.Write
	if err == nil {
		data, err = r.cell.encode()
	}
	data.Done, data.Attachment = done, attachment

	t := sh.lock()
	if r.snap != w { // the transfer did not wait for so long; or the entry has dropped it
		back := agreed && !r.dropped
		t.end()
		if back {
			r.cell.aborted(zc)
		}
		return
	}
	defer t.end()
	if moves && err == nil && r.leaving() { // to be deleted, or given up: not by the next owner
		err = &vetoError{errLeaving}
	}
	r.snap = nil
	w.trace, r.trace = r.trace, nil
	if w.trace != nil {
		w.begun = time.Now()
	}
	r.agreed = r.agreed || agreed
	if m := r.o.moves; moves && m != nil {
		m.wrote = t.time()
	}
	if errors.As(err, new(*vetoError)) {
		t.landed(w, zstore.Record{}, err)
		return
	}
	if err != nil {
		r.o.log().Error("the state does not encode", "err", err)
		t.landed(w, zstore.Record{}, errors.Join(errEncode, err))
		return
	}
	w.change.Write = data
	t.start(w)
}

var (
	errEncode  = errors.New("zrouter: encoding the state")
	errLeaving = errors.New("the object is about to leave memory, or to be deleted")
	errHooks   = errors.New("BeforeRemove and OnHandoff have not ended in time")
)

// hooksOverdue ends a transfer whose hooks have not returned, or did not get their turn, in time: nothing is written yet. What they do
// later is taken back when they return. It reports false where the write is under way, or none is.
func (t *turn) hooksOverdue(o *object) bool {
	r, w := o.res, o.write
	if o.entry.Phase != entry.Moving || r == nil || w == nil || r.snap != w {
		return false
	}
	r.snap = nil
	t.landed(w, zstore.Record{}, &vetoError{errHooks})
	return true
}

// closing says why the object leaves memory; called by the actor's stop.
func (r *residence) closing() Reason {
	sh := r.sh
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if !r.dropped {
		return Panicked
	}
	return r.why
}

// ended is called when the actor has ended.
func (r *residence) ended() {
	o := r.o
	t := r.sh.lock()
	defer t.end()
	w := r.snap
	r.snap, r.gone = nil, true
	if !r.dropped && o.res == r { // nobody told it to: a panic outside of a handler, or somebody stopped the actor
		r.crashed = true
		t.tell(o, &entry.Event{Kind: entry.Panicked})
	}
	if o.old == r {
		o.old = nil
		t.load(o)
	}
	if w != nil {
		t.landed(w, zstore.Record{}, errEncode)
	}
}
