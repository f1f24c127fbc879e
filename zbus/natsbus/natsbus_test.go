package natsbus_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"zgame/internal/embedded"
	"zgame/zbus"
	"zgame/zbus/natsbus"
	"zgame/zbus/zbustest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const within = time.Minute

func dial(tb testing.TB, cfg natsbus.Config) *natsbus.Bus {
	tb.Helper()
	cfg.ReconnectWait = 5 * time.Millisecond
	b, err := natsbus.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := b.Ready(ctx); err != nil {
		tb.Fatal(err)
	}
	return b
}

func closeBus(tb testing.TB, b *natsbus.Bus) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		tb.Errorf("close: %v", err)
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	zbustest.Run(t, func(t *testing.T) zbustest.Fixture {
		t.Helper()
		dir := t.TempDir()
		srv, err := embedded.StartNATS(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { srv.Stop() })
		url, port := srv.URL(), srv.Port()
		return zbustest.Fixture{
			Bus: func(tb testing.TB) zbus.Bus {
				tb.Helper()
				return dial(tb, natsbus.Config{URL: url, Pending: 9000})
			},
			SetUp: func(tb testing.TB, up bool) {
				tb.Helper()
				if !up {
					srv.Stop()
					return
				}
				again, err := embedded.StartNATS(dir, port)
				if err != nil {
					tb.Fatal(err)
				}
				srv = again
			},
			Pending:       9000,
			Subscriptions: func() int { return srv.Subscriptions() },
		}
	})
}

func TestServerStartsLater(t *testing.T) {
	t.Parallel()
	port, err := embedded.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))

	b, err := natsbus.New(natsbus.Config{URL: "nats://user:secret@" + addr, ReconnectWait: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer closeBus(t, b)
	if b.Up() {
		t.Error("up without a server")
	}
	if err := b.Publish("a", "", nil); !errors.Is(err, zbus.ErrDown) {
		t.Errorf("publish: %v, want ErrDown", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = b.Ready(ctx)
	if !errors.Is(err, zbus.ErrDown) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), addr) {
		t.Errorf("ready: %v, want ErrDown with %s", err, addr)
	}
	if err != nil && strings.Contains(err.Error(), "secret") {
		t.Errorf("the error tells the password: %v", err)
	}
	srv, err := embedded.StartNATSAuth(t.TempDir(), port, "user", "secret")
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Stop()
	ctx, cancel = context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := b.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	if err := b.Publish("a", "", nil); err != nil {
		t.Error(err)
	}
}

func TestPassword(t *testing.T) {
	t.Parallel()
	srv, err := embedded.StartNATSAuth(t.TempDir(), 0, "user", "secret")
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Stop()
	closeBus(t, dial(t, natsbus.Config{URL: srv.URL(), User: "user", Password: "secret"}))

	b, err := natsbus.New(natsbus.Config{URL: srv.URL(), User: "user", Password: "wrong"})
	if err == nil {
		defer closeBus(t, b)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err = b.Ready(ctx)
	}
	if err == nil || !strings.Contains(strings.ToLower(err.Error()), "authorization") {
		t.Errorf("wrong password: %v", err)
	}
}

func TestLameDuck(t *testing.T) {
	t.Parallel()
	srv, err := embedded.StartNATS(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Stop()
	b := dial(t, natsbus.Config{URL: srv.URL()})
	defer closeBus(t, b)
	leaving, down := make(chan struct{}), make(chan struct{})
	defer b.Observe(zbus.Events{Leaving: func() { close(leaving) }, Down: func(error) { close(down) }})()
	srv.LameDuck()
	for name, ch := range map[string]chan struct{}{"leaving": leaving, "down": down} {
		select {
		case <-ch:
		case <-time.After(within):
			t.Errorf("%s not told", name)
		}
	}
}

func TestConfigFaultsTogether(t *testing.T) {
	t.Parallel()
	_, err := natsbus.New(natsbus.Config{
		URL: "http://x,nats://", User: "u", Token: "t", Pending: -1, PendingBytes: -1, CertFile: "c", PingInterval: -1,
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{`scheme "http"`, "no host", "exclude", "Pending is", "PendingBytes is", "KeyFile", "PingInterval"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in: %v", want, err)
		}
	}
}
