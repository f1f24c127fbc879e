package zbus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"zgame/zmetrics"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// LinkConfig is what a Link needs. Self and Bus are required.
type LinkConfig struct {
	// Self is this node, as it is when the link starts; see Rejoin.
	Self zmsg.NodeRef
	// Bus carries the envelopes. The Link does not close it.
	Bus Bus
	// Prefix opens every subject, so that clusters can share a bus: tokens of letters, digits, '-' and '_', with dots
	// between. Defaults to "zgame".
	Prefix string
	// Handlers take what arrives.
	Handlers Handlers
	// Direct says that the handlers really never block, nor wait for anything that the bus brings: they may run on the goroutine that
	// reads the connection (see the interface Direct). Without, handlers that are stuck cost messages; with, the connection.
	Direct bool

	// DefaultTimeout is the deadline of a request whose message has none. Defaults to 10 s.
	DefaultTimeout time.Duration
	// MaxRequests bounds the requests that wait for their outcome; more are refused with zmsg.ErrBusy. At most
	// 1,048,576. Defaults to 65,536.
	MaxRequests int
	// OutboxMessages and OutboxBytes bound what waits to be sent; more is refused with zmsg.ErrBusy. Replies may take
	// twice as much: refusing one would leave its caller waiting. Default to 65,536 and 64 MiB.
	OutboxMessages, OutboxBytes int
	// BatchBytes is the size from which a bus message is not joined with further envelopes. Larger saves work on the
	// bus; smaller keeps less memory alive by each message that waits in a mailbox, which aliases the batch it came
	// in. Defaults to 32 KiB.
	BatchBytes int

	// Logger; nil discards.
	Logger *slog.Logger
	// Metrics; nil counts for nobody.
	Metrics *zmetrics.Bus
}

// Handlers take what arrives at a Link. They are called from its one receive goroutine, one at a time, and must not
// block. A nil handler answers requests with an error, NotExecuted.
type Handlers struct {
	// Actor gets a message for the actor `to` of this node, and owns it. It wants a reply iff the sender asked for one.
	Actor func(to uint64, m *zmsg.Message)
	// Tells, if it is set, is called in place of Actor for one-way messages of which there is nothing more to say than a zmsg.Tell does:
	// those that came one behind the other for one actor. a may be kept; list is valid during the call only. zmsg.OpenMessage makes the
	// messages that Actor would get.
	Tells func(to uint64, a *zmsg.Arrival, list []zmsg.Told)
	// Session gets operations on sessions of this gate, and what is published to groups it joined (Group set, Op
	// push). e and all it points to are valid during the call only.
	Session func(e *zmsg.Envelope, from zmsg.NodeRef)
	// Topic gets what another node published on a topic that this one joined, and owns m. topic is valid during the call only.
	Topic func(topic string, m *zmsg.Message)
	// Queue gets a message of a topic for one of this node's members of a queue, and owns m. It answers m as soon as it is in
	// a mailbox, or with why it is in none. topic and queue are valid during the call only.
	Queue func(topic, queue string, m *zmsg.Message)
	// Object gets a message for a stateful actor and owns m; e (Key, Version, and as Owner the origin) is valid during the call only.
	Object func(e *zmsg.Envelope, m *zmsg.Message)
	// Control gets what nodes tell each other (SendControl). e is valid during the call only. It returns false for what is
	// not of this wire, which the link counts and logs.
	Control func(e *zmsg.Envelope, from zmsg.NodeRef) bool
	// Nobody, if it is set, is told that what was sent to a node has reached nobody: no process with its name and epoch is at the bus. It must not block.
	Nobody func(node zmsg.NodeRef)
}

const maxRequestsLimit = 1 << slotBits

func (c LinkConfig) withDefaults() LinkConfig {
	def := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	if c.Prefix == "" {
		c.Prefix = "zgame"
	}
	if c.DefaultTimeout == 0 {
		c.DefaultTimeout = 10 * time.Second
	}
	def(&c.MaxRequests, 1<<16)
	def(&c.OutboxMessages, 1<<16)
	def(&c.OutboxBytes, 64<<20)
	def(&c.BatchBytes, 32<<10)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = zmetrics.NewBus(nil)
	}
	return c
}

func (c LinkConfig) validate() error {
	var faults []error
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf("zbus: "+format, args...)) }
	if !nodeID(c.Self.ID) {
		bad("Self has an id of %d bytes: expected this node's NodeRef, with an id of 1 to 256 bytes", len(c.Self.ID))
	}
	if c.Bus == nil {
		bad("Bus is nil: expected a driver, such as natsbus.New")
	}
	for token := range strings.SplitSeq(c.Prefix, ".") {
		if token == "" || strings.IndexFunc(token, func(r rune) bool { return r > 127 || !tokenByte(byte(r)) && r != '_' }) >= 0 {
			bad("Prefix %q: expected tokens of letters, digits, '-' and '_' with dots between", c.Prefix)
			break
		}
	}
	if c.DefaultTimeout < 0 {
		bad("DefaultTimeout is %v: expected a positive duration", c.DefaultTimeout)
	}
	if c.MaxRequests < 0 || c.MaxRequests > maxRequestsLimit {
		bad("MaxRequests is %d: expected 1 to %d", c.MaxRequests, maxRequestsLimit)
	}
	for name, n := range map[string]int{"OutboxMessages": c.OutboxMessages, "OutboxBytes": c.OutboxBytes, "BatchBytes": c.BatchBytes} {
		if n < 0 {
			bad("%s is %d: expected a positive number", name, n)
		}
	}
	return errors.Join(faults...)
}

// What Send and its like answer. errors.Is works with zmsg's sentinels.
var (
	errDown     error = &zmsg.Error{Code: zmsg.CodeUnavailable, Outcome: zmsg.NotExecuted, Text: "the bus is down"}
	errLinkDone error = &zmsg.Error{Code: zmsg.CodeUnavailable, Outcome: zmsg.NotExecuted, Text: "the link is not started, or closed"}
	errOutbox   error = &zmsg.Error{Code: zmsg.CodeBusy, Outcome: zmsg.NotExecuted, Text: "too much waits to be sent to other nodes"}
	errRequests error = &zmsg.Error{Code: zmsg.CodeBusy, Outcome: zmsg.NotExecuted, Text: "too many requests to other nodes in flight"}
	errTooLarge error = &zmsg.Error{Code: zmsg.CodeTooLarge, Outcome: zmsg.NotExecuted, Text: "the message is above the bus's limit"}
	errExpired  error = &zmsg.Error{Code: zmsg.CodeTimeout, Outcome: zmsg.NotExecuted, Text: "the deadline passed before the request was sent"}
	errNowhere  error = &zmsg.Error{Code: zmsg.CodeUnknownActor, Outcome: zmsg.NotExecuted, Text: "the address names no node"}
	errOnce     error = &zmsg.Error{Code: zmsg.CodeBadRequest, Outcome: zmsg.NotExecuted, Text: "an idempotency key has at most 128 bytes of UTF-8"}
	errGroup    error = &zmsg.Error{Code: zmsg.CodeBadRequest, Outcome: zmsg.NotExecuted, Text: "a group's name has 1 to 256 bytes"}
	errTopic    error = &zmsg.Error{Code: zmsg.CodeBadRequest, Outcome: zmsg.NotExecuted, Text: "the name of a topic, or of a queue, has 1 to 256 bytes"}
)

// Link connects this node with the others. Make it with NewLink, then Start it. All methods may be called from any
// goroutine, but for Start, Drain and Close not from handlers and repliers.
type Link struct {
	// Set at construction.
	cfg       LinkConfig
	log       *slog.Logger
	counts    counters
	base      time.Time // deadlines are kept as time since it
	headSize  int       // upper bound of a batch's head
	joinBytes int       // see joinLocked
	self      zmsg.Self
	groups    string                                         // prefix of the subjects of groups
	topics    string                                         // and of topics
	direct    func(subject, reply string, data []byte) error // see directOf
	wake      chan struct{}
	timer     *time.Timer   // the sweeper's
	stop      chan struct{} // closed by Close: outbox and sweeper end
	outDone   chan struct{} // closed when the outbox has ended
	swept     chan struct{} // closed when the sweeper has ended
	idle      chan struct{} // poked while draining when something has ended

	life      sync.Mutex // held by Start and Close: one of them at a time
	unobserve func()     // guarded by life

	// Atomic.
	me       atomic.Pointer[subjects]
	up       atomic.Bool
	ups      atomic.Uint64 // how often the driver has told that the bus is up
	maxBytes atomic.Int64  // the bus's limit
	draining atomic.Bool
	inbound  atomic.Int64 // requests of other nodes that were delivered and not answered

	seen struct { // what the driver told
		sync.Mutex
		any bool
	}

	mu        sync.Mutex // guards all below. No handler, replier or driver is called with it held
	state     linkState
	receiver  Receiver // nil before Start
	behind    []uint64 // lanes whose Lost is to be sent behind what the outbox publishes
	outEnded  bool     // the outbox has ended: nothing is sent any more
	lanes     map[zmsg.NodeRef]*lane
	lanesByID map[uint64]*lane
	missing   []missing        // what nodes said they missed, until the outbox has looked
	leaving   map[uint64]*lane // to nodes that are lost, by id, while answers may be on their way
	lastLane  uint64
	lastUsed  *lane          // of laneLocked: it may be gone
	series    uint64         // see seriesShift
	out       map[cast]*lane // lanes to groups and topics
	requests  requests
	sweepAt   time.Duration // when the timer fires; never if noSweep
	lookAt    time.Duration // when to look next which lanes to probe
	peersAt   time.Duration // when to probe all senders; 0: not
	queue     []*chunk      // envelopes that wait for the outbox; only the last chunk can be empty
	free      []*chunk
	woken     bool // the outbox was told, and has not found the queue empty since
	waiting   int  // envelopes in the queue, and in the chunk that the outbox has taken
	bytes     int  // of them

	outbox outbox

	in inbound // the receive side; its lock is taken inside mu

	limits logLimiter
}

type linkState uint8

const (
	linkNew linkState = iota
	linkStarting
	linkRunning
	linkClosed
)

// NewLink makes a Link; it does nothing before Start.
func NewLink(cfg LinkConfig) (*Link, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	l := &Link{
		cfg:       cfg,
		log:       cfg.Logger.With("node", cfg.Self.ID),
		counts:    newCounters(cfg.Metrics),
		base:      time.Now(),
		joinBytes: min(2<<10, cfg.BatchBytes/16),
		headSize:  len(zmsg.AppendBatchHead(nil, zmsg.BatchHead{From: zmsg.NodeRef{ID: cfg.Self.ID, Epoch: 1 << 63}, Number: 1 << 63})),
		groups:    cfg.Prefix + ".g.",
		topics:    cfg.Prefix + ".t.",
		direct:    directOf(cfg.Bus),
		wake:      make(chan struct{}, 1),
		timer:     time.NewTimer(noSweep),
		stop:      make(chan struct{}),
		outDone:   make(chan struct{}),
		swept:     make(chan struct{}),
		idle:      make(chan struct{}, 1),
		lanes:     make(map[zmsg.NodeRef]*lane),
		lanesByID: make(map[uint64]*lane),
		leaving:   make(map[uint64]*lane),
		out:       make(map[cast]*lane),
		requests:  requests{limit: cfg.MaxRequests},
		sweepAt:   noSweep,
	}
	l.timer.Stop()
	l.outbox.l = l
	l.in.init()
	l.self.Set(cfg.Self)
	l.me.Store(l.subjectsOf(cfg.Self))
	return l, nil
}

// inboxOf is the subject of a node's inbox.
func (l *Link) inboxOf(n zmsg.NodeRef) string {
	return l.cfg.Prefix + ".n." + Token(n.ID) + "." + strconv.FormatUint(n.Epoch, 10)
}

// Start subscribes the inbox; when it returns, other nodes reach this one. ctx bounds the start alone. A link starts
// once. Errors: those of Receiver.Subscribe.
func (l *Link) Start(ctx context.Context) error {
	l.life.Lock()
	defer l.life.Unlock()
	l.mu.Lock()
	fresh := l.state == linkNew
	if fresh {
		l.state = linkStarting
	}
	l.mu.Unlock()
	if !fresh {
		return errors.New("zbus: a link starts once")
	}

	l.unobserve = l.cfg.Bus.Observe(Events{
		Up: l.returned, Down: l.down, Dropped: l.dropped,
		Error: func(err error) { l.warn("bus_error", "bus error", "err", err) },
	})
	l.seen.Lock()
	if !l.seen.any { // else the driver has told something newer
		l.setUpLocked(l.cfg.Bus.Up())
	}
	l.seen.Unlock()

	go l.runOutbox()  // owned by the link; ends when Close closes stop and nothing waits; Close waits for it
	go l.runSweeper() // owned by the link; ends when Close closes stop; Close waits for it

	receiver, err := l.openReceiver()
	if err == nil {
		l.mu.Lock()
		l.receiver = receiver
		l.mu.Unlock()
		err = l.me.Load().subscribe(ctx, receiver)
	}
	if err != nil {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		return errors.Join(fmt.Errorf("zbus: start of the link: %w", err), l.closeAlone(stop))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = linkRunning
	return nil
}

// Up reports whether the bus is connected and the link runs.
func (l *Link) Up() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == linkRunning && l.up.Load()
}

// Drain answers new requests of other nodes with zmsg.CodeDraining from now on, and waits until those that were
// delivered before are answered, the own ones have their outcome, and all of that has reached the bus. Sending goes
// on as before: what finishes may need others. It returns ctx's error when that takes too long.
func (l *Link) Drain(ctx context.Context) error {
	l.draining.Store(true)
	for {
		l.mu.Lock()
		done := l.inbound.Load() == 0 && l.requests.n == 0 && l.waiting == 0
		l.mu.Unlock()
		if done {
			break
		}
		select {
		case <-l.idle:
		case <-ctx.Done():
			l.mu.Lock()
			own, unsent := l.requests.n, l.waiting
			l.mu.Unlock()
			return fmt.Errorf("zbus: drain: %d requests of other nodes without an answer, %d own without an outcome, %d envelopes not sent: %w",
				l.inbound.Load(), own, unsent, ctx.Err())
		}
	}
	if err := l.cfg.Bus.Flush(ctx); err != nil && !errors.Is(err, ErrDown) {
		return fmt.Errorf("zbus: drain: %w", err)
	}
	return nil
}

// poke tells Drain that something has ended.
func (l *Link) poke() {
	if !l.draining.Load() {
		return
	}
	select {
	case l.idle <- struct{}{}:
	default:
	}
}

// Close sends what waits, ends the subscriptions and the goroutines, and then all requests that still wait, with
// zmsg.CodeUnavailable, Unknown. What takes longer than ctx is cut. It may be called more than once.
func (l *Link) Close(ctx context.Context) error {
	l.life.Lock()
	defer l.life.Unlock()
	return l.closeAlone(ctx)
}

// closeAlone is Close with life held.
func (l *Link) closeAlone(ctx context.Context) error {
	l.mu.Lock()
	before := l.state
	l.state = linkClosed
	receiver := l.receiver
	l.mu.Unlock()
	if before == linkNew {
		return nil
	}
	var errs []error
	if receiver != nil {
		if err := receiver.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("zbus: close: handlers are still running: %w", err))
		}
	}
	if before != linkClosed {
		close(l.stop)
	}
	for _, done := range []chan struct{}{l.outDone, l.swept} {
		select {
		case <-done:
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("zbus: close: %w", ctx.Err()))
		}
	}
	if before != linkClosed {
		if err := l.cfg.Bus.Flush(ctx); err != nil && !errors.Is(err, ErrDown) && !errors.Is(err, ErrClosed) {
			errs = append(errs, fmt.Errorf("zbus: close: %w", err))
		}
		l.unobserve()
		l.timer.Stop()
	}
	l.endAll("closed", "the link was closed")
	return errors.Join(errs...)
}

// returned is the driver's word that there is a connection (again): what waited for it is sent, and the nodes that sent
// something meanwhile learn what was lost.
func (l *Link) returned() {
	l.ups.Add(1)
	l.setUp(true)
	select {
	case l.wake <- struct{}{}:
	default:
	}
	l.askSenders(0)
}

// down is the driver's word that the connection is lost.
func (l *Link) down(err error) {
	l.setUp(false)
	l.warn("bus_down", "bus is down", "err", err)
	l.endAll("down", "the connection to the bus was lost")
}

// endAll ends every request that waits: it may have run, unless it was not even sent.
func (l *Link) endAll(outcome, text string) {
	l.endIf(func(*request) bool { return true }, outcome, text)
}

// endSent ends the requests that wait for an answer, not those that wait to be sent.
func (l *Link) endSent(outcome, text string) {
	l.endIf(func(q *request) bool { return q.sent }, outcome, text)
}

func (l *Link) endIf(which func(*request) bool, outcome, text string) {
	l.mu.Lock()
	var list []ended
	for slot := range l.requests.slots {
		if q := &l.requests.slots[slot]; q.lane != nil && which(q) {
			list = append(list, l.requests.end(int32(slot)))
		}
	}
	l.mu.Unlock()
	for i := range list {
		l.finish(&list[i], zmsg.CodeUnavailable, text)
	}
	l.counts.request(outcome, len(list))
	l.poke()
}

// finish ends a request that was sent or not with an error: Unknown or NotExecuted.
func (l *Link) finish(e *ended, code zmsg.Code, text string) {
	r := zmsg.Reply{Code: code, Outcome: zmsg.NotExecuted, Text: text}
	if e.sent {
		r.Outcome = zmsg.Unknown
	} else {
		r.Undelivered = code == zmsg.CodeUnavailable || code == zmsg.CodeNodeLost
	}
	e.replier.Reply(e.token, &r)
}

func (l *Link) setUp(up bool) {
	l.seen.Lock()
	defer l.seen.Unlock()
	l.seen.any = true
	l.setUpLocked(up)
}

// sawDown is told when the bus has refused because it is down. A driver may say so before it tells; who sends is to learn it at
// once. What the driver tells later, that it is down and then that it is up, holds.
func (l *Link) sawDown() {
	l.seen.Lock()
	defer l.seen.Unlock()
	if l.up.Load() && !l.cfg.Bus.Up() {
		l.setUpLocked(false)
	}
}

// setUpLocked notes whether the bus is up. l.seen is locked.
func (l *Link) setUpLocked(up bool) {
	l.maxBytes.Store(int64(l.cfg.Bus.MaxPayload()))
	l.up.Store(up)
	if up {
		l.cfg.Metrics.Up.Set(1)
	} else {
		l.cfg.Metrics.Up.Set(0)
	}
}

// dropped is the driver's word that it dropped n messages because the handlers are too slow.
func (l *Link) dropped(n int) {
	l.cfg.Metrics.SlowDrops.Add(float64(n))
	l.warn("slow", "bus messages dropped, handlers too slow", "count", n)
	l.askSenders(peersAfter)
}

// warn logs at a bounded rate for each key.
func (l *Link) warn(key, msg string, args ...any) {
	suppressed, ok := l.limits.allow(key)
	if !ok {
		return
	}
	if suppressed > 0 {
		args = append(args, "suppressed", suppressed)
	}
	l.log.Warn(msg, args...) //nolint:sloglint // msg is a constant at each call
}

// envelope kinds for counters.
var kindNames = [...]string{
	wirepb.EnvelopeKind_ENVELOPE_KIND_ACTOR:   "actor",
	wirepb.EnvelopeKind_ENVELOPE_KIND_REPLY:   "reply",
	wirepb.EnvelopeKind_ENVELOPE_KIND_SESSION: "session",
	wirepb.EnvelopeKind_ENVELOPE_KIND_OBJECT:  "object",
	wirepb.EnvelopeKind_ENVELOPE_KIND_CONTROL: "control",
}
