package embedded_test

import (
	"context"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"zgame/internal/embedded"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestNATSAnswersAndComesBackOnItsPort(t *testing.T) {
	dir := t.TempDir()
	n, err := embedded.StartNATS(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Stop()
	check := func(n *embedded.NATS) {
		t.Helper()
		nc, err := nats.Connect(n.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if got := nc.MaxPayload(); got != embedded.MaxPayload {
			t.Errorf("max payload %d, want %d", got, embedded.MaxPayload)
		}
		js, err := nc.JetStream()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.AccountInfo(); err != nil {
			t.Errorf("no JetStream: %v", err)
		}
	}
	check(n)
	n.Stop()
	n.Stop()
	again, err := embedded.StartNATS(dir, n.Port())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop()
	if again.URL() != n.URL() {
		t.Errorf("came back at %s, want %s", again.URL(), n.URL())
	}
	check(again)
}

func TestNATSPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	n, err := embedded.StartNATS(t.TempDir(), port)
	if err == nil {
		n.Stop()
		t.Fatal("started on a port in use")
	}
	if !strings.Contains(err.Error(), strconv.Itoa(port)) {
		t.Errorf("error does not name the port: %v", err)
	}
}

func TestEtcdAnswersAndKeepsItsData(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etcd")
	e, err := embedded.StartEtcd(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	open := func(e *embedded.Etcd) *clientv3.Client {
		t.Helper()
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{e.Endpoint()}, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := open(e)
	if _, err := c.Put(ctx, "a", "1"); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	_, port, _ := net.SplitHostPort(e.Endpoint())
	e.Stop()
	e.Stop()

	p, _ := strconv.Atoi(port)
	e, err = embedded.StartEtcd(dir, p)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Stop()
	c = open(e)
	defer func() { _ = c.Close() }()
	got, err := c.Get(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	if got.Count != 1 || string(got.Kvs[0].Value) != "1" {
		t.Errorf("after a restart: %v", got.Kvs)
	}
}

func TestEtcdPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	e, err := embedded.StartEtcd(t.TempDir(), port)
	if err == nil {
		e.Stop()
		t.Fatal("started on a port in use")
	}
	if !strings.Contains(err.Error(), strconv.Itoa(port)) {
		t.Errorf("error does not name the port: %v", err)
	}
}
