package znode

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"

	"zgame/internal/embedded"
	"zgame/zdiscovery"
	"zgame/zstore"
)

// Both users of NATS, the bus and the store, are let in by the same settings; a refusal names the settings to look at.
func TestNATSAccess(t *testing.T) {
	t.Parallel()
	srv, err := embedded.StartNATSWith(t.TempDir(), 0, func(o *natsserver.Options) { o.Authorization = "right" })
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Stop()
	s := DefaultSettings()
	s.NATS.URL, s.NATS.Token, s.Store.Driver = srv.URL(), "right", "kv"
	others := Backends{Discovery: struct{ zdiscovery.Discovery }{}}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	b, err := connect(ctx, &s, others, nil, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b.Discovery = nil
	if err := b.close(ctx); err != nil {
		t.Error(err)
	}

	s.NATS.Token = "hidden"
	others.Store = struct{ zstore.Store }{}
	short, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = connect(short, &s, others, nil, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "refused the token") || !strings.Contains(err.Error(), "look at nats.token") || strings.Contains(err.Error(), "hidden") {
		t.Errorf("got %v", err)
	}
	s.NATS.Token, s.NATS.Credentials = "", "/no/such/file"
	_, err = connect(short, &s, others, nil, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "/no/such/file") || !strings.Contains(err.Error(), "look at nats.credentials") {
		t.Errorf("got %v", err)
	}
}
