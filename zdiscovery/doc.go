// Package zdiscovery says who is alive: each node registers under a lease, gets an epoch that no start before had, and
// watches the list of all nodes with what they say about themselves. Discovery is the contract of a driver: etcddisc
// (production), memdisc (in memory).
//
//	member, err := disc.Join(ctx, zdiscovery.Node{Ref: zmsg.NodeRef{ID: "node-1"}, State: zdiscovery.Starting})
//	snapshots, err := disc.Watch(ctx)
//	for s := range snapshots {
//		joined, left, changed := zdiscovery.Diff(old, s)
//		...
//	}
//
// # Promises
//
//   - An id has one member at a time; its epoch is greater than every epoch the id had before.
//   - One lease for each node, renewed while the process lives. A process that dies is off the list within the lease.
//   - A watch shows the list as it was at some moment, each newer than the one before; a slow reader misses moments
//     between, never the last.
//   - Before ServeUntil nobody else is Member.Ref, as far as clocks run at the same speed (the safe part of the lease
//     is 0.6 of it; what is left is for drift and pauses).
//   - A name has one leader at a time, as far as clocks run at the same speed, and terms only rise: see Member.Campaign. A leader
//     that dies is followed within the lease, one that leaves or resigns at once.
//
// # Goroutines
//
// The package has none; drivers say what theirs are.
//
// # Failure
//
// While the service is away the last list stands, members stay members, and ServeUntil passes. When it is back the
// lease is either still there (same epoch), or gone: Lost is closed.
package zdiscovery
