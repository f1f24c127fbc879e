package znode_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"zgame/examples/chat/chatpb"
	"zgame/internal/embedded"
	"zgame/zactor"
	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/znode"
)

// eventually waits until ok is true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// freePort is a port of loopback that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	port, err := embedded.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// certificate writes a certificate for this machine, and its key.
func certificate(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AddCert(parsed)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key, pool
}

// X7: the gate with and without TLS: Start returns when it is ready, others read of it in the list, and it speaks.
func TestReadyOnEachTransport(t *testing.T) {
	t.Parallel()
	cert, key, pool := certificate(t)
	r := newRig()
	watcher := start(t, r.config("watcher", znode.App{}))
	for _, scheme := range []string{"ws", "wss"} {
		cfg := r.config(scheme, znode.App{})
		if scheme == "wss" {
			cfg.Settings.Gate.TLS.Cert, cfg.Settings.Gate.TLS.Key = cert, key
		}
		n := start(t, cfg)
		if err := n.Ready(t.Context()); err != nil {
			t.Errorf("%s: not ready when Start has returned: %v", scheme, err)
		}
		eventually(t, "it is in the list", func() bool {
			for _, other := range watcher.Nodes() {
				if other.Ref == n.Self() && other.State == zdiscovery.Ready {
					return other.Gate == n.GateURL() && strings.HasPrefix(other.Gate, scheme+"://localhost:")
				}
			}
			return false
		})
		host := strings.TrimSuffix(strings.TrimPrefix(n.GateURL(), scheme+"://"), "/ws")
		if scheme == "wss" {
			c, err := (&tls.Dialer{Config: &tls.Config{RootCAs: pool}}).DialContext(t.Context(), "tcp", host)
			if err != nil {
				t.Errorf("TLS: %v", err)
				continue
			}
			c.Close()
			continue
		}
		if status, _, _ := get(t, "http://"+host+"/ws"); status < 400 || status >= 500 { // no upgrade was asked for
			t.Errorf("a plain request to the gate: %d", status)
		}
	}
}

// X8: without its servers a node fails the start, names each that is not there, where, and how to do without it; and no port of its
// own was ever open.
func TestStartWithoutServers(t *testing.T) {
	t.Parallel()
	nats, etcd := freePort(t), freePort(t)
	s := znode.DefaultSettings()
	s.NATS.URL, s.Etcd.Endpoints, s.Store.Driver = "nats://user:secret@"+nats, []string{"http://" + etcd}, "kv"
	s.Gate.Address, s.Admin.Address, s.Page.Address = freePort(t), freePort(t), freePort(t)
	s.Start.Timeout, s.Gate.Auth.Kind = time.Second, "dev"
	n, err := znode.New(znode.Config{Settings: s, App: znode.App{}})
	if err != nil {
		t.Fatal(err)
	}
	var ended atomic.Bool
	var open atomic.Int64
	var dialers sync.WaitGroup
	for _, port := range []string{s.Gate.Address, s.Admin.Address, s.Page.Address} {
		dialers.Go(func() { // ends when Start has returned
			for !ended.Load() {
				if c, err := net.DialTimeout("tcp", port, time.Second); err == nil {
					c.Close()
					open.Add(1)
				}
				time.Sleep(time.Millisecond) // not a flood
			}
		})
	}
	err = n.Start(t.Context())
	ended.Store(true)
	dialers.Wait()
	if err == nil {
		t.Fatal("started")
	}
	for _, want := range []string{"NATS at", nats, "etcd at", etcd, "the store (kv)", "run the command dev"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Error("the error has the password")
	}
	if open.Load() > 0 {
		t.Errorf("a port was open %d times before there were servers", open.Load())
	}
}

// Long before a start gives up, the log says whom it waits for, once each, without the password.
func TestMissingServersAreNamedEarly(t *testing.T) {
	t.Parallel()
	nats, etcd := freePort(t), freePort(t)
	s := znode.DefaultSettings()
	s.NATS.URL, s.Etcd.Endpoints, s.Store.Driver = "nats://user:secret@"+nats, []string{"http://" + etcd}, "kv"
	s.Gate.Enabled, s.Admin.Address, s.Start.Timeout = false, "", patience
	log := &logLines{seen: make(chan string, 100)}
	n, err := znode.New(znode.Config{Settings: s, App: znode.App{}, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- n.Start(ctx) }() // ends below
	named := map[string]bool{}
	for len(named) < 2 {
		select {
		case line := <-log.seen:
			if strings.Contains(line, "secret") {
				t.Error("the log has the password")
			}
			if !strings.Contains(line, "a server is not there yet") {
				continue
			}
			for _, server := range []string{"server=NATS address=nats://user:xxxxx@" + nats, "server=etcd address=http://" + etcd} {
				if strings.Contains(line, server) {
					named[server] = true
				}
			}
			if strings.Contains(line, "kv") {
				t.Error("the store is in NATS")
			}
		case err := <-ended:
			t.Fatalf("the start has ended, and named %v: %v", named, err)
		}
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("started")
	}
}

// logLines hands on what is logged, a line at a time.
type logLines struct{ seen chan string }

func (l *logLines) Write(p []byte) (int, error) {
	select {
	case l.seen <- string(p):
	default:
	}
	return len(p), nil
}

// X10: a node whose actors are still being set up is asked from the moment on that it has a name: by address, by id, and by a client. It
// answers, or says that it is not there yet; nothing panics, and when it is ready the id has a route.
func TestAskedFromTheFirstMoment(t *testing.T) {
	t.Parallel()
	r := newRig()
	asker := start(t, r.config("asker", znode.App{}))
	goOn := make(chan struct{})
	spawned := make(chan zmsg.Address, 1)
	var log bytes.Buffer
	cfg := r.config("late", znode.App{Setup: func(n *znode.Node) error {
		ref, err := n.Spawn("service", func() zactor.Actor { return service{} })
		if err != nil {
			return err
		}
		spawned <- ref.Address()
		<-goOn // the rest takes long
		return nil
	}})
	cfg.Settings.Start.Timeout = patience
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	var stop atomic.Bool
	var hammers sync.WaitGroup
	var answered, refused atomic.Int64
	hammer := func(to zactor.Ref) {
		hammers.Go(func() { // ends with the test
			for !stop.Load() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				_, err := zactor.Ask[chatpb.Members](ctx, to, &chatpb.Who{})
				cancel()
				switch {
				case err == nil:
					answered.Add(1)
				case zmsg.OutcomeOf(err) == zmsg.NotExecuted:
					refused.Add(1)
				default:
					t.Errorf("%v: %v (%v)", to, err, zmsg.OutcomeOf(err))
					return
				}
				time.Sleep(100 * time.Microsecond) // a load, not a flood
			}
		})
	}
	hammer(asker.Group().ByID())
	for _, guess := range []uint64{1, 2, 1 << 40} { // the epoch is not known yet: nobody has it
		hammer(asker.Group().Ref(zmsg.Address{Node: zmsg.NodeRef{ID: "late", Epoch: 1}, Actor: guess}))
	}
	n, err := znode.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan error, 1)
	go func() { started <- n.Start(context.Background()) }() // ends with the start
	service := <-spawned
	for _, actor := range []uint64{service.Actor, service.Actor + 1} {
		hammer(asker.Group().Ref(zmsg.Address{Node: service.Node, Actor: actor}))
	}
	eventually(t, "it answers, and refuses", func() bool { return answered.Load() > 20 && refused.Load() > 100 })
	for _, other := range asker.Nodes() {
		if other.Ref == service.Node && (other.State != zdiscovery.Starting || len(other.Actors) > 0) {
			t.Errorf("before it is ready the list has it as %s with %d actors", other.State, len(other.Actors))
		}
	}
	close(goOn)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	eventually(t, "its id has a route", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := zactor.Ask[chatpb.Members](ctx, asker.Group().ByID(), &chatpb.Who{})
		return err == nil
	})
	stop.Store(true)
	hammers.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		t.Error(err)
	}
	if strings.Contains(log.String(), "panic") {
		t.Errorf("the log tells of a panic:\n%s", log.String())
	}
}

// service answers Who, and ends at a Leave.
type service struct{}

func (service) Handlers() []zactor.Handler {
	return []zactor.Handler{
		zactor.Handle(func(*zactor.Context, *chatpb.Who) (*chatpb.Members, error) { return &chatpb.Members{}, nil }, zactor.FromClients()),
		zactor.HandleTell(func(*zactor.Context, *chatpb.Leave) error { panic("told to") }),
	}
}

// An actor of App.Vital that is gone past its restart limit makes the node not ready, by name; the rest goes on. A name that
// Setup has not spawned fails the start.
func TestVitalActors(t *testing.T) {
	t.Parallel()
	r := newRig()
	app := znode.App{Vital: []string{"shop"}, Setup: func(n *znode.Node) error {
		_, err := n.Spawn("shop", func() zactor.Actor { return service{} }, zactor.WithPolicy(zactor.Policy{MaxRestarts: -1}))
		return err
	}}
	n := start(t, r.config("n1", app))
	if err := n.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	ref, _ := n.Group().Lookup("shop")
	if err := ref.Tell(&chatpb.Leave{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "not ready", func() bool { return n.Ready(t.Context()) != nil })
	if status, body, _ := get(t, "http://"+n.AdminAddr()+"/readyz"); status != 503 || !strings.Contains(body, `the actor "shop" is not there`) {
		t.Errorf("%d %q", status, body)
	}
	if status, _, _ := get(t, "http://"+n.AdminAddr()+"/livez"); status != 200 {
		t.Errorf("alive: %d", status)
	}
	app.Vital = []string{"shop", "shoop"}
	late, err := znode.New(r.config("n2", app))
	if err != nil {
		t.Fatal(err)
	}
	if err := late.Start(t.Context()); err == nil || !strings.Contains(err.Error(), `"shoop"`) {
		t.Errorf("a name that nobody has: %v", err)
	}
}

// P17, on a whole node, with a gate and without: two types of one id, and two handlers of one id, fail the start with both named.
func TestClashesFailTheStart(t *testing.T) {
	t.Parallel()
	// A second type with the id of chat.Who; options are copied, so that they are encoded as they should be.
	who := protodesc.ToDescriptorProto((&chatpb.Who{}).ProtoReflect().Descriptor())
	file := func(pkg, name string) protoreflect.FileDescriptor {
		d, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
			Name: new(pkg + ".proto"), Package: new(pkg), Syntax: new("proto3"),
			MessageType: []*descriptorpb.DescriptorProto{{Name: new(name), Options: who.GetOptions()}},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	twice := func(n *znode.Node) error {
		_, err := n.Spawn("two", func() zactor.Actor { return two{} })
		return err
	}
	for _, gate := range []bool{true, false} {
		for name, c := range map[string]struct {
			app  znode.App
			want []string
		}{
			"types":    {znode.App{Files: []protoreflect.FileDescriptor{file("one", "Ask"), file("other", "Demand")}}, []string{"1007", "one.Ask", "other.Demand"}},
			"handlers": {znode.App{Setup: twice}, []string{"1007 is handled twice", "handler 0 (chat.Who)", "handler 1 (chat.Who)"}},
		} {
			cfg := newRig().config("n1", c.app)
			cfg.Settings.Gate.Enabled = gate
			n, err := znode.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			err = n.Start(t.Context())
			if err == nil {
				t.Errorf("%s, gate %v: started", name, gate)
				_ = n.Stop(t.Context())
				continue
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s, gate %v: the error lacks %q: %v", name, gate, want, err)
				}
			}
		}
	}
}

// two has two handlers of one id.
type two struct{}

func (two) Handlers() []zactor.Handler {
	h := service{}.Handlers()
	return []zactor.Handler{h[0], zactor.HandleTell(func(*zactor.Context, *chatpb.Who) error { return errors.New("never") })}
}
