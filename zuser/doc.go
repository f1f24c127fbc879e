// Package zuser is the directory of users: which sessions a user has, at whatever gates. It is a kind of stateful actors
// (zrouter.Kind), one for each user, which lives on one node of those that host the kind, is found from every node, and is saved.
//
//	err := node.Users().Push(ctx, "ann", &chatpb.Line{Text: "hello"}) // from anywhere
//	n, err := node.Users().Kick(ctx, "ann", 4001, "see you tomorrow")
//	err = zuser.Push(c, "ann", line)                                  // in a turn of an actor or an object: it does not wait
//	p, err := node.Users().Presence(ctx, "ann")                       // is she there, since when, at which gate
//
// A gate that has a Directory asks the user's object about each login before the client is welcome (Users.Bind). The object
// binds the session to itself (zrouter.Context.Bind): so its pushes keep their order while it moves, it hears of the session's
// end once, also where the gate dies, and the gate notices when the object is lost and binds its sessions again.
//
// # Promises
//
//   - However many logins of a user are under way at however many gates, in the end those with the greatest numbers are left, as
//     many as the user may have; with Refuse it is those with the smallest. The others are closed: replaced (3504), or refused (3505).
//   - The late end of an old session says nothing about a newer one: sessions are compared by id, generation and gate.
//   - Push reaches all sessions of the user whose login has been answered. It is at most once, as every push: a client is told
//     of a gap where the node of the user's object died. What one caller pushes to one user by the same way comes in order.
//   - Objects that are told of presences (Kind) hear of each coming and going, at least once, in numbers that rise, and of the end of one
//     also where the user's object and his gate have died together.
//   - ErrNotInServer says that the user has no session: nothing was sent, nothing was made. For a moment after the node of the
//     user's object died it may be said of one who has, until his gates have bound him again.
//
// # Failure
//
// The state is saved within the kind's save delay. What a crash loses, the gates make good: each binds its sessions again as soon as the
// list of nodes says that the owner is gone. While nobody can own the object (the store is away, or a dead owner's lease runs), logins of that
// user fail as unavailable (3007), and pushes with ErrUnavailable.
package zuser
