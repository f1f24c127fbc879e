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

// Policy says what happens to an actor that panics: it starts again with fresh state from its factory and goes on with the
// messages that wait, up to MaxRestarts times within Window; the next failure ends it.
type Policy struct {
	// MaxRestarts within Window; -1 for none, Unlimited for no limit, at most 1,024 else. Defaults to 5.
	MaxRestarts int
	// Window is the time that a failure counts. Defaults to 10 s.
	Window time.Duration
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
	if p.MaxBackoff < 0 {
		errs = append(errs, fmt.Errorf("zactor: Policy.MaxBackoff is %v: want a positive duration", p.MaxBackoff))
	}
	return errors.Join(errs...)
}

// verdict is what a Policy decides.
type verdict struct {
	restart bool
	delay   time.Duration
}

// decide is a pure function of the policy, the failures before and now: whether to restart, after which wait, and the
// failures to remember. history is in rising order and reused.
func (p Policy) decide(history []time.Time, now time.Time) (verdict, []time.Time) {
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
	if p.MaxRestarts < 0 || p.MaxRestarts != Unlimited && n > p.MaxRestarts {
		return verdict{}, history
	}
	v := verdict{restart: true}
	if n > 1 && p.MinBackoff > 0 {
		v.delay = p.MinBackoff
		for i := 2; i < n && v.delay < p.MaxBackoff; i++ {
			v.delay *= 2
		}
		v.delay = min(v.delay, p.MaxBackoff)
	}
	return v, history
}
