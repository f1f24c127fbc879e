// Package chaospb is what the nodes of the chaos tests and the tests have in common: messages, and where lists are.
package chaospb

import "zgame/zmsg"

// ListType is the type of lists in keys, Bucket where the store keeps them.
const (
	ListType = 50
	Bucket   = "chaos"
)

// Key returns the key of a list.
func Key(list string) zmsg.Key { return zmsg.Key{Type: ListType, ID: list} }
