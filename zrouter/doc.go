// Package zrouter hosts stateful actors, objects for short: named by a zmsg.Key, in memory on one node, their owner, saved in
// a zstore.Store, reached from every node.
//
//	var rooms = zrouter.Kind[*chatpb.RoomState]{
//		Type: 2, Name: "room", Version: 1,
//		Create:   func(zmsg.Key) (*chatpb.RoomState, error) { return &chatpb.RoomState{}, nil },
//		Handlers: []zrouter.Handler[*chatpb.RoomState]{zrouter.Handle(join), zrouter.Handle(say)},
//	}
//
//	func say(c *zrouter.Context[*chatpb.RoomState], req *chatpb.Say) (*chatpb.Said, error) {
//		c.State().Append(req.Text) // plain Go: nobody else touches this state
//		c.Dirty()
//		return &chatpb.Said{Seq: c.State().Seq}, nil
//	}
//
// A message takes this way: DeliverObject (from here) or Receive (from another node) makes a call of it; the object's entry
// (internal/entry, a pure function) says what becomes of it; turn.do carries that out: into the mailbox of the object's actor, to
// the owner's node, or into the queue behind a read or a write of the record. What the actor answers comes back by the call, and
// the entry says when it may be told.
//
// # Promises
//
//   - At most one node has a writable object: each write of the record is a compare-and-set on owner, epoch, route version and
//     revision. Who loses it drops what is in memory.
//   - A handler starts, and a success is told, only while the node's lease is valid; a success of a durable kind, or handler,
//     after its effect is in the store.
//   - Messages for one object are handled one at a time, those of one caller in order as long as the owner stays.
//   - Every request ends once: with the answer, or with an error whose zmsg.Outcome says whether it ran.
//   - What is saved survives. What was told from memory is saved within the save delay, and not promised any more where that
//     fails for MaxUnsavedAge.
//   - Looking never writes. An idle object costs no call to the store.
//
// # Goroutines
//
// A ManagerSet has none while nothing is read, written or loaded; then at most Settings.StoreOps, which Close ends. Handlers
// run on the goroutines of the zactor.Group, timers on those of the Clock.
//
// # Failure
//
// Errors have a zmsg.Code each (ErrMoved, ErrNotFound, ErrUnavailable, …): errors.Is works with them also where another
// node has said so.
package zrouter
