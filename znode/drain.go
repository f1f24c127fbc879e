package znode

import (
	"context"
	"sync"
	"time"

	"zgame/zmsg"
	"zgame/zrouter"
)

// DrainStep is how far a node's end is.
type DrainStep string

// The steps, in their order.
const (
	DrainServing    DrainStep = "serving"    // nobody has asked
	DrainAnnouncing DrainStep = "announcing" // the others are told
	DrainObjects    DrainStep = "objects"    // its objects go to others; its clients stay, and reach them there
	DrainClosing    DrainStep = "closing"    // clients are told to connect elsewhere, queues run empty, actors stop
	DrainStopped    DrainStep = "stopped"    // it has left the cluster
)

// DrainStatus says how far a node's drain is.
type DrainStatus struct {
	Node zmsg.NodeRef `json:"node"`
	Step DrainStep    `json:"step"`
	// Objects says how their moves go, or went; nil before, and where the node has no objects.
	Objects *zrouter.DrainReport `json:"objects,omitempty"`
	// Error says what could not be moved or released in time.
	Error string `json:"error,omitempty"`
}

// draining is how far the node's end is.
type draining struct {
	asked chan struct{} // closed when somebody asks for it
	moved chan struct{} // closed when the objects are elsewhere, or their time is over

	mu   *sync.Mutex
	step DrainStep // guarded by mu
	err  error     // guarded by mu
}

func newDraining() draining {
	return draining{asked: make(chan struct{}), moved: make(chan struct{}), mu: new(sync.Mutex), step: DrainServing}
}

func (d *draining) ask() {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.asked:
	default:
		close(d.asked)
	}
}

func (d *draining) enter(s DrainStep) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.step = s
}

// AskDrain asks that the node drains and stops, as SIGTERM does. It does not wait, and does nothing where that goes on already. Whoever
// runs the node hears of it by Run, Wait or DrainAsked.
func (n *Node) AskDrain() { n.drain.ask() }

// DrainAsked is closed when the node is to drain: by AskDrain, or since Stop was called.
func (n *Node) DrainAsked() <-chan struct{} { return n.drain.asked }

// DrainStatus says how far the node's drain is; it may be called at any time, also after Stop.
func (n *Node) DrainStatus() DrainStatus {
	n.drain.mu.Lock()
	s := DrainStatus{Node: n.Self(), Step: n.drain.step}
	if n.drain.err != nil {
		s.Error = n.drain.err.Error()
	}
	n.drain.mu.Unlock()
	if n.objects.set != nil {
		if rep, ok := n.objects.set.DrainProgress(); ok {
			s.Objects = &rep
		}
	}
	return s
}

// afterObjects bounds what a stop keeps of its time for what comes after the objects: a third of it, at most so much more than drain.delay.
const afterObjects = 5 * time.Second

// drainObjects moves the objects to other nodes, while others go on here; the result comes when they are there, or given up, or the time
// for it is over.
func (n *Node) drainObjects(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	if n.objects.set == nil {
		close(n.drain.moved)
		done <- nil
		return done
	}
	cancel := func() {}
	if end, ok := ctx.Deadline(); ok {
		left := time.Until(end)
		ctx, cancel = context.WithTimeout(ctx, left-min(left/3, n.cfg.Settings.Drain.Delay+afterObjects))
	}
	go func() { // owned by Stop, which waits for it; ends with ctx
		defer cancel()
		defer close(n.drain.moved)
		rep, err := n.objects.set.Drain(ctx)
		n.drain.mu.Lock()
		n.drain.err = err
		n.drain.mu.Unlock()
		if rep.Objects > 0 || err != nil {
			n.log.Info("objects drained", "moved", rep.Moved, "released", rep.Released, "gone", rep.Gone, "left", rep.Left, "retries", rep.Retries,
				"why", rep.Why, "took", rep.Took, "pause_p50", rep.Pause.Quantile(0.5), "pause_p99", rep.Pause.Quantile(0.99), "pause_max", rep.Pause.Max)
		}
		done <- err
	}()
	return done
}
