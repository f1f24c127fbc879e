// Package znode puts a node together: settings and an App become a running node. It is the one place where all
// packages meet, and the only library package that knows the drivers.
//
//	node, err := znode.New(znode.Config{Settings: settings, App: app, Logger: log})
//	…
//	err = node.Run(ctx) // serves until ctx ends, then drains
//
// Node.Start reads as the start order, Node.Stop as the stop order.
//
// # Promises
//
// Ports open only when everything behind them answers. A server that is not there fails the start with its name and
// address. Stop tells clients to come back elsewhere (3001 and a delay), finishes what is queued within its deadline,
// leaves discovery, and reports what it had to cut.
//
// # Goroutines
//
// A node owns two: one follows discovery, one announces changes of the local table. Both end in Stop. Actors, gate,
// bus and discovery own theirs; Stop ends them too.
//
// # Failure
//
// A node that loses its membership in discovery ends Run with an error: others may take its place, so it must not go on.
package znode
