// Package zcli is the command line of a game server: a main.go calls Main with its App and has the commands dev, run,
// replay and what it adds.
//
//	func main() { zcli.Main(myApp()) }
//
// # Goroutines
//
// Main has one that waits for signals and ends with the process; dev has one for each node, which ends with the command.
//
// # Failure
//
// Exit codes: 0 done, 1 failed (the reason is on standard error), 2 wrong use, 130 a second signal while stopping.
package zcli
