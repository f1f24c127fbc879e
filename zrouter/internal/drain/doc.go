// Package drain decides in which order, to whom and how fast a node gives its objects to others: Plan is a state machine that does no I/O,
// asks no clock and starts no goroutine. Whoever drives it says which objects there are (Add), carries out the moves that Next returns,
// and tells how each ended (Ended).
//
//	          pick                    room at the target
//	added ------------> waiting ---------------------------> running --moved--> done
//	  ^                    |                                    |
//	  |                    | its target is busy or away,        | busy, refused: another target; failed: after a pause
//	  +--------------------+ and another one is not <-----------+ too often, or nobody can have it: given up, to be released
//
// # Promises, held by plan_test.go
//
//   - At most Limits.InFlight moves run, at most Limits.PerTarget to one node; a node that says that it is busy is left alone for a while,
//     and has fewer at once then. It has no more at once than it carries out without a wait, unless the time is short.
//   - No more than Limits.PerSecond begin in a second, but where the time is short.
//   - An object is moved by one move at a time, and to the node that the placement names among those that take objects.
//   - For each target the object for which nothing came for the longest time goes first.
//   - While something is left, a move runs, or Next names a time to ask again, or all that is left is given up.
package drain
