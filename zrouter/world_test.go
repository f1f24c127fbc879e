package zrouter_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zactor"
	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zrouter/internal/testpb"
	"zgame/zstore"
	"zgame/zstore/memstore"
)

// patience bounds waits for what should happen at once.
const patience = 60 * time.Second

// logs is the kind of the tests: lines that are appended.
func logs() zrouter.Kind[*testpb.Log] {
	return zrouter.Kind[*testpb.Log]{
		Type: 7, Name: "log", Version: 1,
		Create: func(zmsg.Key) (*testpb.Log, error) { return new(testpb.Log), nil },
		Handlers: []zrouter.Handler[*testpb.Log]{
			zrouter.Handle(appendLine, zrouter.FromClients()),
			zrouter.Handle(getLines),
			zrouter.HandleTell(noteLine),
			zrouter.Handle(boom),
			zrouter.Handle(keepLine, zrouter.Durable()),
		},
	}
}

type logContext = zrouter.Context[*testpb.Log]

func add(c *logContext, line string) *testpb.Appended {
	c.State().Lines = append(c.State().Lines, line)
	c.Dirty()
	return &testpb.Appended{N: int64(len(c.State().Lines))}
}

func appendLine(c *logContext, req *testpb.Append) (*testpb.Appended, error) {
	return add(c, req.Line), nil
}

func keepLine(c *logContext, req *testpb.Keep) (*testpb.Appended, error) {
	return add(c, req.Line), nil
}
func noteLine(c *logContext, req *testpb.Note) error { add(c, req.Line); return nil }
func getLines(c *logContext, _ *testpb.Get) (*testpb.Lines, error) {
	return &testpb.Lines{Lines: append([]string(nil), c.State().Lines...)}, nil
}

func boom(c *logContext, _ *testpb.Boom) (*testpb.Lines, error) {
	add(c, "half done")
	panic("boom")
}

func key(id string) zmsg.Key { return zmsg.Key{Type: 7, ID: id} }

// world is some nodes in one process, with links that need no bus.
type world struct {
	t       testing.TB
	db      *memstore.Store
	mu      sync.RWMutex
	nodes   map[zmsg.NodeRef]*testNode
	order   []*testNode // as they were started
	snap    atomic.Pointer[zdiscovery.Snapshot]
	epoch   uint64
	kv      zstore.Store  // of nodes that start; nil: memory
	link    zrouter.Link  // of nodes that start; nil: that of the world
	log     *slog.Logger  // of nodes that start; nil: none
	lease   time.Duration // of nodes that start; 0: for ever
	ordered bool          // nodes that start keep the order of what they send each other
}

type testNode struct {
	w     *world
	ref   zmsg.NodeRef
	group *zactor.Group
	set   *zrouter.ManagerSet
	carry func(to zmsg.NodeRef, f func()) // has f run, which delivers something
	store *memstore.Store
	until atomic.Int64 // unix nanoseconds; 0: for ever
	down  atomic.Bool  // cut off from the others

	draining bool // guarded by the world's mu: the list says so
}

func newWorld(tb testing.TB, nodes ...string) *world {
	tb.Helper()
	w := &world{t: tb, db: memstore.New(), nodes: make(map[zmsg.NodeRef]*testNode)}
	w.snap.Store(&zdiscovery.Snapshot{})
	for _, id := range nodes {
		w.start(id, zrouter.Settings{}, logs())
	}
	return w
}

func (w *world) start(id string, settings zrouter.Settings, kinds ...zrouter.AnyKind) *testNode {
	w.t.Helper()
	w.epoch++
	n := &testNode{w: w, ref: zmsg.NodeRef{ID: id, Epoch: w.epoch}, store: w.db.Share()}
	if w.lease > 0 {
		n.until.Store(time.Now().Add(w.lease).UnixNano())
	}
	g, err := zactor.NewGroup(zactor.Config{Node: n.ref, Objects: n})
	if err != nil {
		w.t.Fatal(err)
	}
	n.group = g
	link := w.link
	if link == nil {
		link = n
	}
	n.carry = func(_ zmsg.NodeRef, f func()) { go f() }
	if w.ordered {
		n.carry = (&lanes{to: make(map[zmsg.NodeRef]*lane)}).in
	}
	store := w.kv
	if store == nil {
		store = n.store
	}
	n.set, err = zrouter.New(zrouter.Config{Self: n.ref, Group: g, Link: link, Members: n, Store: store, Settings: settings, Logger: w.log}, kinds...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	w.nodes[n.ref] = n
	w.order = append(w.order, n)
	w.mu.Unlock()
	w.list()
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		n.until.Store(0)
		n.store.SetFaults(nil)
		_, _ = n.set.Close(ctx)
		if err := g.Shutdown(ctx); err != nil {
			w.t.Error(err)
		}
	})
	return n
}

// DeliverObject implements zactor.Objects.
func (n *testNode) DeliverObject(k zmsg.Key, m *zmsg.Message) error { return n.set.DeliverObject(k, m) }

// list makes the list of nodes that are up.
func (w *world) list() {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &zdiscovery.Snapshot{Revision: int64(w.epoch)}
	for _, n := range w.nodes {
		state := zdiscovery.Ready
		if n.draining {
			state = zdiscovery.Draining
		}
		s.Nodes = append(s.Nodes, zdiscovery.Node{Ref: n.ref, State: state, Kinds: n.set.Kinds()})
	}
	slices.SortFunc(s.Nodes, func(a, b zdiscovery.Node) int { return strings.Compare(a.Ref.ID, b.Ref.ID) })
	w.snap.Store(s)
}

// remove takes a node off the list: it is dead for the others.
func (w *world) remove(n *testNode) {
	w.mu.Lock()
	delete(w.nodes, n.ref)
	w.epoch++
	w.mu.Unlock()
	w.list()
}

func (n *testNode) ServeUntil() time.Time {
	if u := n.until.Load(); u != 0 {
		return time.Unix(0, u)
	}
	return time.Now().Add(time.Hour)
}

func (n *testNode) Nodes() *zdiscovery.Snapshot { return n.w.snap.Load() }

func (n *testNode) to(ref zmsg.NodeRef) *testNode {
	n.w.mu.RLock()
	defer n.w.mu.RUnlock()
	to := n.w.nodes[ref]
	if to == nil || to.down.Load() || n.down.Load() {
		return nil
	}
	return to
}

// SendObject implements zrouter.Link.
func (n *testNode) SendObject(to zmsg.NodeRef, e *zmsg.Envelope, m *zmsg.Message, r zmsg.Replier, token uint64) error {
	target := n.to(to)
	if target == nil {
		if r == nil {
			return nil
		}
		go r.Reply(token, &zmsg.Reply{Code: zmsg.CodeUnavailable, Outcome: zmsg.NotExecuted, Undelivered: true})
		return nil
	}
	body, err := m.EncodedBody()
	if err != nil {
		return err
	}
	c := zmsg.NewMessage(m.ID)
	c.CopyHead(m)
	c.SetBody(slices.Clone(body)) // it may be the sender's again before it has arrived
	if r != nil {
		c.SetReplier(r, token)
	}
	copied := *e
	n.carry(to, func() { target.set.Receive(&copied, c) })
	return nil
}

// SendControl implements zrouter.Link.
func (n *testNode) SendControl(to zmsg.NodeRef, e *zmsg.Envelope) error {
	if target := n.to(to); target != nil {
		copied := *e
		n.carry(to, func() { target.set.Control(&copied, n.ref) })
	}
	return nil
}

func (n *testNode) append(k, line string) (int64, error) {
	ctx, cancel := context.WithTimeout(n.w.t.Context(), patience)
	defer cancel()
	a, err := zrouter.Call[testpb.Appended](ctx, n.set, key(k), &testpb.Append{Log: k, Line: line})
	return a.GetN(), err
}

func (n *testNode) keep(k, line string) (int64, error) {
	ctx, cancel := context.WithTimeout(n.w.t.Context(), patience)
	defer cancel()
	a, err := zrouter.Call[testpb.Appended](ctx, n.set, key(k), &testpb.Keep{Log: k, Line: line})
	return a.GetN(), err
}

func (n *testNode) lines(k string) ([]string, error) {
	ctx, cancel := context.WithTimeout(n.w.t.Context(), patience)
	defer cancel()
	a, err := zrouter.Call[testpb.Lines](ctx, n.set, key(k), &testpb.Get{Log: k})
	return a.GetLines(), err
}

func (w *world) record(k string) (zstore.Record, error) { return w.db.Read(w.t.Context(), key(k)) }

// all returns the nodes that are up, in the order of their start.
func (w *world) all() []*testNode {
	w.mu.RLock()
	defer w.mu.RUnlock()
	var out []*testNode
	for _, n := range w.order {
		if w.nodes[n.ref] == n {
			out = append(out, n)
		}
	}
	return out
}

func decode(tb testing.TB, state []byte) *testpb.Log {
	tb.Helper()
	s := new(testpb.Log)
	if err := proto.Unmarshal(state, s); err != nil {
		tb.Fatal(err)
	}
	return s
}

// eventually waits until cond holds.
func eventually(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	for until := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			tb.Fatal("not so: " + what)
		}
	}
}
