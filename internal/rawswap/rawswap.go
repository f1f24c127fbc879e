// Package rawswap is the bare machine's actor, against which the benchmarks of zactor and of bench/ measure: a mutex, two slices that
// are swapped whole, and a goroutine only while there is work. No bound, no panic barrier, no identity, no counters.
package rawswap

import "sync"

// Actor handles one item at a time.
type Actor struct {
	mu      sync.Mutex
	in      []Item // guarded by mu
	spare   []Item // guarded by mu
	running bool   // guarded by mu
	handle  func(Item)
	run     func()
}

// Item is what waits: a value, and where the reply goes, nil for a one-way message.
type Item struct {
	Value any
	Reply chan any
}

// New makes an Actor.
func New(handle func(Item)) *Actor {
	a := &Actor{handle: handle}
	a.run = a.loop
	return a
}

// Tell gives the actor an item.
func (a *Actor) Tell(it Item) {
	a.mu.Lock()
	a.in = append(a.in, it)
	start := !a.running
	a.running = true
	a.mu.Unlock()
	if start {
		go a.run() // owned by the actor; ends when nothing waits
	}
}

func (a *Actor) loop() {
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

var replies = sync.Pool{New: func() any { return make(chan any, 1) }}

// Ask gives the actor a value and waits for the reply.
func (a *Actor) Ask(v any) any {
	ch := replies.Get().(chan any)
	a.Tell(Item{v, ch})
	r := <-ch
	replies.Put(ch)
	return r
}
