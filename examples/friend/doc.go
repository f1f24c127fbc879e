// Package friend is the friend example: who is whose friend, at any node.
//
// Each user has a list, a stateful object (lists.go). What it says and hears is decided by pure functions (stance.go), which are proven against whatever
// a network and crashes may do. Change it by beginning there. Which friends are there comes from the directory of users (presence.go).
package friend
