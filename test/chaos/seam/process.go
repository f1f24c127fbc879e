//go:build linux

// Package seam lets a test hold a process at a step that it names, and do something to it, or to another, there: the process says
// by a socket which step it has reached, and goes on when it is told to.
package seam

import (
	"bufio"
	"fmt"
	"net"
	"path/filepath"
	"time"
)

// Step is a place in a node where it can be held.
type Step string

// The steps.
const (
	Claim      Step = "claim"      // an object is about to be claimed
	Claimed    Step = "claimed"    // the claim has returned
	Handoff    Step = "handoff"    // the object is frozen, its owner gives away what is in no field of its state
	Move       Step = "move"       // the owner is about to write the change of owner
	Moved      Step = "moved"      // that write has returned
	Activate   Step = "activate"   // the object comes into memory
	Adopt      Step = "adopt"      // the new owner gets what Handoff gave
	Deactivate Step = "deactivate" // the object leaves memory
)

const socket = "seam.sock"

// patience bounds how long a process is held: a test that has gone lets it go on.
const patience = 20 * time.Second

// Process is the side of the process that may be held.
type Process struct {
	Dir  string // where the socket is
	Node string
}

// Reach says that the process has reached the step with the object, and returns when it may go on. Where nobody listens it
// returns at once.
func (p *Process) Reach(step Step, key string) {
	c, err := net.DialTimeout("unix", filepath.Join(p.Dir, socket), patience) //nolint:noctx // it is bounded
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintf(c, "%s %s %s\n", p.Node, step, key); err != nil {
		return
	}
	_, _ = bufio.NewReader(c).ReadString('\n') // it is told to go on, or the test has gone
}
