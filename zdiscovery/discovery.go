package zdiscovery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"zgame/zmsg"
)

// Errors of a Discovery. Drivers wrap them; test with errors.Is.
var (
	ErrTaken       = errors.New("zdiscovery: node id is taken by a live node")
	ErrUnavailable = errors.New("zdiscovery: service not reachable")
	ErrLost        = errors.New("zdiscovery: membership is lost") // the lease ended: join again, with a new epoch
	ErrClosed      = errors.New("zdiscovery: closed")
	// ErrTooLarge: the record of a node is above what the service takes; nothing was written.
	ErrTooLarge = errors.New("zdiscovery: record of the node is too large")
)

// MaxID is the length of a node's id, in bytes, up to which a bus makes a subject of it.
const MaxID = 256

// CheckID returns an error when no node can have the id; drivers ask it about nodes that join, and about records that they read.
func CheckID(id string) error {
	if id == "" || len(id) > MaxID || strings.Contains(id, "/") {
		return fmt.Errorf("zdiscovery: node id %.40q of %d bytes: expected 1 to %d bytes, and no slash", id, len(id), MaxID)
	}
	return nil
}

// State is where a node is in its life.
type State string

// The states, in the order in which a node passes them. A node that is gone has no record.
const (
	Starting State = "starting" // joined, not serving yet
	Ready    State = "ready"    // serves
	Draining State = "draining" // finishes what it has, takes nothing new
)

// DefaultWeight is the weight of a node whose record has none, as records of older versions have.
const DefaultWeight = 100

// Node is what a node tells the others about itself. A field that a record lacks is zero; what a reader does not know it
// leaves out, so that records of older and newer versions are readable.
type Node struct {
	Ref     zmsg.NodeRef      `json:"ref"`
	State   State             `json:"state"`
	Gate    string            `json:"gate,omitempty"`    // URL of the node's gate for clients, "" if it has none
	Admin   string            `json:"admin,omitempty"`   // host:port of metrics and health
	Version string            `json:"version,omitempty"` // of the program
	Zone    string            `json:"zone,omitempty"`    // where it runs: nodes of one zone are near each other
	Weight  uint32            `json:"weight,omitempty"`  // its share next to the others' weights; 0 counts as DefaultWeight
	Load    uint32            `json:"load,omitempty"`    // how busy it was when the record was written: 1000 is all it has
	Lock    string            `json:"lock,omitempty"`    // what only a process on its machine can know: see etcddisc.Config.Gone
	Labels  map[string]string `json:"labels,omitempty"`  // what an operator says about it
	Actors  []Actor           `json:"actors,omitempty"`  // service actors with message ids, sorted by id
	Queues  []Queue           `json:"queues,omitempty"`  // of topics, with a member on the node; sorted
	Kinds   []Kind            `json:"kinds,omitempty"`   // kinds of stateful actors that it hosts, sorted by type
}

// Actor is a service actor that other nodes may route to.
type Actor struct {
	ID      uint64        `json:"id"`
	Type    string        `json:"type"`
	Adverts []zmsg.Advert `json:"adverts"`
}

// Queue is a queue of a topic: one of its members gets what is published on the topic.
type Queue struct {
	Topic string `json:"topic"`
	Name  string `json:"name"`
}

// Kind is a kind of stateful actors. What it advertises is for whoever owns the key, wherever that is: KeyField is the field of the
// body that holds the key's id, 0 for the id of the session's user.
type Kind struct {
	Type    uint32        `json:"type"` // of zmsg.Key
	Name    string        `json:"name"`
	Adverts []zmsg.Advert `json:"adverts"`
	// OnDemand: an object is created, or taken over, by a request to it. Nodes that do not host the kind need to know.
	OnDemand bool `json:"ondemand,omitempty"`
	// Schema is the version of the states that the node writes. It loads older ones too, and no newer ones.
	Schema uint32 `json:"schema,omitempty"`
	// Recalls: its objects remember the requests of clients, so one that may have run can be sent to them again.
	Recalls bool `json:"recalls,omitempty"`
}

// Discovery is the contract of a driver: who is alive, and what each node says about itself. zdiscoverytest holds
// drivers to it. All methods may be called from any goroutine. A Node that was given to Join or Update is not changed
// by the caller afterwards, nor one that was received.
type Discovery interface {
	// Join makes this process the node n.Ref.ID with a new epoch (n.Ref.Epoch is ignored), greater than every epoch
	// that id had before, and keeps it alive until Leave, or until the lease is lost.
	//
	// Where the id is taken by a node that is alive, that is a *TakenError (ErrTaken). Where the holder may be a process
	// that died, Join waits for the end of its lease.
	// Errors: ErrTaken, ErrTooLarge, ErrUnavailable, ErrClosed, ctx's.
	Join(ctx context.Context, n Node) (Member, error)
	// Watch sends the list of nodes: first all there are, then a new Snapshot after each change, the newest only if
	// the reader is slow: what came and went meanwhile shows in its Revision alone. It heals by itself (lost connection, compaction). The channel closes when ctx ends or the
	// driver is closed. Errors: ErrUnavailable when the first list cannot be read, ErrClosed, ctx's.
	Watch(ctx context.Context) (<-chan *Snapshot, error)
	// Leader says who leads the name: whoever is first in line. Errors: ErrUnavailable, ErrClosed, ctx's, and what is wrong with
	// the name.
	Leader(ctx context.Context, name string) (Leader, error)
	// Up reports whether the service answered lately.
	Up() bool
	// Close ends all watches and memberships without waiting for their leases (members should Leave before).
	Close(ctx context.Context) error
}

// Member is this process's place in the list.
type Member interface {
	// Ref is the identity that Join gave.
	Ref() zmsg.NodeRef
	// Update replaces what the node says about itself (n.Ref is ignored). Errors: ErrLost (also after Leave),
	// ErrTooLarge, ErrUnavailable, ctx's.
	Update(ctx context.Context, n Node) error
	// ServeUntil is how long this node may act as Ref, as its own clock sees it: the time before sending the last
	// renewal that was acknowledged, plus the safe part of the lease. From Leave, and from Lost, on it is over.
	ServeUntil() time.Time
	// Lost is closed when the service says that the membership is lost: another process may be this node. While the
	// service is away nobody knows; ServeUntil tells when to stop acting as Ref, and to go on when it is back.
	Lost() <-chan struct{}
	// Campaign waits until this member leads the name: one member at a time does, the others wait in line. It goes on while the
	// service is away. Errors: ErrCampaigning, ErrLost (also after Leave), ErrClosed, ctx's, and what is wrong with the name.
	Campaign(ctx context.Context, name string) (Leadership, error)
	// Leave removes the node at once, and ends what it leads. It may be called more than once. Where the service does not answer within ctx it
	// returns ErrUnavailable, and the lease ends by itself.
	Leave(ctx context.Context) error
}

// Snapshot is the list of nodes at one moment. It is not changed afterwards; readers share it.
type Snapshot struct {
	// Revision rises with each change of the list. The epoch that Join gives is greater than the Revision of every Snapshot before that
	// node, and at most that of every one that lists it; so a list that is new enough and lacks a node says that it is gone: see Gone.
	Revision int64
	Nodes    []Node // sorted by id: the same order on every node
	// Unreadable are nodes that have their place, with a record that this program cannot read.
	Unreadable []zmsg.NodeRef
}
