// Package ferret runs FerretDB v1 on SQLite inside the process, behind a proxy that makes it fit for tests of
// compare-and-set: a third party's server of MongoDB's protocol, where no MongoDB can be installed.
//
//	srv, err := ferret.Start(t.TempDir())
//	defer srv.Stop()
//	s, err := mongostore.New(mongostore.Config{URI: srv.URI()})
//
// # What it is not
//
// FerretDB v1.24.2 parses, filters, updates and projects as MongoDB does. It differs in these points, of which the tests
// say what they need to say:
//
//   - An update is a read and a write apart: alone, it lets many writers of one revision win. The proxy lets one
//     writing command through at a time, and the next when the answer is there.
//   - It ignores write concern, and knows no sessions: the client sends no transaction numbers and retries no writes.
//     The golden commands of mongostore are held against a scripted server instead.
//   - It ignores read concern. Its reads see the last write, being one process.
//   - It has no TTL and no partial indexes. The proxy answers such a createIndexes itself.
//   - It answers messages that want no answer (moreToCome). The proxy drops those answers.
//   - It looks at every document of a collection to find one. Keep collections small.
//
// # Goroutines
//
// FerretDB's own, and the proxy's: one that accepts, one for each connection. Stop ends all.
package ferret

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/FerretDB/FerretDB/ferretdb"
)

// Server is FerretDB with its proxy.
type Server struct {
	*Proxy
	cancel context.CancelFunc
	done   chan struct{} // closed when FerretDB has ended
}

// Start starts both, with the data under dir, and waits until they answer.
func Start(dir string) (*Server, error) {
	db, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: "127.0.0.1:0"},
		Logger:    slog.New(slog.DiscardHandler),
		Handler:   "sqlite",
		SQLiteURL: "file:" + strings.TrimSuffix(dir, "/") + "/",
	})
	if err != nil {
		return nil, fmt.Errorf("ferret: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{cancel: cancel, done: make(chan struct{})}
	go func() { // ends when Stop cancels; Stop waits
		defer close(s.done)
		_ = db.Run(ctx)
	}()
	addr, ok := strings.CutPrefix(strings.TrimSuffix(db.MongoDBURI(), "/"), "mongodb://")
	if !ok {
		s.stop()
		return nil, errors.New("ferret: no address")
	}
	if s.Proxy, err = NewProxy(addr); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// Stop ends the proxy and FerretDB and waits for both.
func (s *Server) Stop() {
	s.Proxy.Stop()
	s.stop()
}

func (s *Server) stop() {
	s.cancel()
	<-s.done
}
