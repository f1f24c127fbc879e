// Package faultproxy is a TCP proxy that does to connections what networks do: it holds bytes back, swallows them, slows
// and delays them, cuts and resets connections and refuses new ones, in each direction alone, and heals again.
//
//	p := faultproxy.Start(t, server.Addr()) // clients connect to p.Addr()
//	p.Set(faultproxy.Both, faultproxy.Fault{Stall: true})
//	...
//	p.Heal()
//
// # Promises
//
//   - A direction passes bytes in order, and unchanged up to the first that vanishes. The end of a stream and a reset pass
//     like bytes do: they wait, are late, or vanish with them.
//   - A change of faults is there when the call returns: no byte that passes afterwards passes by the old rule, but for a write
//     to the socket that was under way.
//   - A stream with a hole is of use to nobody: the connection whose bytes vanished is reset once bytes would pass again.
//   - What waits in the proxy is bounded for each direction of a connection (Buffer); then the sender's socket fills.
//   - Nothing is random.
//
// # Goroutines
//
// One accepts; each connection has one while it dials the target, then four: a reader and a writer for each direction. All
// end with Close, which waits for them.
//
// # Failure
//
// A target that cannot be dialed resets the connection that wanted it, and is counted.
package faultproxy
