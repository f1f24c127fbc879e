// Package ztrace records where the time of single requests goes: from the gate that takes a request to its response, through the handlers
// that it leads to on any node, to what is saved and pushed for it. Each piece of work is a Span.
//
// Every message carries the id of its trace anyway, for logs (zmsg.Trace). The gate, or the object that somebody follows, decides whether a trace is
// recorded: then the messages also carry the span in which they were sent, which is all that other nodes need to know. A trace that is
// not recorded costs a comparison for each message.
//
// Spans go to Config.Export (see ztrace/otlp) and to those who Follow; they are not kept.
//
// # Goroutines
//
// None. Every method may be called from any goroutine. A nil Tracer records nothing.
//
// # Failure
//
// Who takes spans too slowly misses some, which are counted; work never waits for its being recorded.
package ztrace
