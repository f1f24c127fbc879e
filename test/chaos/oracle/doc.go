// Package oracle says whether what was seen of lists, from outside, is as it is promised. It knows nothing of the product: it is given
// what the clients saw (Op), what the handlers wrote down (Run), what the store wrote (Write) and what was done to the processes
// (Proc), and returns what is wrong, in words.
//
//   - Linear: the history of each list is linearizable.
//   - Runs: no two executions of one list overlap, none ran twice under one request.
//   - Ends: every request ended exactly once.
//   - Final: every acknowledged append is in the final state, once, in order; none that was not executed is.
//   - Journal: route versions and revisions in the store rise, by one.
//
// All times are nanoseconds of one monotonic clock, the host's.
package oracle

// Chain is the hash of a list with op appended to one with the hash h. An empty list has the hash 0.
func Chain(h, op uint64) uint64 {
	x := h*0x9e3779b97f4a7c15 + op + 1
	x ^= x >> 29
	x *= 0xbf58476d1ce4e5b9
	return x ^ x>>32
}
