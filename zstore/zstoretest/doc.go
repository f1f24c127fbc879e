// Package zstoretest holds drivers of zstore to the contract.
//
//	func TestConformance(t *testing.T) {
//		zstoretest.Run(t, zstoretest.Features{}, func(t *testing.T) zstore.Store { … })
//	}
//
// Run goes through every method and every error, the numbers, repeated writes, the limits, and the races (of sixteen
// writers one wins each revision). Model runs random calls against a map. Both need a store whose records nobody else
// touches; every test opens a new one and closes it.
package zstoretest
