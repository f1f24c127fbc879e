package zactor

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Unlimited as Policy.MaxRestarts lets an actor fail as often as it does.
const Unlimited = math.MaxInt

// maxHistory bounds what an actor remembers of its failures.
const maxHistory = 1024

// Directive says what follows a failure.
type Directive uint8

// The directives.
const (
	Restart  Directive = iota // a fresh instance from the factory goes on with the messages that wait
	Resume                    // the same instance, with its state as the failure left it, goes on with the next message
	Stop                      // the actor ends
	Escalate                  // the actor ends, and the failure becomes its parent's
)

// String returns restart, resume, stop or escalate.
func (d Directive) String() string {
	if int(d) < len(directiveNames) {
		return directiveNames[d]
	}
	return fmt.Sprintf("directive %d", d)
}

var directiveNames = [...]string{"restart", "resume", "stop", "escalate"}

// Policy says what happens to an actor that panics, or whose restart fails. By default it starts again with fresh state
// from its factory and goes on with the messages that wait, up to MaxRestarts times within Window; the next failure ends it.
type Policy struct {
	// Decide picks the directive for a cause: *PanicError, *EscalatedError, or what a restart failed with. It must be a
	// pure function; if it panics, the actor stops. Defaults to Restart for all. Resume does not count as a restart; a failed restart has
	// nothing to resume and is tried again.
	Decide func(cause error) Directive
	// MaxRestarts within Window; -1 for none, Unlimited for no limit, at most 1,024 else. Defaults to 5.
	MaxRestarts int
	// Window is the time that a failure counts. Defaults to 10 s.
	Window time.Duration
	// PastLimit is what the failure after MaxRestarts leads to: Stop or Escalate. Defaults to Stop.
	PastLimit Directive
	// MinBackoff is the wait before the second restart within Window (the first is at once); each further one waits
	// twice as long, up to MaxBackoff. Messages wait meanwhile, within the mailbox's bound. -1 for none. Defaults to 10 ms.
	MinBackoff time.Duration
	// MaxBackoff defaults to 1 s.
	MaxBackoff time.Duration
}

func (p Policy) withDefaults() Policy {
	if p.MaxRestarts == 0 {
		p.MaxRestarts = 5
	}
	if p.Window == 0 {
		p.Window = 10 * time.Second
	}
	if p.PastLimit == Restart {
		p.PastLimit = Stop
	}
	if p.MinBackoff == 0 {
		p.MinBackoff = 10 * time.Millisecond
	}
	if p.MaxBackoff == 0 {
		p.MaxBackoff = time.Second
	}
	return p
}

func (p Policy) validate() error {
	var errs []error
	if p.MaxRestarts < -1 || p.MaxRestarts > maxHistory && p.MaxRestarts != Unlimited {
		errs = append(errs, fmt.Errorf("zactor: Policy.MaxRestarts is %d: want -1 to %d, or Unlimited", p.MaxRestarts, maxHistory))
	}
	if p.Window < 0 {
		errs = append(errs, fmt.Errorf("zactor: Policy.Window is %v: want a positive duration", p.Window))
	}
	if p.PastLimit != Stop && p.PastLimit != Escalate {
		errs = append(errs, fmt.Errorf("zactor: Policy.PastLimit is %v: want Stop or Escalate", p.PastLimit))
	}
	if p.MaxBackoff < 0 {
		errs = append(errs, fmt.Errorf("zactor: Policy.MaxBackoff is %v: want a positive duration", p.MaxBackoff))
	}
	return errors.Join(errs...)
}

// verdict is what a Policy decides.
type verdict struct {
	do    Directive
	delay time.Duration // before a Restart
}

// decide is a pure function of the policy, the failures before, now, and the cause: what to do, after which wait, and the
// failures to remember. history is in rising order and reused.
func (p Policy) decide(history []time.Time, now time.Time, cause error) (verdict, []time.Time) {
	do := Restart
	if p.Decide != nil {
		do = p.Decide(cause)
	}
	if do == Resume {
		if failedStart(cause) == nil {
			return verdict{do: Resume}, history
		}
		do = Restart
	}
	old := 0
	for old < len(history) && now.Sub(history[old]) > p.Window {
		old++
	}
	history = append(history[:0], history[old:]...)
	if len(history) >= maxHistory {
		history = append(history[:0], history[1:]...)
	}
	history = append(history, now)
	n := len(history)
	switch {
	case do == Stop || do == Escalate:
		return verdict{do: do}, history
	case p.MaxRestarts < 0 || p.MaxRestarts != Unlimited && n > p.MaxRestarts:
		return verdict{do: p.PastLimit}, history
	}
	v := verdict{do: Restart}
	if n > 1 && p.MinBackoff > 0 {
		v.delay = p.MinBackoff
		for i := 2; i < n && v.delay < p.MaxBackoff; i++ {
			v.delay *= 2
		}
		v.delay = min(v.delay, p.MaxBackoff)
	}
	return v, history
}

// failedStart returns cause if it is that of a restart, nil if it is a panic of an actor that was up.
func failedStart(cause error) error {
	var p *PanicError
	var child *EscalatedError
	if errors.As(cause, &p) || errors.As(cause, &child) {
		return nil
	}
	return cause
}
