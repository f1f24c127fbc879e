package transfer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"zgame/bench/benchpb"
	"zgame/zmsg"
	"zgame/znode"
)

// Load while single objects are moved.
const (
	loadKeys  = 32
	loadThink = 15 * time.Millisecond // so about 2,000 requests a second in all
	moveGap   = 3 * time.Millisecond  // between two moves of an object
)

// Pauses are of the moves of one object.
type Pauses struct {
	Size     int
	Moves    int
	Pause    []time.Duration // of each: the longest that a request took that was there meanwhile; sorted
	Transfer []time.Duration // how long the call of Transfer took; sorted
	Steady   time.Duration   // median of the requests to the object while it stood still
	Failed   int
	Why      error
}

// MeasurePauses moves an object with a state of size bytes to and fro, while four callers ask for it without a pause, and others for other
// objects.
func (c *Cluster) MeasurePauses(size, moves int) (p Pauses, err error) {
	p.Size = size
	k := key("paused", 0, size)
	if err := put(c.nodes[0], k, 0, 1, patience); err != nil {
		return p, err
	}
	load, err := c.background("load", loadKeys, loadThink)
	if err != nil {
		return p, err
	}
	behind := work(load)
	var callers []*caller
	for i := range 4 {
		callers = append(callers, &caller{node: c.nodes[i%3], key: k, id: uint32(i + 1), think: 200 * time.Microsecond, keep: true})
	}
	asking := work(callers)
	at, err := c.owner(k)
	if err != nil {
		return p, errors.Join(err, endBoth(asking, behind))
	}
	began := time.Now()
	rest(300 * time.Millisecond)
	still := time.Now()
	var windows []span
	for i := range moves {
		w, to, err := c.moveOnce(k, at, i)
		if err != nil {
			return p, errors.Join(err, endBoth(asking, behind))
		}
		at = to
		windows = append(windows, w)
		p.Transfer = append(p.Transfer, w.took())
		rest(moveGap)
	}
	p.Failed, p.Why = asking.end()
	if n, why := behind.end(); n > 0 {
		p.Failed, p.Why = p.Failed+n, why
	}
	p.Steady = quantile(latencies(callers, began, still), 0.5)
	for _, w := range windows {
		longest := time.Duration(0)
		for _, x := range callers {
			i, _ := slices.BinarySearchFunc(x.spans, w.from, func(s span, at time.Time) int { return s.to.Compare(at) })
			for ; i < len(x.spans) && x.spans[i].from.Before(w.to); i++ {
				longest = max(longest, x.spans[i].took())
			}
		}
		p.Pause = append(p.Pause, longest)
	}
	p.Moves = len(windows)
	slices.Sort(p.Pause)
	slices.Sort(p.Transfer)
	return p, nil
}

func endBoth(a, b *crowd) error {
	_, err1 := a.end()
	_, err2 := b.end()
	return errors.Join(err1, err2)
}

// moveOnce moves an object from one node to the next of the others, and says when that was, and who has it then.
func (c *Cluster) moveOnce(k zmsg.Key, at, i int) (took span, to int, err error) {
	to = (at + 1 + i%2) % len(c.nodes)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began := time.Now()
	_, err = c.nodes[at].Objects().Transfer(ctx, k, c.nodes[to].Self())
	if err != nil {
		to = at
	}
	return span{began, time.Now()}, to, err
}

// Storm is what became of the requests to objects that were moved all the time.
type Storm struct {
	Moves, Refused int // moves; those that were refused, and asked for again
	Requests       int
	Failed         int // requests that ended with an error
	Unknown        int // of them: nobody knows whether they ran
	Why            error
	Lost           int // numbers of a caller that never came to the object, though the request was not refused
	Doubled        int // that came twice
	Reordered      int // that came behind a later one
	Unanswered     int // requests without an outcome, or with two
	Took           time.Duration
}

// Of a storm: how many objects, callers of each, and requests that a caller has on their way at once.
const (
	stormKeys    = 48
	stormCallers = 2
	stormWindow  = 4
	stormThink   = 20 * time.Millisecond // between bursts of so many
)

// pipe is a caller that does not wait for an answer before it sends the next request; they are in order all the same.
type pipe struct {
	node    *znode.Node
	key     zmsg.Key
	id      uint32
	sent    uint64
	window  chan struct{}
	mu      sync.Mutex
	open    map[uint64]bool // guarded by mu: sent, and not answered
	failed  int             // guarded by mu
	unknown int             // guarded by mu
	wrong   int             // guarded by mu: answers to nothing
	why     error           // guarded by mu
}

// Reply implements zmsg.Replier.
func (p *pipe) Reply(num uint64, r *zmsg.Reply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.open[num] {
		p.wrong++
		return
	}
	delete(p.open, num)
	if err := r.Err(); err != nil {
		p.fail(err)
	}
	<-p.window
}

func (p *pipe) fail(err error) {
	if p.failed++; p.why == nil {
		p.why = err
	}
	if zmsg.OutcomeOf(err) != zmsg.NotExecuted {
		p.unknown++
	}
}

func (p *pipe) send() {
	p.window <- struct{}{}
	p.sent++
	m := zmsg.NewMessage(1008)
	m.Value = &benchpb.Put{From: p.id, N: p.sent}
	m.Deadline = time.Now().Add(patience)
	m.SetReplier(p, p.sent)
	p.mu.Lock()
	p.open[p.sent] = true
	p.mu.Unlock()
	if err := p.node.Objects().DeliverObject(p.key, m); err != nil {
		m.TakeReplier()
		m.Release()
		r := zmsg.ErrorReply(err)
		p.Reply(p.sent, &r)
	}
}

// Storm moves objects from node to node without a pause, until there were so many moves, while numbered requests come for each of them, in
// bursts whose order is looked at.
func (c *Cluster) Storm(moves int) (s Storm, err error) {
	var pipes []*pipe
	for i := range stormKeys {
		for j := range stormCallers {
			pipes = append(pipes, &pipe{
				node: c.nodes[(i+j)%3], key: key("storm", i, 4096), id: uint32(j + 1), window: make(chan struct{}, stormWindow), open: map[uint64]bool{},
			})
		}
	}
	c.seen.doubled.Store(0)
	c.seen.skipped.Store(0)
	for i := range stormKeys { // so that each is somewhere
		if err := put(c.nodes[i%3], key("storm", i, 4096), 99, 1, patience); err != nil {
			return s, err
		}
	}
	began := time.Now()
	var stop atomic.Bool
	var senders sync.WaitGroup
	for _, p := range pipes {
		senders.Go(func() { // ends when the moves are done
			for !stop.Load() {
				for range stormWindow {
					p.send()
				}
				rest(stormThink)
			}
		})
	}
	var left, refused atomic.Int64
	left.Store(int64(moves))
	errs := make([]error, stormKeys)
	var movers sync.WaitGroup
	for i := range stormKeys {
		movers.Go(func() { // ends when there were enough
			k := key("storm", i, 4096)
			at, err := c.owner(k)
			if errs[i] = err; err != nil {
				return
			}
			for n := 0; left.Add(-1) >= 0; n++ {
				_, to, err := c.moveOnce(k, at, n)
				if at = to; err != nil {
					if zmsg.OutcomeOf(err) != zmsg.NotExecuted {
						errs[i] = err
						return
					}
					refused.Add(1)
					left.Add(1)
					rest(time.Millisecond)
				}
			}
		})
	}
	movers.Wait()
	s.Took = time.Since(began)
	stop.Store(true)
	senders.Wait()
	for _, p := range pipes {
		p.send() // one more: what is missing at the end would not be seen
	}
	if err := eventually("every request has its outcome", func() bool {
		for _, p := range pipes {
			p.mu.Lock()
			open := len(p.open)
			p.mu.Unlock()
			if open > 0 {
				return false
			}
		}
		return true
	}); err != nil {
		errs = append(errs, err)
	}
	for _, p := range pipes {
		p.mu.Lock()
		s.Requests += int(p.sent)
		s.Failed, s.Unknown, s.Unanswered = s.Failed+p.failed, s.Unknown+p.unknown, s.Unanswered+p.wrong+len(p.open)
		if s.Why == nil {
			s.Why = p.why
		}
		p.mu.Unlock()
	}
	// A number that comes late was skipped before, and is one that had been there; one that was not executed is skipped rightly.
	doubled, skipped := int(c.seen.doubled.Load()), max(0, int(c.seen.skipped.Load())-(s.Failed-s.Unknown))
	s.Reordered = min(doubled, skipped)
	s.Doubled, s.Lost = doubled-s.Reordered, skipped-s.Reordered
	s.Moves, s.Refused = moves, int(refused.Load())
	return s, errors.Join(errs...)
}

// Hops is how often requests were sent on after a move, for each of the first requests behind it.
type Hops struct {
	Before, First, Second float64 // on average
	Moves                 int
}

// MeasureHops moves objects, and asks for each twice from a node that knew where it was before.
func (c *Cluster) MeasureHops(moves int) (h Hops, err error) {
	k := key("hops", 0, 4096)
	if err := put(c.nodes[0], k, 1, 1, patience); err != nil {
		return h, err
	}
	for num := uint64(1); h.Moves < moves; h.Moves++ {
		at, err := c.owner(k)
		if err != nil {
			return h, err
		}
		to, asks := (at+1)%3, (at+2)%3
		count := func() (float64, error) {
			num++
			return putHops(c.nodes[asks], k, 1, num, patience)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		n0, err0 := count()
		_, err1 := c.nodes[at].Objects().Transfer(ctx, k, c.nodes[to].Self())
		n1, err2 := count()
		n2, err3 := count()
		cancel()
		if err := errors.Join(err0, err1, err2, err3); err != nil {
			return h, err
		}
		h.Before, h.First, h.Second = h.Before+n0, h.First+n1, h.Second+n2
	}
	n := float64(h.Moves)
	h.Before, h.First, h.Second = h.Before/n, h.First/n, h.Second/n
	return h, nil
}
