package znode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"zgame/zactor"
	"zgame/zdiscovery"
	"zgame/zmetrics"
	"zgame/zmsg"
)

// Singleton has one actor run in the whole cluster: on one of the nodes that call it with this name, each of which campaigns
// while it serves. f makes the actor for a term, which rises with each time that it starts anywhere: the fencing token for what it
// writes. (A restart after a failure is the same term.) Other actors and clients reach it by the message ids that it handles, as any
// service actor; between two terms nobody handles them.
//
// The actor ends, and then another node may start it: when the node drains, at the actor's own wish (Context.Stop), when it has
// failed more often than its Policy allows, and, at once, when the node's lease cannot be renewed, before anybody else
// can lead: what waits is answered with ErrStopped, a handler that runs gets its Context.Context cancelled. One that runs on
// regardless is why writes carry the term. See docs/singletons.md.
//
// It is called in App.Setup, or later. Errors: what is wrong with the name, zactor.ErrExists where the node has it already,
// zactor.ErrClosed in a node that stops.
func (n *Node) Singleton(name string, f func(term uint64) zactor.Actor, opts ...zactor.SpawnOption) error {
	if err := zdiscovery.CheckName(name); err != nil {
		return fmt.Errorf("znode: singleton: %w", err)
	}
	return n.singletons.add(name, f, opts)
}

// Leader says which node runs the singleton of the name, and in which term; the zero Leader is none. Errors as
// zdiscovery.Discovery.Leader.
func (n *Node) Leader(ctx context.Context, name string) (zdiscovery.Leader, error) {
	return n.backends.Discovery.Leader(ctx, singletonPrefix+name)
}

const (
	// singletonPrefix opens the name that is led, and that of the actor.
	singletonPrefix = "singleton:"
	// A singleton that failed campaigns again after a pause, doubled from the first to the last while it fails soon.
	firstFailPause = time.Second
	lastFailPause  = 30 * time.Second
	failsSoon      = time.Minute
)

// singletons are those of one node.
type singletons struct {
	n       *Node
	log     *slog.Logger
	metrics *zmetrics.Singletons
	margin  time.Duration   // between the end of the actor and the end of the time to act
	ready   chan struct{}   // closed by begin
	ctx     context.Context //nolint:containedctx // ends with stop
	cancel  context.CancelFunc
	wg      sync.WaitGroup // one goroutine for each singleton; they end with ctx

	mu    sync.Mutex // guards all below
	names map[string]bool
	errs  []error         // of the end
	down  context.Context //nolint:containedctx // bounds stop; set before ctx ends
}

func newSingletons(n *Node) *singletons {
	s := &singletons{
		n: n, log: n.log, metrics: zmetrics.NewSingletons(n.registry), margin: n.cfg.Settings.Etcd.Lease / 20,
		ready: make(chan struct{}), names: make(map[string]bool),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

func (s *singletons) add(name string, f func(term uint64) zactor.Actor, opts []zactor.SpawnOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ctx.Err() != nil:
		return zactor.ErrClosed
	case s.names[name]:
		return fmt.Errorf("znode: singleton %q: %w", name, zactor.ErrExists)
	}
	s.names[name] = true
	one := &singleton{singletons: s, name: name, make: f, opts: opts, log: s.log.With("singleton", name)}
	s.wg.Go(one.run)
	return nil
}

// begin is called once, when the node serves.
func (s *singletons) begin() { close(s.ready) }

// stop ends all singletons of the node and gives them up: what waits for them is handled before, as far as ctx leaves time.
func (s *singletons) stop(ctx context.Context) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	s.down = ctx
	s.cancel()
	s.mu.Unlock()
	s.wg.Wait()
	return errors.Join(s.errs...)
}

// singleton is one of a node's.
type singleton struct {
	*singletons
	name string
	make func(term uint64) zactor.Actor
	opts []zactor.SpawnOption
	log  *slog.Logger
}

// run campaigns and leads, again and again, until the node stops.
func (s *singleton) run() {
	select {
	case <-s.ready:
	case <-s.ctx.Done():
		return
	}
	fails := time.Duration(0)
	for s.ctx.Err() == nil {
		l, err := s.n.currentMember().Campaign(s.ctx, singletonPrefix+s.name)
		switch {
		case s.ctx.Err() != nil && err != nil:
			return
		case errors.Is(err, zdiscovery.ErrLost): // the node joins again
			pause(s.ctx, rejoinPause)
			continue
		case err != nil:
			s.log.Warn("singleton cannot campaign", "err", err)
			pause(s.ctx, firstFailPause)
			continue
		}
		begun := time.Now()
		if !s.lead(l) {
			fails = 0
			continue
		}
		if time.Since(begun) > failsSoon {
			fails = 0
		}
		fails = min(max(2*fails, firstFailPause), lastFailPause)
		pause(s.ctx, fails)
	}
}

// Why a term ends, as metrics and logs name it.
const (
	endStopped = "stopped" // the node stops
	endFailed  = "failed"  // the actor did not start, or ended by itself
	endLost    = "lost"    // discovery says that the term is over
	endExpired = "expired" // the lease was not renewed in time
)

// lead runs the actor until the term is over, and reports whether that was the actor's doing.
func (s *singleton) lead(l zdiscovery.Leadership) (failed bool) {
	log := s.log.With("term", l.Term())
	s.metrics.Leading.With(s.name).Set(1)
	s.metrics.Changes.With(s.name, "started").Inc()
	log.Info("singleton starts on this node")
	until := func() time.Time { return l.Until().Add(-s.margin) }
	gone := make(chan struct{}) // closed when there is no actor, or none any more
	var notStarted error        // written before gone is closed
	go func() {                 // ends with the actor, which end makes sure of; where its handler never returns, this does not
		defer close(gone)
		opts := append([]zactor.SpawnOption{zactor.WithUntil(until)}, s.opts...)
		ref, err := s.n.group.Spawn(singletonPrefix+s.name, func() zactor.Actor { return s.make(l.Term()) }, opts...)
		if notStarted = err; err == nil {
			<-s.n.group.Gone(ref)
		}
	}()
	held, release := hold(l, until)
	defer release()
	var why string
	select {
	case <-gone:
		why = endFailed
		log.Warn("singleton has failed", "err", notStarted)
	case <-held.Done():
		why = context.Cause(held).Error()
	case <-s.ctx.Done():
		why = endStopped
	}
	err := s.end(held, why, gone)
	s.metrics.Leading.With(s.name).Set(0)
	s.metrics.Changes.With(s.name, why).Inc()
	log.Info("singleton has ended on this node", "why", why)
	if stuck(err) {
		log.Error("a handler of the singleton does not return: what it writes is fenced by its term only", "err", err)
		select { // this node does not start another beside it, nor lets others while it leads
		case <-gone:
		case <-s.ctx.Done():
		}
	}
	if s.ctx.Err() != nil && err != nil {
		s.mu.Lock()
		s.errs = append(s.errs, fmt.Errorf("singleton %q: %w", s.name, err))
		s.mu.Unlock()
	}
	if s.ctx.Err() != nil && stuck(err) {
		return false // the node leaves, and with it the term ends
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopStep)
	defer cancel()
	if err := l.Resign(ctx); err != nil {
		log.Warn("discovery does not know yet that the singleton has ended", "err", err)
	}
	return why == endFailed
}

// hold makes a context that ends when the term is over or is about to be, with the reason as its cause.
func hold(l zdiscovery.Leadership, until func() time.Time) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() { // ends with ctx
		timer := time.NewTimer(time.Until(until()))
		defer timer.Stop()
		for ctx.Err() == nil {
			select {
			case <-l.Lost():
				cancel(errors.New(endLost))
			case <-timer.C:
				left := time.Until(until())
				if left <= 0 {
					cancel(errors.New(endExpired))
				}
				timer.Reset(left) // renewed meanwhile
			case <-ctx.Done():
			}
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// end stops the actor: at once, or where the node stops, when it has handled what waits, while the term lasts. It returns a
// *zactor.CutError.
func (s *singleton) end(held context.Context, why string, gone <-chan struct{}) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if why == endStopped {
		ctx, cancel = context.WithCancel(s.down)
		defer cancel()
		defer context.AfterFunc(held, cancel)()
	} else {
		cancel()
	}
	for {
		ref, there := s.n.group.Lookup(singletonPrefix + s.name)
		if there {
			if err := s.n.group.StopDrainedWait(ctx, ref); !errors.Is(err, zmsg.ErrUnknownActor) {
				return err
			}
		}
		select { // it is about to be spawned, or has just gone
		case <-gone:
			return nil
		case <-time.After(time.Millisecond):
		}
	}
}

// stuck reports whether the error says that the actor is there still.
func stuck(err error) bool {
	cut, ok := errors.AsType[*zactor.CutError](err)
	return ok && len(cut.Actors) > 0 && cut.Actors[0].Stuck
}
