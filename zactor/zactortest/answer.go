package zactortest

import (
	"google.golang.org/protobuf/proto"

	"zgame/zactor"
)

// Answer is the outcome of a Request, when it is there. It belongs to the goroutine of the test.
type Answer[R any, PR interface {
	*R
	proto.Message
}] struct {
	steps *Steps
	done  bool
	value PR
	err   error
}

// Request asks an actor and does not wait: the test steps actors, or lets time pass, and then looks at the Answer. It ends by
// Config.AskTimeout as every request does. What cannot ask ends the test.
func Request[R any, PR interface {
	*R
	proto.Message
}](s *Steps, to zactor.Ref, req proto.Message) *Answer[R, PR] {
	s.tb.Helper()
	a := &Answer[R, PR]{steps: s}
	if _, err := s.group.Spawn("", func() zactor.Actor {
		return asker(func(c *zactor.Context) {
			zactor.Then(c, to, req, func(c *zactor.Context, value PR, err error) {
				a.done, a.value, a.err = true, value, err
				c.Stop()
			})
		})
	}, zactor.Private()); err != nil {
		s.tb.Fatalf("the test cannot ask: %v", err)
	}
	return a
}

// asker asks when it starts.
type asker func(c *zactor.Context)

func (a asker) Handlers() []zactor.Handler { return nil }

// OnStart asks.
func (a asker) OnStart(c *zactor.Context) error {
	a(c)
	return nil
}

// Done reports whether the outcome is there.
func (a *Answer[R, PR]) Done() bool { return a.done }

// Result steps until the actors are at rest, and returns the outcome. One that is not there then ends the test.
func (a *Answer[R, PR]) Result() (PR, error) {
	a.steps.tb.Helper()
	a.steps.Run()
	if !a.done {
		a.steps.tb.Fatalf("there is no outcome yet, and nobody has anything to do: Advance the clock?")
	}
	return a.value, a.err
}
