package zactor_test

import "sync"

// rawActor is the bare machine's actor, against which the benchmarks measure: a mutex, two slices that are swapped whole,
// and a goroutine only while there is work. No bound, no panic barrier, no identity, no counters.
type rawActor struct {
	mu      sync.Mutex
	in      []rawItem
	spare   []rawItem
	running bool
	handle  func(rawItem)
	run     func()
}

type rawItem struct {
	value any
	reply chan any
}

func newRawActor(handle func(rawItem)) *rawActor {
	a := &rawActor{handle: handle}
	a.run = a.loop
	return a
}

func (a *rawActor) tell(it rawItem) {
	a.mu.Lock()
	a.in = append(a.in, it)
	start := !a.running
	a.running = true
	a.mu.Unlock()
	if start {
		go a.run()
	}
}

func (a *rawActor) loop() {
	for {
		a.mu.Lock()
		if len(a.in) == 0 {
			a.running = false
			a.mu.Unlock()
			return
		}
		batch := a.in
		a.in, a.spare = a.spare, nil
		a.mu.Unlock()
		for _, it := range batch {
			a.handle(it)
		}
		clear(batch)
		a.mu.Lock()
		a.spare = batch[:0]
		a.mu.Unlock()
	}
}

var rawReplies = sync.Pool{New: func() any { return make(chan any, 1) }}

func (a *rawActor) ask(v any) any {
	ch := rawReplies.Get().(chan any)
	a.tell(rawItem{v, ch})
	r := <-ch
	rawReplies.Put(ch)
	return r
}
