package znode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"zgame/zactor"
	"zgame/zbus"
	"zgame/zconsole"
	"zgame/zdiscovery"
	"zgame/zgate"
	"zgame/zmetrics"
	"zgame/zmsg"
	"zgame/zroute"
	"zgame/zrouter"
	"zgame/zstore"
	"zgame/zuser"
)

// Fits: what the packages declare is what the others are. A mistake fails here, at compile time, with both names.
var (
	_ zactor.Routes    = (*zroute.Local)(nil)
	_ zactor.Router    = zroute.Router{}
	_ zactor.Sessions  = (*sessions)(nil)
	_ zrouter.Gates    = (*sessions)(nil)
	_ zactor.Watches   = (*watches)(nil)
	_ zactor.Topics    = (*topics)(nil)
	_ zactor.Remote    = (*zbus.Link)(nil)
	_ zactor.Teller    = (*zbus.Link)(nil)
	_ zroute.Target    = zactor.Ref{}
	_ zroute.Sender    = (*zbus.Link)(nil)
	_ zgate.Dispatcher = (*zroute.Dispatcher)(nil)
	_ zgate.Groups     = (*zbus.Link)(nil)
	_ zgate.Directory  = (*zuser.Users)(nil)
	_ zuser.Teller     = (*zactor.Context)(nil)
	_ zuser.Teller     = (*zrouter.Context[any])(nil)
	_ sessionLink      = (*zbus.Link)(nil)
	_ controlLink      = (*zbus.Link)(nil)
	_ watchers         = (*zactor.Group)(nil)
	_ topicLink        = (*zbus.Link)(nil)
	_ topicGroup       = (*zactor.Group)(nil)
	_ zrouter.Link     = (*zbus.Link)(nil)
	_ zrouter.Members  = (*objects)(nil)
	_ zactor.Objects   = (*objects)(nil)
	_ zactor.Objects   = (*zrouter.ManagerSet)(nil)
	_ zroute.Objects   = (*objects)(nil)
	_ zroute.Objects   = (*zrouter.ManagerSet)(nil)
)

// Config is what New needs.
type Config struct {
	Settings Settings
	App      App
	// Backends replaces the servers that the settings name by ready drivers: in-memory ones in tests. What is nil is
	// opened by the settings. The node closes them at its end either way.
	Backends Backends
	// Listen replaces the opening of the gate's port, for tests in memory.
	Listen net.Listener
	// ListenPage replaces the opening of the page's port, for programs that must know it before the node starts. It is
	// the caller's until the node is ready and serves there, and the node's from then on.
	ListenPage net.Listener
	// Logger gets what the node and its parts say; nil discards.
	Logger *slog.Logger
}

// Node is one node of the cluster: New, Start (or Run), Stop. Methods may be called from any goroutine once Start has
// returned, and from App.Setup.
type Node struct {
	// Set by New.
	cfg      Config
	log      *slog.Logger
	registry *prometheus.Registry
	metrics  *zmetrics.Node

	// Set by Start, in this order, and read only afterwards.
	started     time.Time
	backends    Backends
	predecessor *predecessor // nil: nothing is known of it
	self        zmsg.Self
	link        *zbus.Link
	local       *zroute.Local
	remote      *zroute.Remote
	dispatcher  *zroute.Dispatcher
	group       *zactor.Group
	gate        *zgate.Gate
	auth        io.Closer // of the gate; nil: nothing to close
	sessions    *sessions
	watches     *watches
	singletons  *singletons
	topics      *topics
	objects     *objects
	users       *zuser.Users
	farewell    *farewell
	tracing     *tracing // nil: off
	messages    *zmsg.Registry
	admin       *server
	page        *server

	charts        *charts           // nil: off; as the next two, by console.address
	console       *zconsole.Console // nil: off
	consoleServer *server

	member   atomic.Pointer[zdiscovery.Member] // see currentMember
	snapshot atomic.Pointer[members]
	state    atomic.Pointer[zdiscovery.State]
	load     atomic.Uint32      // as the record has it
	listed   chan struct{}      // closed by listedOnce: the node's list has it as ready
	changed  chan struct{}      // holds one token when the node's record must be announced anew
	telling  chan struct{}      // holds one token while the record is made and written: an older one never lands later
	cancel   context.CancelFunc // ends the node's goroutines
	loops    sync.WaitGroup
	settle   func()             // starts stay
	leave    context.CancelFunc // ends it
	stays    sync.WaitGroup     // stay's goroutine
	out      chan error         // takes one: why the node cannot be in the cluster any more
	drain    draining

	listedOnce sync.Once

	stopping sync.Mutex // one Stop at a time
	stopped  bool       // guarded by stopping
}

// New checks the settings and makes a node that has not started. The error joins every fault.
func New(cfg Config) (*Node, error) {
	if err := cfg.Settings.Validate(); err != nil {
		return nil, err
	}
	if g := &cfg.Settings.Gate; g.Enabled && g.Auth.Kind == "" && cfg.App.Auth == nil {
		return nil, errNoAuth
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	n := &Node{
		cfg: cfg, log: cfg.Logger.With("node", cfg.Settings.Node.ID), registry: prometheus.NewRegistry(), changed: make(chan struct{}, 1), telling: make(chan struct{}, 1),
		out: make(chan error, 1), listed: make(chan struct{}), drain: newDraining(),
	}
	n.metrics = zmetrics.NewNode(n.registry)
	n.objects = &objects{n: n}
	n.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return n, nil
}

// Start brings the node up: servers, identity, routes, actors, ports, and only then its name in the list of those
// that serve. Each step may take start.timeout; joining may wait for an earlier process' lease to end besides. On an error
// Start has taken down what it brought up.
func (n *Node) Start(ctx context.Context) (err error) {
	n.started = time.Now()
	defer func() {
		if err != nil {
			// The start's context may be over; what is up still needs a moment to come down in order.
			down, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			err = errors.Join(err, n.Stop(down))
		}
	}()
	limit := n.cfg.Settings.Start.Timeout
	steps := []struct {
		name  string
		limit time.Duration
		run   func(context.Context) error
	}{
		{"connect to the servers", limit, n.connect},
		// A process of this id that was killed is on the list until its lease ends; etcd may see that a little later.
		{"join the cluster", limit + n.cfg.Settings.Etcd.Lease*5/4, n.join},
		{"wire the parts", limit, n.wire},
		{"open the bus", limit, func(ctx context.Context) error { return n.link.Start(ctx) }},
		{"load the list of nodes", limit, n.follow},
		{"set up the application", limit, n.setup},
		{"open the ports", limit, n.open},
		{"announce the node", limit + n.cfg.Settings.Etcd.Lease*5/4, n.announceReady}, // it may have to join again
	}
	bounded := func(limit time.Duration, run func(context.Context) error) error {
		ctx, done := context.WithTimeout(ctx, limit)
		defer done()
		return run(ctx)
	}
	for _, s := range steps {
		if err := bounded(s.limit, s.run); err != nil {
			return fmt.Errorf("znode: %s: %w", s.name, err)
		}
	}
	n.log.Info("node is ready", "self", n.Self().String(), "gate", n.GateURL(), "page", n.PageAddr(), "admin", n.AdminAddr(), "console", n.ConsoleAddr())
	return nil
}

// Run starts the node, serves until ctx ends, somebody asks that it drains (AskDrain), or the node's id is another's, and stops it within
// drain.timeout. It returns nil after a stop that was asked for and that had nothing to cut.
func (n *Node) Run(ctx context.Context) error {
	if err := n.Start(ctx); err != nil {
		return err
	}
	lost := n.Wait(ctx)
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.cfg.Settings.Drain.Timeout)
	defer cancel()
	return errors.Join(lost, n.Stop(drain))
}

// Wait returns nil when ctx ends or somebody asks that the node drains (AskDrain), or an error when the node is out of the cluster for good and must be stopped: its lease
// ended, and another process has taken its id. (Where nobody has, the node joins again.) It is called after Start, once.
func (n *Node) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-n.drain.asked:
		return nil
	case err := <-n.out:
		return err
	}
}

// stopStep bounds each step of Stop that waits for servers, which may be away.
const stopStep = 2 * time.Second

// Stop takes the node down in order: others stop sending, objects go to other nodes, clients are told, queues run empty, actors stop, the
// name goes, connections close. What ctx does not leave time for is cut and said in the error. Once is enough; more do
// nothing.
func (n *Node) Stop(ctx context.Context) error {
	n.stopping.Lock()
	defer n.stopping.Unlock()
	if n.stopped {
		return nil
	}
	n.stopped = true
	n.log.Info("node stops")
	n.drain.ask()
	n.drain.enter(DrainAnnouncing)
	defer n.drain.enter(DrainStopped)
	var errs []error
	try := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("znode: %s: %w", what, err))
		}
	}
	// A step that talks to servers has a part of the time only: one that is away must not take it from the others.
	brief := func(f func(context.Context) error) error {
		part, cancel := context.WithTimeout(ctx, stopStep)
		defer cancel()
		return f(part)
	}
	if n.leave != nil { // whoever loses his place now does not look for another
		n.leave()
		n.stays.Wait()
	}
	if n.member.Load() != nil {
		n.setState(zdiscovery.Draining)
		err := brief(n.announce)
		if !errors.Is(err, zdiscovery.ErrLost) { // then it is off the list already
			try("announce the drain", err)
		}
		if err == nil {
			n.bidFarewell(ctx, drainBegins)
		}
	}
	n.drain.enter(DrainObjects)
	objectsMoved := n.drainObjects(ctx)
	try("stop the singletons", half(ctx, n.singletons.stop))
	// Before the clients are told to go: the gate takes them to where the objects are meanwhile. And before the actors stop: objects are some.
	try("move the objects", <-objectsMoved)
	if n.objects.hosts() && n.member.Load() != nil {
		n.bidFarewell(ctx, drainedOut)
	}
	n.drain.enter(DrainClosing)
	n.page.stop(ctx)
	if n.gate != nil {
		try("close the gate", n.gate.Shutdown(ctx))
	}
	if n.auth != nil {
		try("close the authenticator", n.auth.Close())
	}
	if n.group != nil {
		try("stop the actors", n.group.Shutdown(ctx))
	}
	if n.link != nil {
		try("empty the bus queues", brief(n.link.Drain))
	}
	_ = brief(n.objects.close) // what it could not give up was said
	if n.member.Load() != nil {
		try("leave the cluster", brief(n.currentMember().Leave))
	}
	if n.cancel != nil {
		n.cancel()
		n.loops.Wait()
	}
	n.watches.close()
	if n.sessions != nil {
		n.sessions.moves.close()
		n.sessions.stop()
	}
	n.topics.close()
	// What is left is closed in any case, also when ctx is over.
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopStep)
	defer cancel()
	if n.link != nil {
		try("close the bus", n.link.Close(closing))
	}
	try("close the connections", n.backends.close(closing))
	n.predecessor.close()
	try("send the last spans", n.tracing.close(closing))
	if n.console != nil {
		n.console.Close()
	}
	n.consoleServer.stop(closing)
	n.admin.stop(closing)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	n.log.Info("node stopped")
	return nil
}

// half has f end in half of the time that ctx leaves, so that what comes after it has some too.
func half(ctx context.Context, f func(context.Context) error) error {
	if end, ok := ctx.Deadline(); ok {
		part, cancel := context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
		return f(part)
	}
	return f(ctx)
}

func (n *Node) connect(ctx context.Context) (err error) {
	if n.cfg.Backends.Discovery == nil {
		n.predecessor = lookForPredecessor(&n.cfg.Settings, n.log)
	}
	n.backends, err = connect(ctx, &n.cfg.Settings, n.cfg.Backends, n.predecessor, n.registry, n.log)
	return err
}

func (n *Node) join(ctx context.Context) error {
	n.setState(zdiscovery.Starting)
	m, err := n.backends.Discovery.Join(ctx, n.record(zdiscovery.Starting))
	if err != nil {
		return err
	}
	n.member.Store(&m)
	n.self.Set(m.Ref())
	return nil
}

// wire makes the parts and ties them together. Nothing runs yet.
func (n *Node) wire(ctx context.Context) error {
	s, self := &n.cfg.Settings, n.Self()
	registry, err := zmsg.NewRegistry(n.cfg.App.Files...) // on nodes without a gate too: ids that clash fail every start
	if err != nil {
		return err
	}
	n.messages = registry
	if n.link, err = zbus.NewLink(zbus.LinkConfig{
		Self: self, Bus: n.backends.Bus, Direct: true, Prefix: s.Node.Cluster, Logger: n.log, Metrics: zmetrics.NewBus(n.registry),
		Handlers: zbus.Handlers{Actor: n.onActor, Tells: n.onTells, Session: n.onSession, Control: n.onControl, Topic: n.onTopic, Queue: n.onQueue, Object: n.onObject, Nobody: n.onNobody},
	}); err != nil {
		return err
	}
	n.local, n.remote = &zroute.Local{}, &zroute.Remote{}
	n.local.OnChange(n.touch)
	var routing Routing
	if f := n.cfg.App.Routing; f != nil {
		routing = f(n)
	}
	if n.dispatcher, err = zroute.New(zroute.Config{
		Node: self, Local: n.local, Remote: n.remote, Sender: n.link, Objects: n.objects, Metrics: zmetrics.NewRoute(n.registry),
		LocalRouter: routing.Local, Strategy: routing.Remote, NextBest: routing.NextBest, MoveWait: routing.MoveWait,
	}); err != nil {
		return err
	}
	if n.tracing, err = newTracing(ctx, n); err != nil {
		return err
	}
	n.sessions = newSessions(&n.self, n.link, n.nodeState)
	n.sessions.moves.nodes = func() []zmsg.NodeRef { return n.peersOf(false) }
	n.sessions.moves.gates = func() []zmsg.NodeRef { return n.peersOf(true) }
	n.watches = newWatches(n.link, n.nodeState)
	n.singletons = newSingletons(n)
	n.topics = newTopics(&n.self, n.link, n.touch, n.log)
	n.farewell = newFarewell(n.link, n.drains, n.objects.empty)
	cfg := zactor.Config{
		Node: self, Logger: n.log, Metrics: zmetrics.NewActor(n.registry),
		Routes: n.local, Sessions: n.sessions, Remote: n.link, Watches: n.watches, Topics: n.topics, Router: n.dispatcher.Router(), Objects: n.objects,
		Mailbox: s.Actors.Mailbox, AskTimeout: s.Actors.AskTimeout, HandlerLimit: s.Actors.HandlerLimit, QueueTime: s.Actors.QueueTime,
		MaxTopics: s.Actors.MaxTopics, MaxQueues: s.Actors.MaxQueues, ActorTopics: s.Actors.ActorTopics,
		Middleware: n.middleware(), AsyncPools: n.cfg.App.AsyncPools,
		RecordDir: s.Actors.RecordDir, RecordFiles: s.Actors.RecordFiles, Recorder: recorder(s),
	}
	if f := n.cfg.App.OnDeadLetter; f != nil {
		cfg.OnDeadLetter = func(d zactor.DeadLetter) { f(n, d) }
	}
	if f := n.cfg.App.OnEscalate; f != nil {
		cfg.OnEscalate = func(e *zactor.EscalatedError) { f(n, e) }
	}
	if n.group, err = zactor.NewGroup(cfg); err != nil {
		return err
	}
	n.sessions.tell = n.tell
	n.watches.group = n.group
	n.topics.group, n.topics.metrics = n.group, cfg.Metrics.Topics
	if err := n.wireObjects(); err != nil {
		return err
	}
	if !s.Gate.Enabled {
		return nil
	}
	n.gate, err = n.newGate(ctx, self, registry)
	n.sessions.gate = n.gate
	return err
}

// middleware returns what is around every handler: measuring outermost, so that it sees what the application's turns down.
func (n *Node) middleware() (all []zactor.Middleware) {
	if n.tracing != nil {
		all = append(all, zactor.Spans(n.tracing.tracer))
	}
	if n.cfg.Settings.Actors.Measure {
		all = append(all, zactor.Measure(zmetrics.NewHandlers(n.registry)))
	}
	if f := n.cfg.App.Middleware; f != nil {
		all = append(all, f(n)...)
	}
	return all
}

// recorder returns what every actor records; nil: only those that ask for it.
func recorder(s *Settings) *zactor.RecorderOptions {
	if !s.Actors.Record {
		return nil
	}
	return &zactor.RecorderOptions{}
}

// tell hands m to an actor, here or on another node; it takes m when it returns nil.
func (n *Node) tell(to zmsg.Address, m *zmsg.Message) error {
	if n.self.Is(to.Node) {
		return n.group.Deliver(to.Actor, m)
	}
	err := n.link.Send(to, m, nil, 0)
	if err == nil {
		m.Release()
	}
	return err
}

// deliver takes a client's message to where its session's route says; it takes m when it returns nil.
func (n *Node) deliver(r *zmsg.SessionRoute, m *zmsg.Message) error {
	switch {
	case r.Actor.IsZero():
		return n.objects.DeliverObject(r.Object, m)
	case n.self.Is(r.Actor.Node):
		return n.group.Deliver(r.Actor.Actor, m)
	case n.nodeState(r.Actor.Node) == nodeGone:
		return errTargetLost
	}
	to, token := m.TakeReplier()
	if err := n.link.Send(r.Actor, m, to, token); err != nil {
		m.SetReplier(to, token)
		return err
	}
	m.Release()
	return nil
}

var errTargetLost error = &zmsg.Error{Code: zmsg.CodeNodeLost, Outcome: zmsg.NotExecuted, Text: "the node of the actor that the session is routed to is gone"}

func (n *Node) setup(context.Context) error {
	if n.cfg.App.Setup != nil {
		if err := n.cfg.App.Setup(n); err != nil {
			return err
		}
	}
	return n.vital()
}

// vital returns an error that names the actors of App.Vital that are not there.
func (n *Node) vital() error {
	var errs []error
	for _, name := range n.cfg.App.Vital {
		if _, ok := n.group.Lookup(name); !ok {
			errs = append(errs, fmt.Errorf("the actor %q is not there (App.Vital names it)", name))
		}
	}
	return errors.Join(errs...)
}

func (n *Node) open(ctx context.Context) error {
	s := &n.cfg.Settings
	if s.Console.Address != "" {
		ln, err := listen(ctx, "web console", "console.address", s.Console.Address)
		if err != nil {
			return err
		}
		if n.console, err = n.newConsole(); err != nil {
			_ = ln.Close() // the fault is the other
			return err
		}
		n.consoleServer = serve("web console", ln, n.console.Handler(), n.log)
	}
	if s.Admin.Address != "" {
		ln, err := listen(ctx, "admin server", "admin.address", s.Admin.Address)
		if err != nil {
			return err
		}
		n.admin = serve("admin server", ln, n.adminHandler(), n.log)
	}
	if n.gate != nil {
		if err := n.gate.Start(ctx); err != nil {
			return portError("gate", "gate.address", s.Gate.Address, err)
		}
	}
	if s.Page.Address != "" && n.cfg.App.Page != nil {
		ln := n.cfg.ListenPage
		if ln == nil {
			var err error
			if ln, err = listen(ctx, "page server", "page.address", s.Page.Address); err != nil {
				return err
			}
		}
		n.page = serve("page server", ln, n.pageHandler(), n.log)
	}
	return nil
}

// Self returns the node's identity; zero before Start has joined the cluster. Its epoch rises when the node lost its place in
// the cluster and joined again.
func (n *Node) Self() zmsg.NodeRef { return n.self.Ref() }

// ServeUntil is how long this node may act as the owner of what others would take over: see zdiscovery.Member. It is called
// after Start.
func (n *Node) ServeUntil() time.Time { return n.currentMember().ServeUntil() }

// currentMember is the node's place in the cluster; there is one from join on.
func (n *Node) currentMember() zdiscovery.Member { return *n.member.Load() }

// Settings returns what the node was made with. It is read only.
func (n *Node) Settings() *Settings { return &n.cfg.Settings }

// Spawn starts an actor on this node; see zactor.Group.Spawn.
func (n *Node) Spawn(name string, f func() zactor.Actor, opts ...zactor.SpawnOption) (zactor.Ref, error) {
	return n.group.Spawn(name, f, opts...)
}

// Group returns the node's actors.
func (n *Node) Group() *zactor.Group { return n.group }

// Store returns the node's store.
func (n *Node) Store() zstore.Store { return n.backends.Store }

// Registerer takes metrics of the application: they are served at /metrics with the node's.
func (n *Node) Registerer() prometheus.Registerer { return n.registry }

// Logger returns the node's logger.
func (n *Node) Logger() *slog.Logger { return n.log }

// Nodes returns what discovery says about all nodes now. Read only.
func (n *Node) Nodes() []zdiscovery.Node {
	if s := n.snapshot.Load(); s != nil {
		return s.Nodes
	}
	return nil
}

// Ready returns nil while the node serves and everything it needs answers, else what is missing.
func (n *Node) Ready(ctx context.Context) error {
	var errs []error
	if s := n.state.Load(); s == nil || *s != zdiscovery.Ready {
		errs = append(errs, errors.New("the node is not serving (starting or draining)"))
	}
	if n.backends.Bus == nil || !n.backends.Bus.Up() {
		errs = append(errs, errors.New("the bus is down"))
	}
	if n.backends.Discovery == nil || !n.backends.Discovery.Up() {
		errs = append(errs, errors.New("discovery is down"))
	}
	if n.group != nil {
		if err := n.vital(); err != nil {
			errs = append(errs, err)
		}
	}
	if err := n.objects.ready(); err != nil {
		errs = append(errs, err)
	}
	if n.gate != nil && !n.gate.Serving() {
		errs = append(errs, errors.New("the gate does not accept connections"))
	}
	if n.backends.Store == nil {
		errs = append(errs, errors.New("the store is not open"))
	} else if err := n.backends.Store.Ping(ctx); err != nil {
		errs = append(errs, fmt.Errorf("the store is down: %w", err))
	}
	return errors.Join(errs...)
}

// GateURL returns where clients connect, "" on a node without a gate or before its port is open.
func (n *Node) GateURL() string {
	s := &n.cfg.Settings.Gate
	if n.gate == nil || n.gate.Addr() == nil {
		return ""
	}
	if s.URL != "" {
		return s.URL
	}
	scheme := "ws"
	if s.TLS.Cert != "" {
		scheme = "wss"
	}
	return scheme + "://" + dialable(n.gate.Addr()) + "/ws"
}

// GateTCPAddr returns host:port where the gate listens for clients over bare TCP, "" where it does not, or before its port is open.
func (n *Node) GateTCPAddr() string {
	if n.gate == nil || n.gate.TCPAddr() == nil {
		return ""
	}
	return dialable(n.gate.TCPAddr())
}

// AdminAddr and PageAddr return host:port of the node's servers, "" where there is none.
func (n *Node) AdminAddr() string { return n.admin.addr() }

// PageAddr returns host:port of the page server, "" where there is none.
func (n *Node) PageAddr() string { return n.page.addr() }

// adminURL is what the others read of the admin server.
func (n *Node) adminURL() string {
	if a := n.AdminAddr(); a == "" || n.cfg.Settings.Admin.URL == "" {
		return a
	}
	return n.cfg.Settings.Admin.URL
}

func (s *server) addr() string {
	if s == nil {
		return ""
	}
	return dialable(s.ln.Addr())
}

// dialable turns the address of a listener into one to dial: every interface becomes localhost.
func dialable(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() || ip.IsLoopback() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// Version is the module version of the program, for discovery and logs.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return strings.Trim(info.Main.Version, "()")
	}
	return "unknown"
}
