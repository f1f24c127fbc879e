// Package bench compares zactor with the bare machine (raw-swap, a Go channel) and with a peer (protoactor-go), on the
// same workloads, through one interface, in one run. It is a module of its own: the peer and what it depends on stay out
// of zgame's go.mod.
//
// A [System] brings a workload's actors to life in its own idiom; a [Row] is one line of the table: what is done, against
// which system it is set, and what zgame must and aims to reach. [Run] takes the measurements, interleaved: in each
// round, for each row, one system after the other, so that what else the machine does hits all alike. Ratios are taken
// within a round; the median of the rounds counts.
//
// cmd/peers prints the table; `make bench-peers` runs it. The tests run each workload of each system for a moment and
// look at whether every message was handled, not at time.
package bench
