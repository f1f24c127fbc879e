package bus

import (
	"context"
	"errors"
	"os"

	"zgame/bench/internal/child"
	"zgame/internal/embedded"
)

// patience bounds everything that takes no time when all is well.
const patience = child.Patience

// Child runs what this process is to be, if another process of this program started it for that, and reports that it did: then
// the program ends with the error. main and TestMain call it first.
func Child() (was bool, err error) {
	return child.Run(map[string]child.Role{"nats": runServer, "node": runNode})
}

// runServer is the process of the NATS server.
func runServer(p *child.Parent) error {
	dir, err := os.MkdirTemp("", "zgame-bench-nats-")
	if err != nil {
		return err
	}
	srv, err := embedded.StartNATS(dir, 0)
	if err == nil {
		p.Say(srv.URL())
		p.Hear() // nothing: until the one that started it lets go
		srv.Stop()
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// bounded is a context for what takes no time when all is well.
func bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}
