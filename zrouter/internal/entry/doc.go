// Package entry decides what the router does next about one object on one node: Step is a pure function of what is known (Entry),
// what happened (Event) and the facts of the moment (Facts). It does no I/O, asks no clock and starts no goroutine; whoever
// drives it carries out the Effects it returns and reports how they ended as further Events.
//
//	absent --request--> reading --nobody owns it--> claiming --ok--> loading --ok--> active
//	                       |                                                           |  \
//	                       +--another owns it--> cached --request--> (forwarded)       |   releasing --ok--> absent
//	                                                                                   |
//	                     reading <--the record is another's: fenced, memory dropped----+
//
// An owner that hands over: active, freezing (nothing new runs), moving (the write that changes the owner), cached: the requests that
// waited are forwarded to the target, behind a hint that has the state. The target agreed before; it is loading by the hint, then active.
// A hint that is lost is found in the record.
//
// # Promises, held by the exhaustive search of search_test.go
//
//   - A handler starts only where the record names this node, and its lease is valid.
//   - A success is told only while the lease is valid, or after a write that proves the ownership.
//   - Of a write whose outcome is unknown nothing is told and nothing discarded until it is resolved.
//   - A route that is remembered was committed, and only a greater version replaces it.
//   - Every request ends once on the node that took it: run, forwarded, or refused as not executed; where the memory that ran it is
//     lost before it was saved: unknown.
//   - A transfer ends once for who asked. One that has not happened leaves everything as it was.
//   - Reading never writes; a node that may not own claims nothing.
package entry
