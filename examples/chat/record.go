package chat

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/zmsg"
	"zgame/zstore"
)

// room is a room's record as this shard knows it, and the steps that wait to be written. One write is under way at a
// time; what comes meanwhile waits and goes into the next one together.
type room struct {
	key     zmsg.Key
	watched map[zmsg.SessionRef]bool // members whose end this actor is told of

	// As of the last read or write; state is nil before the first. While writing, the write's own.
	rec   zstore.Record
	state *chatpb.RoomState

	waiting []*step
	writing bool
}

// step is one change of a room.
type step struct {
	before func() error                        // may be nil: off the actor, ahead of the write; may wait
	apply  func(*chatpb.RoomState) error       // changes nothing when it refuses; see commit about running it again
	then   func(*zactor.Context) proto.Message // in the actor, once the step is stored: the answer
	reply  zactor.Deferred
	err    error

	refused bool // by before
}

// Bounds of one room's steps.
const (
	maxWaiting   = 1024
	writeTimeout = 5 * time.Second
	maxConflicts = 16
)

// roomType is the key type of rooms in the store.
const roomType = 1

// do runs s on the room that the message names, and answers the message by s.then when it is stored.
func (r *rooms) do(c *zactor.Context, name string, s *step) error {
	if err := checkRoom(name); err != nil {
		return err
	}
	rm := r.open[name]
	if rm == nil {
		rm = &room{key: zmsg.Key{Type: roomType, ID: name}, watched: map[zmsg.SessionRef]bool{}}
		r.open[name] = rm
	}
	if len(rm.waiting) >= maxWaiting {
		return zactor.NotRun(zmsg.ErrBusy)
	}
	s.reply = c.Defer()
	r.change(c, rm, s)
	return zactor.ErrDeferred
}

func (r *rooms) change(c *zactor.Context, rm *room, s *step) {
	rm.waiting = append(rm.waiting, s)
	r.flush(c, rm)
}

// flush writes what waits, unless a write is under way, which flushes when it is done.
func (r *rooms) flush(c *zactor.Context, rm *room) {
	if rm.writing || len(rm.waiting) == 0 {
		return
	}
	batch := rm.waiting
	rm.waiting, rm.writing = nil, true
	err := zactor.Async(c, func(ctx context.Context) (struct{}, error) {
		// The batch is many callers': it does not end with the deadline of the one whose turn this is.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
		defer cancel()
		return struct{}{}, rm.commit(ctx, r.store, batch)
	}, func(c *zactor.Context, _ struct{}, err error) { r.written(c, rm, batch, err) })
	if err != nil {
		r.written(c, rm, batch, err)
	}
}

// written ends the steps of a write.
func (r *rooms) written(c *zactor.Context, rm *room, batch []*step, err error) {
	rm.writing = false
	for _, s := range batch {
		switch {
		case err != nil:
			s.reply.Fail(err)
		case s.err != nil:
			s.reply.Fail(s.err)
		default:
			s.reply.Reply(s.then(c))
		}
	}
	r.watch(c, rm)
	r.flush(c, rm)
	if !rm.writing && len(rm.watched) == 0 {
		delete(r.open, rm.key.ID) // nobody is here; the record stays
	}
}

// watch asks to be told of the end of every member's session: new ones, and those that an earlier shard let in.
func (r *rooms) watch(c *zactor.Context, rm *room) {
	if rm.state == nil {
		return // could not be stored; the next step reads again
	}
	seen := make(map[zmsg.SessionRef]bool, len(rm.state.GetMembers()))
	for _, m := range rm.state.GetMembers() {
		session := sessionOf(m)
		seen[session] = true
		if rm.watched[session] {
			continue
		}
		if err := c.WatchSession(session); err != nil {
			c.Logger().Warn("session is not watched", "room", rm.key.ID, "err", err)
		}
	}
	rm.watched = seen
}

// commit applies the batch to the room's newest state and stores it, by compare-and-set: whoever else wrote meanwhile
// wins, and the batch is applied anew to what they wrote. That may hold the batch already: a write whose outcome the
// store did not tell may have landed before theirs. So a step finds what it did.
func (rm *room) commit(ctx context.Context, store zstore.Store, batch []*step) error {
	for _, s := range batch {
		if s.before != nil {
			s.err = s.before()
			s.refused = s.err != nil
		}
	}
	for range maxConflicts {
		if rm.state == nil {
			if err := rm.load(ctx, store); err != nil {
				return err
			}
		}
		next := proto.CloneOf(rm.state)
		for _, s := range batch {
			if !s.refused {
				s.err = s.apply(next)
			}
		}
		rec, err := rm.store(ctx, store, next)
		if err == nil {
			rm.rec, rm.state = rec, next
			return nil
		}
		rm.state = nil
		if !errors.Is(err, zstore.ErrConflict) {
			return err
		}
	}
	return zactor.NotRun(zmsg.Errorf(zmsg.CodeConflict, "other nodes keep changing the room"))
}

// store writes next, or makes sure that nobody has written since where there is nothing to write.
func (rm *room) store(ctx context.Context, store zstore.Store, next *chatpb.RoomState) (zstore.Record, error) {
	if proto.Equal(next, rm.state) {
		rec, err := store.Read(ctx, rm.key)
		if err == nil && rec.Rev != rm.rec.Rev {
			err = zstore.ErrConflict
		}
		return rec, err
	}
	state, err := proto.Marshal(next)
	if err != nil {
		return zstore.Record{}, err
	}
	return zstore.Resolve(ctx, store, &zstore.Change{
		Op: zstore.OpSave, Key: rm.key, Own: rm.rec.Own, Rev: rm.rec.Rev,
		Write: zstore.Write{Schema: 1, State: state}, WID: zstore.NewWriteID(),
	})
}

// load reads the record, or makes it. Nobody owns it: the revision alone decides who may write.
func (rm *room) load(ctx context.Context, store zstore.Store) error {
	rec, err := store.Read(ctx, rm.key)
	if errors.Is(err, zstore.ErrNotFound) {
		rec, err = zstore.Resolve(ctx, store, &zstore.Change{
			Op: zstore.OpCreate, Key: rm.key, Write: zstore.Write{Schema: 1}, WID: zstore.NewWriteID(),
		})
		if errors.Is(err, zstore.ErrConflict) { // somebody was faster
			rec, err = store.Read(ctx, rm.key)
		}
	}
	if err != nil {
		return err
	}
	state := &chatpb.RoomState{}
	if err := proto.Unmarshal(rec.State, state); err != nil {
		return err
	}
	rm.rec, rm.state = rec, state
	return nil
}
