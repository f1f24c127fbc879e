// Package memstore is a zstore.Store in memory: for tests, and for ztest, which runs many nodes on one of them. Nothing
// survives the process.
//
//	db := memstore.New()          // a store
//	other := db.Share()           // a second client of the same records, closed by itself
//	other.SetFaults(func(op zstore.Op, k zmsg.Key) memstore.Fault { … })
//
// # Promises
//
// Those of zstore, with every write visible at once. Faults are injected by a hook for each client: the server is not
// there, the outcome is unknown (and the write landed, or did not, or lands only later), the call takes its time.
// Delays use the time package, so that they are virtual inside a testing/synctest bubble.
//
// # Goroutines
//
// None.
//
// # Failure
//
// Only what SetFaults asks for; after Close every call answers zstore.ErrUnavailable.
package memstore
