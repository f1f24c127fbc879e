// Package replay is an application with a fault, for the tests of the command replay.
package replay

import (
	"fmt"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/znode"
)

// App returns the application.
func App() znode.App {
	return znode.App{
		Name:   "replay",
		Actors: map[string]func() zactor.Actor{"replay.Counter": func() zactor.Actor { return &Counter{} }},
	}
}

// Counter counts lines, and fails at the third.
type Counter struct {
	lines  []string
	mended bool
}

// Mended makes a Counter that does not fail.
func Mended() zactor.Actor { return &Counter{mended: true} }

// Handlers is of zactor.Actor.
func (a *Counter) Handlers() []zactor.Handler {
	return []zactor.Handler{zactor.HandleTell(func(c *zactor.Context, m *chatpb.Say) error {
		a.lines = append(a.lines, fmt.Sprint(m.GetText(), c.Rand().IntN(100)))
		if len(a.lines) == 3 && !a.mended {
			panic(fmt.Sprintf("too many lines: %q", a.lines))
		}
		return nil
	})}
}
