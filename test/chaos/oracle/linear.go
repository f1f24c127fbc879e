package oracle

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// listState is a list as the model sees it: its length and the hash of all of it.
type listState struct{ n, hash uint64 }

// model is a list that is appended to and read. Every answer says the whole list by its hash.
var model = porcupine.Model{
	Init: func() any { return listState{} },
	Step: func(state, input, output any) (bool, any) {
		s := state.(listState)
		if op := input.(uint64); op != 0 {
			s = listState{s.n + 1, Chain(s.hash, op)}
		}
		return s == output.(listState), s
	},
}

// Linear checks that the history of each list, with its final state as the last read, is linearizable. What was not executed is
// left out; so are reads that were not answered. An append of unknown outcome stays open for ever: it may take effect at any
// time after it began, or never.
//
// Such an append is in the final list, or never took effect before the last read, for nothing is ever taken from a list. So its
// place is known, or it is left out: without that the search is exponential in their number. Nothing is lost by it: an order that puts
// one of them elsewhere ends in another list.
func Linear(ops []Op, final Final, limit time.Duration) (faults []string) {
	keys := byKey(ops)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		list := final[key]
		at, hashes := index(list), chains(list)
		var history []porcupine.Operation
		var last int64
		for _, o := range keys[key] {
			last = max(last, o.Call, o.Return)
			seen, end := listState{o.Len, o.Hash}, o.Return
			switch o.Outcome {
			case OK:
			case NotExecuted:
				continue
			case Unknown:
				i := at[o.Append]
				if i == 0 {
					continue
				}
				seen, end = listState{uint64(i), hashes[i]}, math.MaxInt64
			}
			history = append(history, porcupine.Operation{ClientId: len(history), Input: o.Append, Call: o.Call, Output: seen, Return: end})
		}
		n := uint64(len(list))
		history = append(history, porcupine.Operation{ClientId: len(history), Input: uint64(0), Call: last + 1, Output: listState{n, hashes[n]}, Return: math.MaxInt64})
		switch porcupine.CheckOperationsTimeout(model, history, limit) {
		case porcupine.Ok:
		case porcupine.Illegal:
			faults = append(faults, fmt.Sprintf("linear: list %s: its history of %d operations is not linearizable", key, len(history)))
		case porcupine.Unknown:
			faults = append(faults, fmt.Sprintf("linear: list %s: its history of %d operations was not judged within %v", key, len(history), limit))
		}
	}
	return faults
}

// chains returns the hash of each prefix of the list.
func chains(list []uint64) []uint64 {
	h := make([]uint64, len(list)+1)
	for i, op := range list {
		h[i+1] = Chain(h[i], op)
	}
	return h
}
