// Package zclient is the Go client of a zgame gate: bots, tests, tools and games written in Go talk to a server with it.
//
//	c, err := zclient.Dial(ctx, zclient.Config{URL: "ws://localhost:7000/ws", Token: "ann"})
//	if err != nil { ... }
//	defer c.Close()
//	zclient.On(c, func(line *chatpb.Line) { fmt.Println(line.GetFrom(), line.GetText()) })
//	joined, err := zclient.Call[chatpb.Joined](ctx, c, &chatpb.Join{Room: "go"})
//
// # Promises
//
//   - A request ends in exactly one outcome within its deadline: the response, or an error that is a *zmsg.Error whose
//     Outcome says whether the request ran: NotExecuted when it was never written to a connection (or the server says
//     so), Unknown when the session was lost after it.
//   - A connection that is lost takes nothing with it while the gate keeps the session (Config.ResumeWindow): requests in
//     flight are sent again with the same seq and run once, pushes that were missed come, in order. What the gate does not
//     keep any more is told, between the pushes: OnGap. When the session is over, OnLost tells it, and the client logs in anew.
//   - Requests are written in the order in which Request and Send were called by one goroutine.
//   - Pushes are handed to handlers in the order in which they came, and so are state events between them.
//   - There is at most one connection at a time: the next is dialled after the last was closed.
//   - Everything is bounded: requests in flight (what the gate's Welcome says), frames that wait to be written
//     (256; more is CodeBusy), requests that wait for a connection (Config.MaxWaiting; likewise), pushes that wait for handlers (Config.MaxPushes; more ends the connection).
//   - A lost connection is dialled again for ever, with back-off and full jitter and no sooner than the server asks,
//     unless the server said by its close code that this is pointless (see Reconnect). To another session, requests are never
//     sent again: whoever made them decides, by the Outcome.
//
// # Goroutines
//
// Connect starts two: one owns the connection's life and reads from it, one runs handlers. Each connection has one
// more, which writes. Close ends them all; Done tells when the last handler has returned. Handlers may call anything,
// Request and Close included; a handler that blocks holds up the others, not the responses.
//
// # Failure
//
// Each loss of a connection has one machine-readable Reason, which OnState gets. While there is no connection, new requests
// wait for the next one (Config.MaxWaiting; their ctx ends that, NotExecuted); Send fails at once with CodeUnavailable.
package zclient
