// Package zstore is the contract of the store that keeps stateful actors: records of ownership and state in one
// document, changed by compare-and-set alone. Drivers: mongostore (MongoDB, for production), kvstore (NATS JetStream,
// the embedded default), memstore (tests and ztest). Package zstoretest holds every driver to the contract.
//
//	wid := zstore.NewWriteID()
//	rec, err := s.Read(ctx, key)
//	if errors.Is(err, zstore.ErrNotFound) {
//		rec, err = s.Create(ctx, key, self, zstore.Write{State: first}, wid)
//	}
//	rec, err = s.Claim(ctx, key, rec.Own, rec.Rev, self, zstore.NewWriteID())
//	rev, err := s.Save(ctx, key, rec.Own, rec.Rev, zstore.Write{State: next}, zstore.NewWriteID())
//	// ErrConflict: somebody else wrote; read again. ErrUnknown: see Resolve.
//
// # Promises
//
//   - A write happens as a whole or not at all, and only if owner, route version and revision are as the caller said.
//     Of any number of writers of one revision, one wins.
//   - The revision rises by one with each write, the route version by one with each change of owner (Claim, Move,
//     Delete) and with nothing else. Neither is ever used again, not even after a deletion, for as long as the driver
//     keeps tombstones (a day at least).
//   - Read sees the last acknowledged write of anybody.
//   - What a newer version of zgame has put into a document survives a write by an older one.
//
// # Failure
//
// Every error says whether something was written. ErrUnknown alone does not: the write may have landed, or may land
// yet. Issue the same write with the same WriteID again, which is safe any number of times; Resolve does just that.
// "Not landed, says a read" is no proof: only another write to the record ends the chance that it lands later.
//
// # Goroutines
//
// The package has none; drivers say what theirs are.
package zstore
