package zcli

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"zgame/internal/embedded"
	"zgame/internal/logging"
	"zgame/internal/settings"
	"zgame/znode"
)

// maxDevNodes bounds --nodes: more in one process shows nothing new.
const maxDevNodes = 16

// devFlags are the flags of `dev`.
type devFlags struct {
	nodes             int
	data              string
	fresh             bool
	gate, page, admin string
	console           string // "": see consoleAddress; off: none
	level             string
	plaintext         bool
}

// devCommand is `dev`: everything inside this process.
func devCommand(app znode.App) Command {
	return Command{
		Name: "dev",
		Help: "run everything in this process: nodes, NATS, etcd and the store (the default)",
		Run: func(ctx context.Context, env Env, args []string) error {
			var f devFlags
			flags := flag.NewFlagSet(env.Name+" dev", flag.ContinueOnError)
			flags.IntVar(&f.nodes, "nodes", 1, "how many nodes; node k listens on each port plus k-1")
			flags.StringVar(&f.data, "data", ".zgame", "directory of the embedded servers' data")
			flags.BoolVar(&f.fresh, "fresh", false, "forget the data of earlier runs")
			flags.StringVar(&f.gate, "gate", "127.0.0.1:7000", "gate address of the first node")
			flags.StringVar(&f.page, "page", "127.0.0.1:8080", "page address of the first node")
			flags.StringVar(&f.admin, "admin", "127.0.0.1:9090", "admin address of the first node: /metrics, /livez, /readyz")
			flags.StringVar(&f.console, "console", "", "web console address of the first node; off: none; default: that of --admin, the port plus 100 (0 stays 0)")
			flags.BoolVar(&f.plaintext, "insecure-plaintext", false, "let --gate be an address that other machines reach, without TLS")
			flags.StringVar(&f.level, "log", "warn", "log level: debug, info, warn, error")
			if err := Parse(flags, env, args); err != nil {
				return err
			}
			if f.nodes < 1 || f.nodes > maxDevNodes {
				return Misuse(flags, "--nodes %d: expected 1 to %d", f.nodes, maxDevNodes)
			}
			s, err := devBase(env, app, flags, f)
			if err != nil {
				return err
			}
			return dev(ctx, env, app, f, s)
		},
	}
}

// dev runs nodes that have the settings base.
func dev(ctx context.Context, env Env, app znode.App, f devFlags, base znode.Settings) (err error) {
	log, err := logging.New(env.Stderr, base.Log.Level, base.Log.Format)
	if err != nil {
		return fmt.Errorf("--log: %w", err)
	}
	lock, err := lockData(f.data, base.Gate.Address)
	if err != nil {
		return err
	}
	defer lock.release()
	servers, err := StartServers(f.data, f.fresh, 0, 0)
	if err != nil {
		return err
	}
	defer servers.Stop()
	if err := servers.forgetNodes(); err != nil {
		return err
	}
	list, err := devSettings(base, f.nodes, servers)
	if err != nil {
		return err
	}
	pages, err := openPages(ctx, app, list)
	defer closeAll(pages)
	if err != nil {
		return err
	}
	welcomePages(list)
	file, err := saveSettings(f.data, &list[0])
	if err != nil {
		return err
	}
	return runAll(ctx, env, app, list, pages, file, log)
}

// devBase makes the settings that all nodes have: loopback, text messages allowed, names for logins unless the program has its own; then what the environment
// says; then the flags that were given.
func devBase(env Env, app znode.App, flags *flag.FlagSet, f devFlags) (znode.Settings, error) {
	s := znode.DefaultSettings()
	s.Gate.Text, s.Trace.Enabled, s.Admin.Call, s.Actors.Measure = true, true, true, true
	if app.Auth == nil {
		s.Gate.Auth.Kind = "dev"
	}
	s.Drain.Timeout, s.Drain.Delay = 5*time.Second, time.Second
	s.Gate.Address, s.Page.Address, s.Admin.Address, s.Log.Level = f.gate, f.page, f.admin, f.level
	if err := settings.Load(&s, nil, "", env.Environ, znode.EnvPrefix); err != nil {
		return s, fmt.Errorf("the settings have faults:\n%w", err)
	}
	flags.Visit(func(given *flag.Flag) {
		switch given.Name {
		case "gate":
			s.Gate.Address = f.gate
		case "page":
			s.Page.Address = f.page
		case "admin":
			s.Admin.Address = f.admin
		case "log":
			s.Log.Level = f.level
		case "insecure-plaintext":
			s.Gate.InsecurePlaintext = f.plaintext
		}
	})
	if err := devConsole(&s, f.console); err != nil {
		return s, err
	}
	for _, key := range []string{"node.id", "nats.url", "etcd.endpoints", "store.driver"} {
		name := settings.EnvName(znode.EnvPrefix, key)
		if slices.ContainsFunc(env.Environ, func(v string) bool { return strings.HasPrefix(v, name+"=") }) {
			fmt.Fprintf(env.Stderr, "%s is not used: dev has nodes and servers of its own; to use others: %s run\n", name, env.Name)
		}
	}
	return s, nil
}

// consoleStep is how far the console's port is from the admin port, where nobody says.
const consoleStep = 100

// devConsole turns the web console on: where the flag says, or the environment, or beside the admin port. Who has no token of his own gets one, which is good as long
// as this process runs.
func devConsole(s *znode.Settings, flag string) (err error) {
	c := &s.Console
	switch {
	case flag == "off", flag == "" && c.Address == "" && s.Admin.Address == "":
		c.Address = ""
		return nil
	case flag != "":
		c.Address = flag
	case c.Address == "":
		host, port, err := net.SplitHostPort(s.Admin.Address)
		if err != nil {
			return fmt.Errorf("--admin: %q: expected host:port", s.Admin.Address)
		}
		if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
			host = "127.0.0.1" // the admin port may be for the network, tokens are not
		}
		if c.Address, err = addPort(net.JoinHostPort(host, port), consoleStep); err != nil { // the port is among the last
			c.Address = net.JoinHostPort(host, "0")
		}
	}
	if c.OperatorToken == "" {
		c.OperatorToken = rand.Text()
	}
	return nil
}

// devSettings makes the settings of each node.
func devSettings(base znode.Settings, nodes int, servers *Servers) ([]znode.Settings, error) {
	var list []znode.Settings
	for k := range nodes {
		s := base
		s.Node.ID = "n" + strconv.Itoa(k+1)
		s.NATS.URL, s.Etcd.Endpoints, s.Store.Driver = servers.NATSURL(), []string{servers.EtcdEndpoint()}, "kv"
		for _, p := range []struct {
			flag string
			to   *string
		}{{"gate", &s.Gate.Address}, {"page", &s.Page.Address}, {"admin", &s.Admin.Address}, {"console", &s.Console.Address}} {
			if *p.to == "" {
				continue
			}
			address, err := addPort(*p.to, k)
			if err != nil {
				return nil, fmt.Errorf("--%s: %w", p.flag, err)
			}
			*p.to = address
		}
		list = append(list, s)
	}
	return list, nil
}

// openPages opens the page ports that the system is to choose, and writes them into the settings: the gates must know
// the pages' origins before any node starts. The listener of a page with a port of its own is nil; the node opens it when
// it is ready.
func openPages(ctx context.Context, app znode.App, list []znode.Settings) ([]net.Listener, error) {
	pages := make([]net.Listener, len(list))
	for k := range list {
		address := &list[k].Page.Address
		if _, port, err := net.SplitHostPort(*address); err != nil || port != "0" || app.Page == nil {
			continue
		}
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", *address)
		if err != nil {
			return pages, fmt.Errorf("--page: %w", err)
		}
		pages[k], *address = ln, ln.Addr().String()
	}
	return pages, nil
}

// closeAll closes what has been opened; a node may have closed its own already.
func closeAll(listeners []net.Listener) {
	for _, ln := range listeners {
		if ln != nil {
			_ = ln.Close()
		}
	}
}

// welcomePages lets the pages of all nodes connect to every gate.
func welcomePages(list []znode.Settings) {
	var origins []string
	for k := range list {
		if _, port, err := net.SplitHostPort(list[k].Page.Address); err == nil {
			origins = append(origins, "http://localhost:"+port, "http://127.0.0.1:"+port)
		}
	}
	for k := range list {
		list[k].Gate.Origins = slices.Concat(list[k].Gate.Origins, origins)
	}
}

// addPort adds k to the port of address; port 0 (any free one) stays.
func addPort(address string, k int) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("%q: expected host:port", address)
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 0 || n+k > 65535 {
		return "", fmt.Errorf("%q: expected a port from 0 to %d", address, 65535-k)
	}
	if n != 0 {
		n += k
	}
	return net.JoinHostPort(host, strconv.Itoa(n)), nil
}

// runAll starts the nodes one after the other, prints the banner, and serves until ctx ends or a node fails; then all
// stop side by side.
func runAll(ctx context.Context, env Env, app znode.App, list []znode.Settings, pages []net.Listener, file string, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var nodes []*znode.Node
	for k, s := range list {
		n, err := znode.New(znode.Config{Settings: s, App: app, ListenPage: pages[k], Logger: log})
		if err == nil {
			err = n.Start(ctx)
		}
		if err != nil {
			return errors.Join(err, stopAll(nodes, s.Drain.Timeout))
		}
		nodes = append(nodes, n)
	}
	banner(env, app, nodes, file)
	type end struct {
		node    *znode.Node
		drained bool
		err     error
	}
	ends := make(chan end, len(nodes))
	for _, n := range nodes {
		// Owned by this call; ends when ctx does, or the node has drained, at the latest with this function.
		go func() {
			e := end{node: n, err: n.Wait(ctx)}
			if e.err == nil && ctx.Err() == nil { // somebody asked this one to: the others go on
				e.drained, e.err = true, stopAll([]*znode.Node{n}, list[0].Drain.Timeout)
			}
			ends <- e
		}()
	}
	var err error
	for left := len(nodes); left > 0 && err == nil && ctx.Err() == nil; left-- {
		e := <-ends
		if err = e.err; e.drained {
			fmt.Fprintf(env.Stdout, "%s has drained and stopped\n", e.node.Self().ID)
		}
	}
	cancel()
	fmt.Fprintln(env.Stdout, "stopping; a second signal exits at once")
	return errors.Join(err, stopAll(nodes, list[0].Drain.Timeout))
}

func stopAll(nodes []*znode.Node, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { errs[i] = n.Stop(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// saveSettings leaves the first node's settings in the data directory, for the commands that operate a cluster.
func saveSettings(data string, s *znode.Settings) (file string, err error) {
	file = filepath.Join(data, "settings.yaml")
	plain := *s
	plain.Console = znode.Settings{}.Console // its token is not to be in a file, and without one it would be a fault
	return file, os.WriteFile(file, []byte(plain.Text()), 0o600)
}

func banner(env Env, app znode.App, nodes []*znode.Node, file string) {
	var b strings.Builder
	noun := "nodes are"
	if len(nodes) == 1 {
		noun = "node is"
	}
	fmt.Fprintf(&b, "\n%s: %d %s ready\n", app.Name, len(nodes), noun)
	for _, n := range nodes {
		fmt.Fprintf(&b, "\n  %s\n", n.Self().ID)
		if a := n.PageAddr(); a != "" {
			fmt.Fprintf(&b, "    page   http://%s\n", a)
		}
		fmt.Fprintf(&b, "    gate   %s\n    admin  http://%s/metrics /livez /readyz\n", n.GateURL(), n.AdminAddr())
		if a := n.ConsoleAddr(); a != "" {
			fmt.Fprintf(&b, "    console http://%s/#token=%s\n", a, url.PathEscape(n.Settings().Console.OperatorToken))
		}
	}
	fmt.Fprintf(&b, "\n  settings of the first node: %s\n  look at it from another terminal: %s inspect --config %s\n\nstop with Ctrl-C\n\n", file, env.Name, file)
	fmt.Fprint(env.Stdout, b.String())
}

// Servers are the embedded NATS and etcd of one data directory.
type Servers struct {
	nats *embedded.NATS
	etcd *embedded.Etcd
}

// StartServers starts NATS (with JetStream) and etcd on loopback, with their data under dir. Port 0 takes a free one.
// The caller holds the directory's lock.
func StartServers(dir string, fresh bool, natsPort, etcdPort int) (*Servers, error) {
	natsDir, etcdDir := filepath.Join(dir, "nats"), filepath.Join(dir, "etcd")
	if fresh {
		if err := errors.Join(os.RemoveAll(natsDir), os.RemoveAll(etcdDir)); err != nil {
			return nil, fmt.Errorf("--fresh: %w", err)
		}
	}
	nats, err := embedded.StartNATS(natsDir, natsPort)
	if err != nil {
		return nil, notStarted("NATS", "--nats-port", natsDir, err)
	}
	etcd, err := embedded.StartEtcd(etcdDir, etcdPort)
	if err != nil {
		nats.Stop()
		return nil, notStarted("etcd", "--etcd-port", etcdDir, err)
	}
	return &Servers{nats, etcd}, nil
}

// notStarted says what to do about an embedded server that does not start: --fresh helps where its data is broken, and costs the
// data, so it is not said of a port that another process holds. NATS tells its reason as text only.
func notStarted(server, flag, data string, err error) error {
	if strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) {
		return fmt.Errorf("the embedded %s does not start: %w\n  set %s to a free port (0 takes one), or end the process that holds it", server, err, flag)
	}
	return fmt.Errorf("the embedded %s does not start (data in %s; --fresh forgets it): %w", server, data, err)
}

// forgetNodes removes the nodes of an earlier process that never said goodbye. It is for servers whose nodes live in
// this process alone, so that those are dead; nodes in processes of their own outlive a restart of their servers.
func (s *Servers) forgetNodes() error {
	if err := s.etcd.DeletePrefix("/"); err != nil {
		return fmt.Errorf("the embedded etcd does not forget the nodes of the last run: %w", err)
	}
	return nil
}

// NATSURL and EtcdEndpoint say where the servers listen.
func (s *Servers) NATSURL() string { return s.nats.URL() }

// EtcdEndpoint says where etcd listens.
func (s *Servers) EtcdEndpoint() string { return "http://" + s.etcd.Endpoint() }

// Stop stops both.
func (s *Servers) Stop() {
	s.etcd.Stop()
	s.nats.Stop()
}
