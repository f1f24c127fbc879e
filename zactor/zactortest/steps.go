package zactortest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zactor"
)

// maxSteps is how many steps Run makes: actors that are still not at rest then never will be.
const maxSteps = 1_000_000

// Steps steps the actors of a group by hand, under a Clock of its own. It belongs to the goroutine of the test, which may
// call zactor.Ask too: that steps until the answer is there, and ends with ErrTimeout when nobody has anything to do any more.
type Steps struct {
	*zactor.Manual

	// Clock is the group's. Advance moves it and lets the actors handle what that brings; to let time pass while messages
	// wait, move the clock itself.
	Clock *Clock

	tb    testing.TB
	group *zactor.Group

	mu      sync.Mutex
	lost    []string // guarded by mu: messages that no handler ran for
	allowed bool     // guarded by mu
}

// NewSteps makes a group that is stepped by hand, and is shut down at the end of the test. Work that is left then, and
// messages that no handler ran for (other than for their deadline, or the end of an actor that was stopped), fail the test unless
// AllowLeftovers was called.
//
// Config.Clock may be a *Clock; it defaults to one that stands at 2026-01-01. Config.Seed defaults to 1: Context.Rand gives the same
// numbers in each run.
func NewSteps(tb testing.TB, cfg zactor.Config) (*zactor.Group, *Steps) {
	tb.Helper()
	if cfg.Clock == nil {
		cfg.Clock = NewClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	}
	clock, ok := cfg.Clock.(*Clock)
	if !ok {
		tb.Fatalf("NewSteps: Config.Clock is a %T, want a *zactortest.Clock or none", cfg.Clock)
	}
	if cfg.Seed == 0 {
		cfg.Seed = 1
	}
	s := &Steps{tb: tb, Clock: clock}
	told := cfg.OnDeadLetter
	cfg.OnDeadLetter = func(d zactor.DeadLetter) {
		s.note(d)
		if told != nil {
			told(d)
		}
	}
	g, m, err := zactor.NewManual(withNode(cfg))
	if err != nil {
		tb.Fatal(err)
	}
	s.Manual, s.group = m, g
	tb.Cleanup(func() {
		s.checkLeftovers()
		shutDown(tb, g)
	})
	return g, s
}

func (s *Steps) note(d zactor.DeadLetter) {
	switch d.Reason {
	case "expired", "cancelled", "stopped":
		return // what a test may bring about on purpose, and whoever asked was told
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = append(s.lost, fmt.Sprintf("message %d to %q: %s", d.ID, d.Name, d.Reason))
}

// AllowLeftovers lets the test end with work that is left and messages that nobody handles.
func (s *Steps) AllowLeftovers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allowed = true
}

// Leftovers says what is left to do, and which messages no handler ran for; nothing of both is "".
func (s *Steps) Leftovers() string {
	var lines []string
	for _, ref := range s.Ready() {
		lines = append(lines, fmt.Sprintf("%v has something to do (%d waiting)", ref, ref.Load()))
	}
	if n := s.Jobs(); n > 0 {
		lines = append(lines, fmt.Sprintf("%d pieces of work of Async wait to be run", n))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	lines = append(lines, s.lost...)
	return strings.Join(lines, "\n")
}

func (s *Steps) checkLeftovers() {
	s.tb.Helper()
	s.mu.Lock()
	allowed := s.allowed
	s.mu.Unlock()
	if left := s.Leftovers(); left != "" && !allowed && !s.tb.Failed() {
		s.tb.Errorf("the test leaves things undone (Run, or AllowLeftovers):\n%s", left)
	}
}

// Send gives the actor a message; what refuses it ends the test. The actor handles it when it is stepped.
func (s *Steps) Send(to zactor.Ref, msg proto.Message) {
	s.tb.Helper()
	if err := to.Tell(msg); err != nil {
		s.tb.Fatalf("%v refuses a %T: %v", to, msg, err)
	}
}

// Step lets the actor handle one thing: a message, a timer, a continuation. An actor with nothing to do ends the test.
func (s *Steps) Step(ref zactor.Ref) {
	s.tb.Helper()
	if !s.Manual.Step(ref) {
		s.tb.Fatalf("%v has nothing to do", ref)
	}
}

// Run steps until no actor has anything to do and no work of Async waits, and returns how many steps that took. Actors that
// keep each other busy for ever end the test.
func (s *Steps) Run() int {
	s.tb.Helper()
	n := s.Manual.Run(maxSteps)
	if n == maxSteps {
		s.tb.Fatalf("the actors do not come to rest within %d steps; these still have work:\n%s", n, s.Leftovers())
	}
	return n
}

// Advance runs what waits, then moves the clock on by d: what falls due on the way is handled at its own time, with all that
// follows from it.
func (s *Steps) Advance(d time.Duration) {
	s.tb.Helper()
	s.Run()
	s.Clock.Steps(d, func() { s.Run() })
}
