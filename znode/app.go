package znode

import (
	"io/fs"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"zgame/zactor"
	"zgame/zgate"
	"zgame/zroute"
	"zgame/zrouter"
)

// App is what a program adds to zgame: actors, and maybe a web page.
type App struct {
	// Name is said in logs and banners.
	Name string
	// Setup spawns the application's actors on n. It runs once for each node, before the node is ready; a process may
	// run several nodes (`dev --nodes 3`), so it keeps nothing in package variables.
	Setup func(n *Node) error
	// Vital names actors of Setup without which a node is of no use: when one of them is gone, past its restart limit or stopped, the
	// node is not ready (/readyz). It goes on otherwise, for the others. A name that Setup did not spawn fails the start.
	Vital []string
	// Middleware, if set, is around every handler of the node's actors, the first outermost. It is called once for each node,
	// before Setup: n has no actors, servers or routes yet, but its Logger, and Registerer for metrics.
	Middleware func(n *Node) []zactor.Middleware
	// Load, if set, says how busy n is: 1000 is all it has. It is called every node.load_interval, on one goroutine. Without it
	// that is the share of the processors that the process used since the last call, 0 where the system does not tell.
	Load func(n *Node) uint32
	// Routing, if set, says how messages find one of several actors that handle their id. It is called once for each node,
	// before Setup: n has its settings, but no servers or routes yet.
	Routing func(n *Node) Routing
	// Objects, if set, returns the kinds of stateful actors that the program has: the node hosts those of logic.router.hosts, and
	// reaches all. It is called once for each node, before Setup: n has its settings and its Store, but no routes yet.
	Objects func(n *Node) []zrouter.AnyKind
	// Presence are the numbers of kinds whose objects are told when their users come and go: of each user the object of zone 0 whose id is the user's. Their kinds
	// handle *presencepb.Presence (package zgame/zuser/presencepb), by zrouter.HandleTell with zrouter.ByKey. All nodes of a cluster have the same.
	Presence []uint32
	// AsyncPools are pools for zactor.Async besides the one for work that names none, by their names (zactor.OnPool): one for each
	// thing that may be slow on its own, as a database is.
	AsyncPools map[string]zactor.AsyncPool
	// OnDeadLetter, if set, is called for each message to an actor of n that no handler ran for. It runs on many goroutines and
	// must not block.
	OnDeadLetter func(n *Node, d zactor.DeadLetter)
	// OnEscalate, if set, is called on the actor's goroutine when an actor of n without a parent ends by zactor.Escalate. Without it
	// the failure is logged.
	OnEscalate func(n *Node, e *zactor.EscalatedError)
	// Actors makes actors of each type by name (zactor.WithType, else the Go type), for the command replay: as Setup does, but
	// what lives, like a store, may be nil where only work of zactor.Async uses it.
	Actors map[string]func() zactor.Actor
	// Page, if set, is served at the page address: index.html and what it needs. The page finds in /config.json: gate, where its gate is; node;
	// name and kinds, those of the program; dev, whether gate.auth.kind is dev.
	Page fs.FS
	// Files are the message types that text clients may use and whose ids must not clash. Defaults to all that are
	// linked into the program.
	Files []protoreflect.FileDescriptor
	// Auth, if set, makes what decides who a client is, where gate.auth.kind is empty. It is called once for each node with a gate,
	// before Setup: n has its settings, Logger and Registerer. An authenticator with a method Close() error is closed when the node stops.
	Auth func(n *Node) (zgate.Authenticator, error)
	// BeforeLogin are the ids of messages that clients may send before they have logged in; see zgate.Config.BeforeLogin. Their handlers
	// see no user and no session.
	BeforeLogin []uint32
	// OnNoRoute, if set, is asked about client messages that nobody handles.
	OnNoRoute zgate.NoRouteHook
}

// Routing is how messages find one of several actors; see docs/routing.md. What is zero stands for the defaults of zroute.
type Routing struct {
	Local    zroute.LocalRouter    // among actors of this node
	Remote   zroute.RemoteStrategy // among those of the others
	NextBest bool                  // Remote picks again where a candidate cannot, instead of list order
	MoveWait time.Duration         // see zroute.Config.MoveWait
}
