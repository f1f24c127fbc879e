package zactor

import "sync/atomic"

// table finds an actor by id without a lock: ids count from 1 and are never used again, so it is an array in chunks.
// A chunk whose actors are all gone is dropped. Writers hold the group's mutex.
type table struct {
	dir  atomic.Pointer[[]atomic.Pointer[chunk]] // replaced when it grows
	next uint64                                  // guarded by the group's mu; the last id given
}

const chunkBits = 8

type chunk struct {
	cells [1 << chunkBits]atomic.Pointer[cell]
	live  int // guarded by the group's mu
}

// get returns the actor, nil if there is none.
func (t *table) get(id uint64) *cell {
	dir := t.dir.Load()
	i := id >> chunkBits
	if dir == nil || i >= uint64(len(*dir)) {
		return nil
	}
	ch := (*dir)[i].Load()
	if ch == nil {
		return nil
	}
	return ch.cells[id&(1<<chunkBits-1)].Load()
}

// add gives c the next id.
func (t *table) add(c *cell) {
	t.next++
	c.id = t.next
	i := c.id >> chunkBits
	dir := t.dir.Load()
	if c.id&(1<<chunkBits-1) == 0 { // the chunk before is full, and may be empty again
		if ch := (*dir)[i-1].Load(); ch != nil && ch.live == 0 {
			(*dir)[i-1].Store(nil)
		}
	}
	if dir == nil || i >= uint64(len(*dir)) {
		grown := make([]atomic.Pointer[chunk], max(8, 2*i))
		if dir != nil {
			for j := range *dir {
				grown[j].Store((*dir)[j].Load())
			}
		}
		dir = &grown
		t.dir.Store(dir)
	}
	ch := (*dir)[i].Load()
	if ch == nil {
		ch = new(chunk)
		(*dir)[i].Store(ch)
	}
	ch.live++
	ch.cells[c.id&(1<<chunkBits-1)].Store(c)
}

// remove forgets c.
func (t *table) remove(c *cell) {
	i := c.id >> chunkBits
	dir := *t.dir.Load()
	ch := dir[i].Load()
	ch.cells[c.id&(1<<chunkBits-1)].Store(nil)
	ch.live--
	if ch.live == 0 && t.next>>chunkBits != i {
		dir[i].Store(nil)
	}
}

// all returns the actors in order of their ids.
func (t *table) all() []*cell {
	dir := t.dir.Load()
	if dir == nil {
		return nil
	}
	var out []*cell
	for i := range *dir {
		ch := (*dir)[i].Load()
		if ch == nil {
			continue
		}
		for j := range ch.cells {
			if c := ch.cells[j].Load(); c != nil {
				out = append(out, c)
			}
		}
	}
	return out
}
