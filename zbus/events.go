package zbus

import (
	"slices"
	"sync"
)

// Events is what a driver tells about its connection, from a goroutine of its own. Nil functions are skipped.
type Events struct {
	Up      func()          // connected, or connected again
	Down    func(err error) // the connection is lost; the driver reconnects for ever
	Leaving func()          // the server said that it will stop soon (lame duck)
	Dropped func(n int)     // n received messages (at least) were dropped because the handler was too slow
	Error   func(err error) // anything else worth a log line
}

// Observers is a list of Events for drivers to keep and tell. The zero value is ready. All methods may be called from
// any goroutine; an event told while another is being told waits for it.
type Observers struct {
	tell sync.Mutex // one event at a time

	mu   sync.Mutex // guards next and list; never held while telling
	next int
	list []observer
}

type observer struct {
	id int
	e  Events
}

// Add adds e; stop takes it away, and is cheap to call again. An event that is being told meanwhile may still reach e.
func (o *Observers) Add(e Events) (stop func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.next++
	id := o.next
	o.list = append(slices.Clip(o.list), observer{id, e})
	return func() { o.remove(id) }
}

func (o *Observers) remove(id int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kept := make([]observer, 0, len(o.list))
	for _, x := range o.list {
		if x.id != id {
			kept = append(kept, x)
		}
	}
	o.list = kept
}

// each calls f for every observer there is.
func (o *Observers) each(f func(e *Events)) {
	o.tell.Lock()
	defer o.tell.Unlock()
	o.mu.Lock()
	list := o.list
	o.mu.Unlock()
	for i := range list {
		f(&list[i].e)
	}
}

// Up tells all that the bus is connected.
func (o *Observers) Up() {
	o.each(func(e *Events) {
		if e.Up != nil {
			e.Up()
		}
	})
}

// Down tells all that the connection is lost.
func (o *Observers) Down(err error) {
	o.each(func(e *Events) {
		if e.Down != nil {
			e.Down(err)
		}
	})
}

// Leaving tells all that the server will stop soon.
func (o *Observers) Leaving() {
	o.each(func(e *Events) {
		if e.Leaving != nil {
			e.Leaving()
		}
	})
}

// Dropped tells all that n received messages were dropped.
func (o *Observers) Dropped(n int) {
	o.each(func(e *Events) {
		if e.Dropped != nil {
			e.Dropped(n)
		}
	})
}

// Error tells all of an error.
func (o *Observers) Error(err error) {
	o.each(func(e *Events) {
		if e.Error != nil {
			e.Error(err)
		}
	})
}
