// Package gate compares a gate (zgate with sessions, envelopes, and one hop to an actor of a zactor.Group, found by zroute, as in a
// node) with a bare TCP echo of a goroutine a connection, in one run.
//
// Each server is a process of its own on one core: this program again, see [Child]. The clients are this process, on another core: one
// thread with epoll, which sends and checks every message. The server's own CPU time (user and system) is the figure that holds
// on a noisy machine; where the table says a time or a rate, it is by the clock. In each round each row is measured at one server
// and right after at the other; ratios are taken within a round, and the median of the rounds counts.
//
// cmd/gate prints the table; `make bench-gate` runs it. Linux only.
package gate
