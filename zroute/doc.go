// Package zroute takes messages to the actors that handle their ids.
//
// Local is the table of this node's actors, filled by a zactor.Group; Remote that of the other nodes', filled from
// discovery. A Dispatcher asks the first, then the second:
//
//	d, err := zroute.New(zroute.Config{Node: self, Local: &local, Remote: &remote, Sender: link})
//	res, tried, err := d.Dispatch(m)
//
// # Promises
//
//   - Local candidates come first: a LocalRouter picks one, and only its ErrNotFound (or a target that is just being
//     stopped) lets the message go on to the remote ones. A full mailbox is Busy, never a reason to go elsewhere.
//   - Among remote candidates a RemoteStrategy picks one; when it cannot be reached, or answers that it did not run the
//     request, the others follow in list order, or in that of the strategy (NextBest). Each further try is counted. One-way
//     messages fall back only where the link refuses at once.
//   - Draining nodes get nothing, except from KeepDraining the keys that they have. docs/routing.md compares the strategies.
//   - The candidates of a sharded id are local and remote together, picked by rendezvous over the key: every node that
//     sees the same members picks the same actor. When it cannot take the message, the next is the one that gets the key
//     once the first is gone.
//   - Messages with the client mark see only candidates that clients may call.
//   - A request has one outcome, also when replies come late, twice, or while the next candidate is being tried.
//   - Tables are snapshots behind an atomic pointer: lookups do not wait and do not allocate; views are never changed.
//
// # Goroutines
//
// None. Everything happens on the caller's goroutine, a fallback on that of the one who brings the outcome.
//
// # Failure
//
// Dispatch returns Busy, NoRoute or Failed and leaves the message with its caller. A request whose remote candidates all
// fail ends with CodeUnavailable, NotExecuted, and the number of candidates tried in its text: it may be sent again. CodeNoRoute says that
// nobody handles the id.
package zroute
