package zclient

import (
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
)

// On calls h for each push of the type M from now on; see Client.OnPush. A push that is not what its id says is
// counted (Stats.BadPushes) and not handed over. It panics when M has no (zgame.id).
func On[M any, P interface {
	*M
	proto.Message
}](c *Client, h func(P)) (cancel func()) {
	id, ok := zmsg.IDOf(P(new(M)))
	if !ok {
		panic("zclient: On for a type without option (zgame.id)")
	}
	return c.OnPush(id, func(body []byte) {
		m := P(new(M))
		if err := proto.Unmarshal(body, m); err != nil {
			c.stats.badPushes.Add(1)
			c.cfg.Logger.Warn("push is not what its id says", "msg_id", id, "err", err)
			return
		}
		h(m)
	})
}

// OnPush calls h for each push with the message id from now on, in the order in which pushes come, one at a time.
// Several handlers of one id are called in the order in which they were added. body is not used by anybody else.
// Register before Connect to miss nothing. The function that it returns ends it.
func (c *Client) OnPush(id uint32, h func(body []byte)) (cancel func()) {
	return c.handlers.onPush(id, h)
}

// Gap says that pushes are missing, or may be: what they tell of is to be loaded anew. It is of an object to which the session is bound, or, where First is not 0, of
// the session, which has come back and has missed more than the gate keeps.
type Gap struct {
	Key         zmsg.Key // zero where First is not
	Missed      uint64   // of an object: at most so many; 0: nobody knows
	First, Last uint64   // of the session: the numbers of its pushes that are missing; Last 0: nobody knows how far
}

// OnGap calls h for each gap from now on, in order with the pushes: between the last before it and the first behind it. The function that it
// returns ends it.
func (c *Client) OnGap(h func(Gap)) (cancel func()) { return c.handlers.onGap(h) }

// Warning says that the gate is about to close the connection, and why, if the client goes on: it sends too much.
type Warning struct {
	Code int // of the close that it would be
	Text string
}

// OnWarning calls h for each warning of the gate from now on, in order with the pushes. The function that it returns ends it.
func (c *Client) OnWarning(h func(Warning)) (cancel func()) { return c.handlers.onWarning(h) }

// handlers hands pushes and states to the user's functions, in order, from the goroutine of run.
type handlers struct {
	client    *Client
	maxPushes int
	signal    chan struct{} // has room for one: there is something in queue, or ended is set
	done      chan struct{} // closed when run has returned

	mu      sync.Mutex
	next    uint64 // ids of registrations
	pushes  map[uint32][]registration[func([]byte)]
	states  []registration[func(State)]
	gaps    []registration[func(Gap)]
	losses  []registration[func(Lost)]
	warns   []registration[func(Warning)]
	queue   []event
	waiting int // pushes in queue
	ended   bool
}

type registration[F any] struct {
	id uint64
	f  F
}

type event struct {
	push  bool
	id    uint32
	body  []byte
	state State
	gap   *Gap
	lost  *Lost
	warn  *Warning
}

func (e *event) isState() bool { return !e.push && e.lost == nil }

func newHandlers(c *Client, maxPushes int) *handlers {
	return &handlers{
		client: c, maxPushes: maxPushes, signal: make(chan struct{}, 1), done: make(chan struct{}),
		pushes: map[uint32][]registration[func([]byte)]{},
	}
}

func (h *handlers) onPush(id uint32, f func([]byte)) func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next++
	n := h.next
	// Lists are replaced, never changed: run calls their functions without the lock.
	h.pushes[id] = append(slices.Clone(h.pushes[id]), registration[func([]byte)]{n, f})
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.pushes[id] = without(h.pushes[id], n)
	}
}

func (h *handlers) onState(f func(State)) func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next++
	n := h.next
	h.states = append(slices.Clone(h.states), registration[func(State)]{n, f})
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.states = without(h.states, n)
	}
}

func (h *handlers) onGap(f func(Gap)) func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next++
	n := h.next
	h.gaps = append(slices.Clone(h.gaps), registration[func(Gap)]{n, f})
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.gaps = without(h.gaps, n)
	}
}

func (h *handlers) onLost(f func(Lost)) func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next++
	n := h.next
	h.losses = append(slices.Clone(h.losses), registration[func(Lost)]{n, f})
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.losses = without(h.losses, n)
	}
}

func (h *handlers) onWarning(f func(Warning)) func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next++
	n := h.next
	h.warns = append(slices.Clone(h.warns), registration[func(Warning)]{n, f})
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.warns = without(h.warns, n)
	}
}

// lost queues the end of a session: one at most for each login.
func (h *handlers) lost(l Lost) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(event{lost: &l})
}

func without[F any](list []registration[F], id uint64) []registration[F] {
	return slices.DeleteFunc(slices.Clone(list), func(r registration[F]) bool { return r.id == id })
}

// push queues a push; false when too many wait.
func (h *handlers) push(id uint32, body []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting >= h.maxPushes {
		return false
	}
	h.waiting++
	h.add(event{push: true, id: id, body: body})
	return true
}

// gap queues a gap, which counts as a push; false when too many wait.
func (h *handlers) gap(g Gap) bool { return h.note(event{push: true, gap: &g}) }

// warning queues a warning, likewise.
func (h *handlers) warning(w Warning) bool { return h.note(event{push: true, warn: &w}) }

func (h *handlers) note(e event) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting >= h.maxPushes {
		return false
	}
	h.waiting++
	h.add(e)
	return true
}

// maxStates is how many states wait for a handler that does not return; then the newest takes the place of the one
// before it.
const maxStates = 64

// state queues a state.
func (h *handlers) state(s State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if last := len(h.queue) - 1; last >= maxStates && h.queue[last].isState() && h.queue[last-1].isState() {
		h.queue[last].state = s
		return
	}
	h.add(event{state: s})
}

func (h *handlers) add(e event) {
	if h.ended {
		return
	}
	h.queue = append(h.queue, e)
	h.wake()
}

// end lets run return when the queue is empty.
func (h *handlers) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	h.wake()
}

func (h *handlers) wake() {
	select {
	case h.signal <- struct{}{}:
	default:
	}
}

// run calls handlers until end.
func (h *handlers) run() {
	defer close(h.done)
	var batch []event
	for {
		h.mu.Lock()
		batch, h.queue = h.queue, batch[:0]
		ended := h.ended
		h.mu.Unlock()
		if len(batch) == 0 {
			if ended {
				return
			}
			<-h.signal
			continue
		}
		for i := range batch {
			h.call(&batch[i])
			batch[i] = event{}
		}
	}
}

func (h *handlers) call(e *event) {
	h.mu.Lock()
	pushes, states, gaps, losses, warns := h.pushes[e.id], h.states, h.gaps, h.losses, h.warns
	if e.push {
		h.waiting--
	}
	h.mu.Unlock()
	if e.lost != nil {
		for _, r := range losses {
			r.f(*e.lost)
		}
		return
	}
	if !e.push {
		for _, r := range states {
			r.f(e.state)
		}
		return
	}
	if e.gap != nil {
		for _, r := range gaps {
			r.f(*e.gap)
		}
		return
	}
	if e.warn != nil {
		for _, r := range warns {
			r.f(*e.warn)
		}
		return
	}
	if len(pushes) == 0 {
		h.client.stats.unhandled.Add(1)
	}
	for _, r := range pushes {
		r.f(e.body)
	}
}
