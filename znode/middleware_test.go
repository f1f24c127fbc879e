package znode_test

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/znode"
)

type echo struct{}

func (echo) Handlers() []zactor.Handler {
	return []zactor.Handler{zactor.Handle(func(_ *zactor.Context, w *chatpb.Who) (*chatpb.Members, error) {
		return &chatpb.Members{Room: w.GetRoom()}, nil
	})}
}

// The application's middleware is around its handlers, its metrics and those of each message are at /metrics.
func TestMiddlewareOfANode(t *testing.T) {
	t.Parallel()
	seen := prometheus.NewCounter(prometheus.CounterOpts{Name: "app_seen_total", Help: "Messages that the application's middleware has seen."})
	cfg := newRig().config("a", znode.App{
		Middleware: func(n *znode.Node) []zactor.Middleware {
			n.Registerer().MustRegister(seen)
			return []zactor.Middleware{func(_ zactor.HandlerInfo, next zactor.Func) zactor.Func {
				return func(c *zactor.Context) error { seen.Inc(); return next(c) }
			}}
		},
		Setup: func(n *znode.Node) error {
			_, err := n.Spawn("echo", func() zactor.Actor { return echo{} })
			return err
		},
	})
	cfg.Settings.Actors.Measure = true
	n := start(t, cfg)
	ref, _ := n.Group().Lookup("echo")
	for range 3 {
		if _, err := zactor.Ask[chatpb.Members](context.Background(), ref, &chatpb.Who{Room: "go"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{
		"app_seen_total 3", `zgame_handler_handled_total{msg="chat.Who",result="ok"} 3`, `zgame_handler_seconds_count{msg="chat.Who"} 3`,
	} {
		eventually(t, "/metrics has "+want, func() bool { // a handler is measured when it has ended, which its asker need not wait for
			_, body, _ := get(t, "http://"+n.AdminAddr()+"/metrics")
			return strings.Contains(body, want)
		})
	}
}
