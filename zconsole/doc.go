// Package zconsole is the web console of a cluster: a page, and the API behind it, served by a port of its own of any node that has console.address set.
//
// It knows nothing by itself: what it shows it asks of the nodes' admin ports (package internal/adminport), as the commands of operators do. What it adds is
// who may do what: those ports have no password, the console has a token for those who look and one for those who act, and hands through nothing else than what
// stands in Handler.
//
// The page is plain modules and a style sheet, embedded as they are: there is no build. Everything that nodes say is text to it, never markup.
//
// # Goroutines
//
// A Console has none of its own: those of requests end with them; a trace that is followed, or a drain, ends with its request, after traceTime or drainTime, and by Close.
package zconsole
