//go:build race

package zroute_test

// With the race detector the properties are looked at with fewer keys, and the rest is left to chance.
const (
	slower = 20
	slack  = 4
)
