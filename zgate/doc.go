// Package zgate is the server that clients connect to: websocket connections, logins, sessions, and what passes between
// them and the actors.
//
//	g, err := zgate.New(zgate.Config{Node: self, Addr: ":7000", Auth: zgate.DevAuth{}, Dispatcher: d, Groups: link})
//	err = g.Start(ctx)
//	...
//	err = g.Shutdown(ctx)
//
// A connection goes through handshake (TLS, HTTP, limits, origin), login (its first frame is a Hello), authentication,
// and is a session then, which outlives the connection for a while where the client asks for it: it is suspended until the
// client comes back (docs/sessions.md draws the states). Each phase has a time limit. A request of the session goes to a handler of
// the gate, else to the Dispatcher, which finds an actor here or on another node, else to the OnNoRoute hook, else it is
// answered CodeNoRoute; each is counted by what became of it.
//
// # Promises
//
//   - Every request with a seq ends in exactly one response: the answer, an error, or CodeTimeout at its deadline. A
//     reply nobody waits for any more is counted, and never meets another request.
//   - What one caller sends to one session (Push, Reply, PublishLocal, Kick) arrives in the order of the calls. All of it
//     goes through one queue of whole websocket frames. Pushes of a session are numbered from 1 without a hole.
//   - Reliable pushes and responses are never dropped in silence while the session lives: a client that does not take them is
//     closed as slow. A client that comes back gets what it has missed, in order, or is told exactly which pushes are gone;
//     requests that it sends again run once, and get the same response. A SessionRef stays the same, as long as the client comes to the same
//     gate. To another one the session goes with all that is under way (Config.Peers), under the same id in its next generation; it is never at two.
//   - A Volatile push may be dropped, which its sender is told and is counted. A Latest push that waits for the socket is
//     replaced by a newer one of its id and of the same thing (Push.Of), and goes behind the reliable ones that came meanwhile.
//   - No call of this package but Join, Start and Shutdown waits for a client or a network.
//   - When Join has returned, everything published afterwards on any node reaches the session, the messages of the
//     actor that made it join included. A join that races a leave never loses the subscription.
//   - While a session is suspended, reliable pushes to it succeed, of class Latest the newest of each id waits, Volatile ones are
//     dropped.
//   - A session that ends leaves its groups and is told of to each of its watchers once.
//   - Before the gate closes a connection on purpose, the client gets a Closing frame with code and text, behind
//     everything that was sent to it before. CloseCode lists the codes; their range says whether to come back.
//   - What a client sends harms its own connection at most: limits are checked before memory is used, and a panic ends
//     that connection, or that request, alone.
//
// # Goroutines
//
// One for each connection, which reads. A writer for a connection only while its socket refuses bytes (over TLS: while
// there is something to write). One for the listener, one for the time limits of all connections, up to two flushers
// while broadcasts are being written, one for each group whose subscription is just changing. Handlers, the Dispatcher
// and OnNoRoute run on the reading goroutine and must not block; an Authenticator may.
//
// # Failure
//
// Errors of operations say that the session is gone (ErrNoSession, ErrStaleSession, ErrWrongGate, ErrClosed), or that
// this message is (ErrSlow, ErrDropped). A subscription that the bus refuses is tried again for as long as the group has
// members. Shutdown cuts what has not ended when its context does, and says how many connections that were.
package zgate
