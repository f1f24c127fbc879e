// Package bus compares a message between two nodes (zactor.Group, envelope, zbus.Link, natsbus, and the same on the other side)
// with the bare NATS client that it stands on, in one run.
//
// There are three processes, as in a cluster: the one that measures is a node, and starts itself again as the other node and as
// the NATS server; see [Child]. Both nodes have both a Link and a bare connection, on sockets of loopback. In each round,
// each row is measured bare and over the Link, one right after the other, so that what else the machine does hits both. Ratios
// are taken within a round; [Result] gives their median and how far they spread.
//
// cmd/bus prints the table; `make bench-bus` runs it.
package bus
