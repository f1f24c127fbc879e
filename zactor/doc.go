// Package zactor hosts actors: code and state behind a mailbox, which handles one message at a time.
//
//	type lobby struct{ players map[string]bool }
//
//	func (l *lobby) Handlers() []zactor.Handler {
//		return []zactor.Handler{zactor.Handle(l.enter, zactor.FromClients())}
//	}
//
//	func (l *lobby) enter(c *zactor.Context, req *pb.Enter) (*pb.Entered, error) { … }
//
//	g, err := zactor.NewGroup(zactor.Config{Node: self})
//	ref, err := g.Spawn("lobby", func() zactor.Actor { return &lobby{players: map[string]bool{}} })
//	entered, err := zactor.Ask[pb.Entered](ctx, ref, &pb.Enter{Name: "ann"})
//
// # Promises
//
//   - Messages of one sender to one actor are handled in the order in which they were sent, also across nodes.
//   - A mailbox is bounded, by messages and optionally by bytes: when it is full the sender, the asker or the client learns
//     ErrBusy, and nothing was queued; or what WithOverflow says instead: the oldest or the newest message is dropped, as a dead
//     letter, or the sender waits its turn for a bounded time. What ends an actor, and outcomes, timers and the ends of
//     sessions, are never refused or dropped; a stop does not wait behind a backlog.
//   - A request has one outcome within its deadline: the answer, or an error that tells what happened (code) and whether it
//     ran (outcome). Late and doubled replies are counted and meet no other request.
//   - What no handler runs for is a dead letter, with a reason and a counter; whoever asked is told.
//   - What is published on a topic comes to each actor that subscribes, on any node, once, in order with what its publisher
//     tells it; to each queue of the topic at one of its members.
//   - A panic is contained: the asker learns CodePanicked, the actor starts again with fresh state from its factory and goes
//     on with the messages that wait, as its Policy allows; then it is gone everywhere.
//   - An actor that panics may leave a record of what led to it (WithRecorder), which Replay runs again.
//   - Middleware is around handlers, for the group (Config.Middleware) or for one (With): Recover, Measure, Trace, Limit,
//     RequireUser, or a function of one's own. A message costs nothing for layers that are not there.
//   - OnStop runs once. A stop is never taken for a crash.
//   - A client can reach only handlers that are marked FromClients.
//   - Values are shared within a process: a message is not changed after it was sent, an answer neither.
//
// # Goroutines
//
// An actor has a goroutine while messages wait, none while it is idle. A handler may block: others go on. A group has up to
// Config.AsyncWorkers more, and those of Config.AsyncPools, while Async has work, and one while records are written
// (Config.RecordDir). Timers, and the time-outs of open requests, are calls of the Clock, short and on its goroutines. So are
// the rounds of the watchdog, which tells of handlers that run too long (Config.HandlerLimit) and of mailboxes that stay full
// (Config.QueueMark): there are none while no actor runs. The goroutines of actors carry a pprof label, zactor, by which it
// finds their stacks. An idle group has none and uses no CPU. Shutdown ends them all, and says which did not.
//
// # Failure
//
// Ask, Call and Then end with errors of zmsg (ErrBusy, ErrStopped, ErrTimeout, ErrPanicked, ErrCycle, …), told apart by
// errors.Is, zmsg.CodeOf and zmsg.OutcomeOf. A handler's own error reaches the asker if it has a code (zmsg.Errorf);
// any other is logged, and the asker learns CodeInternal. The same holds where it has called Context.Defer before.
package zactor
