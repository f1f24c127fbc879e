package zactor

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zmetrics"
	"zgame/zmsg"
)

// Config says what a Group is part of. All fields may be left out.
type Config struct {
	// Node is this node's identity: it makes the addresses of actors.
	Node zmsg.NodeRef
	// Logger defaults to none.
	Logger *slog.Logger
	// Metrics defaults to a set that counts into the void.
	Metrics *zmetrics.Actor

	// Clock is what the group measures and waits by. Defaults to package time; a test may move one by hand, see
	// zactortest.Clock. The times of other parts (contexts of callers, links to other nodes, and how long Shutdown waits)
	// stay those of package time.
	Clock Clock

	// Seed, if set, makes Context.Rand of each actor the same in each run: for tests and simulation. Defaults to a random
	// seed for each instance.
	Seed uint64

	// RecordDir is where flight recorders leave their files when an actor panics; it is made when needed, for the owner alone.
	// Without it no recorder works, whatever Recorder and WithRecorder say.
	RecordDir string
	// RecordFiles is how many files of records RecordDir may hold; the oldest go. One actor has a quarter of them. Defaults to 16.
	RecordFiles int
	// Recorder, if set, gives every actor a flight recorder; see WithRecorder for a single one.
	Recorder *RecorderOptions

	// Routes is told about actors with handlers. Without it nobody routes to them by message id.
	Routes Routes
	// Sessions is the way to clients. Without it such calls fail with zmsg.ErrUnavailable.
	Sessions Sessions
	// Remote is the way to other nodes. Without it such calls fail with zmsg.ErrUnavailable.
	Remote Remote
	// Watches carries watches to other nodes. Without it a watch of an actor there ends with LostNode.
	Watches Watches
	// Topics carries topics between nodes. Without it they are this group's own.
	Topics Topics
	// Router takes messages by their id, see Group.ByID. Without it such calls fail with zmsg.ErrNoRoute.
	Router Router
	// Objects takes messages for stateful actors, see Group.Object. Without it such calls fail with zmsg.ErrUnavailable.
	Objects Objects

	// Mailbox is how many messages may wait for an actor; see WithMailbox. Defaults to 1,024.
	Mailbox int
	// MailboxBytes is how many bytes of messages may wait for an actor; see WithMailboxBytes. Defaults to no bound.
	MailboxBytes int
	// Overflow is what happens to a message for an actor whose mailbox is full; see WithOverflow. Defaults to Reject.
	Overflow Overflow
	// MaxTopics is how many topics may have a subscriber in this group. Each is one subscription at the bus. Defaults to 65,536.
	MaxTopics int
	// MaxQueues is how many queues of topics may have a member in this group. The other nodes know each. Defaults to 256.
	MaxQueues int
	// ActorTopics is how many subscriptions an actor may have, memberships in queues among them. Defaults to 1,024.
	ActorTopics int
	// HandlerLimit is how long a handler may run before it is told of: once, by a warning with its stack and a counter.
	// It comes at most a quarter later. Defaults to 5 s; -1 is no limit. A handler that waits counts too.
	HandlerLimit time.Duration
	// QueueMark is the share of a mailbox's bound above which it counts as full, 0 to 1. One that stays so for QueueTime is told of by a
	// warning (what waits, and for how long) and a counter, and again after six times as long. Defaults to 0.8; -1 is no mark.
	QueueMark float64
	// QueueTime is how long a mailbox may stay above QueueMark. Defaults to 10 s.
	QueueTime time.Duration
	// AskTimeout is how long a request waits whose caller sets no deadline. Defaults to 10 s.
	AskTimeout time.Duration
	// Policy is what happens to an actor that panics; see WithPolicy.
	Policy Policy
	// Middleware is around every handler of the group, the first outermost. Each actor costs some memory for it, see
	// Middleware.
	Middleware []Middleware
	// AsyncWorkers is how many jobs of Async run at once. Defaults to 64.
	AsyncWorkers int
	// AsyncQueue is how many further jobs wait. Defaults to 1,024.
	AsyncQueue int
	// AsyncFull says what happens to a job above that. Defaults to AsyncReject.
	AsyncFull AsyncPolicy
	// AsyncPools are further pools by their names, see OnPool: one for each thing that may be slow on its own.
	AsyncPools map[string]AsyncPool
	// StopTimeout is how long Shutdown waits, after its context has ended, for actors that are being stopped.
	// Defaults to 1 s.
	StopTimeout time.Duration
	// OnEscalate is called on the actor's goroutine when an actor without a parent ends by the directive Escalate.
	// Without it the failure is logged.
	OnEscalate func(*EscalatedError)
	// OnDeadLetter is called for each message that no handler ran for. It runs on many goroutines and must not block.
	OnDeadLetter func(DeadLetter)
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = zmetrics.NewActor(nil)
	}
	if c.Clock == nil {
		c.Clock = realClock{}
	}
	if c.Mailbox == 0 {
		c.Mailbox = 1024
	}
	if c.MaxTopics == 0 {
		c.MaxTopics = 1 << 16
	}
	if c.MaxQueues == 0 {
		c.MaxQueues = 256
	}
	if c.ActorTopics == 0 {
		c.ActorTopics = 1024
	}
	if c.HandlerLimit == 0 {
		c.HandlerLimit = 5 * time.Second
	}
	if c.QueueMark == 0 {
		c.QueueMark = 0.8
	}
	if c.QueueTime == 0 {
		c.QueueTime = 10 * time.Second
	}
	if c.AskTimeout == 0 {
		c.AskTimeout = 10 * time.Second
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = time.Second
	}
	if c.RecordFiles == 0 {
		c.RecordFiles = 16
	}
	if c.Sessions == nil {
		c.Sessions = noSessions{}
	}
	c.Middleware = slices.Clone(c.Middleware)
	c.Policy = c.Policy.withDefaults()
	return c
}

// maxMailbox keeps the bound of a mailbox, and sums with it, within 32 bits.
const maxMailbox = 1 << 28

func (c Config) validate() error {
	errs := []error{c.Policy.validate()}
	if c.Mailbox < 1 || c.Mailbox > maxMailbox {
		errs = append(errs, fmt.Errorf("zactor: Config.Mailbox is %d: want 1 to %d", c.Mailbox, maxMailbox))
	}
	errs = append(errs, validateBytes("Config.MailboxBytes", c.MailboxBytes), c.Overflow.validate("Config.Overflow"))
	for _, n := range []struct {
		name string
		v    int
	}{{"MaxTopics", c.MaxTopics}, {"MaxQueues", c.MaxQueues}, {"ActorTopics", c.ActorTopics}} {
		if n.v < 0 {
			errs = append(errs, fmt.Errorf("zactor: Config.%s is %d: want a positive number", n.name, n.v))
		}
	}
	if c.HandlerLimit < -1 {
		errs = append(errs, fmt.Errorf("zactor: Config.HandlerLimit is %v: want a positive duration, or -1 for no limit", c.HandlerLimit))
	}
	if c.QueueMark != -1 && !(c.QueueMark > 0 && c.QueueMark <= 1) {
		errs = append(errs, fmt.Errorf("zactor: Config.QueueMark is %v: want above 0 and at most 1, or -1 for no mark", c.QueueMark))
	}
	for _, d := range []struct {
		name string
		v    time.Duration
	}{{"QueueTime", c.QueueTime}, {"AskTimeout", c.AskTimeout}, {"StopTimeout", c.StopTimeout}} {
		if d.v < 0 {
			errs = append(errs, fmt.Errorf("zactor: Config.%s is %v: want a positive duration", d.name, d.v))
		}
	}
	errs = append(errs, c.asyncPool().validate("Config.AsyncWorkers", "Config.AsyncQueue", "Config.AsyncFull"))
	for name, p := range c.AsyncPools {
		if name == "" {
			errs = append(errs, errors.New("zactor: Config.AsyncPools has a pool without a name: AsyncWorkers and AsyncQueue make that one"))
		}
		of := fmt.Sprintf("Config.AsyncPools[%q].", name)
		errs = append(errs, p.validate(of+"Workers", of+"Queue", of+"Full"))
	}
	if c.RecordFiles < 0 {
		errs = append(errs, fmt.Errorf("zactor: Config.RecordFiles is %d: want a positive number", c.RecordFiles))
	}
	if c.Recorder != nil {
		errs = append(errs, c.Recorder.validate())
	}
	for i, mw := range c.Middleware {
		if mw == nil {
			errs = append(errs, fmt.Errorf("zactor: Config.Middleware[%d] is nil: want a function", i))
		}
	}
	return errors.Join(errs...)
}

// asyncPool is the pool for work that names none.
func (c *Config) asyncPool() AsyncPool { return AsyncPool{c.AsyncWorkers, c.AsyncQueue, c.AsyncFull} }

// Target is where routes take messages: a local Ref.
type Target = interface {
	Deliver(m *zmsg.Message) error
	Load() int
}

// Routes is told which message ids an actor handles; zroute.Local is one. Register is called after the actor has started,
// Unregister before it stops.
type Routes interface {
	Register(actor uint64, typ string, t Target, ads []zmsg.Advert) error
	Unregister(actor uint64)
}

// Remote sends a message to an actor of another node; zbus.Link is one. It encodes m before it returns and does not keep
// it. With r set and a nil error, r gets exactly one outcome for token; on an error nothing was sent.
type Remote interface {
	Send(to zmsg.Address, m *zmsg.Message, r zmsg.Replier, token uint64) error
}

// Teller is a Remote that takes one-way messages of which there is nothing more to say than a zmsg.Tell does more cheaply; zbus.Link is one.
type Teller interface {
	// Tell is Send for t, to an actor of the node, with the body that v encodes to; v is zmsg.Plain.
	Tell(to zmsg.NodeRef, t zmsg.Tell, v proto.Message) error
}

// Router takes a message where its id belongs; zroute.Router is one. On an error m stays with the caller.
type Router interface {
	Dispatch(m *zmsg.Message) error
}
