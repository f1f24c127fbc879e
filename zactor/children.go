package zactor

import (
	"cmp"
	"slices"
)

// Spawn makes a child of this actor; see Group.Spawn. A child ends with its parent, and before it: when the parent stops (its
// OnStop finds the children gone) and when it restarts. A named child of a named parent is called "parent/child".
func (c *Context) Spawn(name string, factory func() Actor, opts ...SpawnOption) (Ref, error) {
	if name != "" && c.cell.name != "" {
		name = c.cell.name + "/" + name
	}
	if c.tap != nil {
		return c.spawnTapped(name, factory, opts)
	}
	return c.cell.g.spawn(c.cell, name, factory, opts)
}

// Children returns the actor's children that have not ended, the oldest first.
func (c *Context) Children() []Ref {
	var out []Ref
	for _, child := range c.cell.childrenInOrder() {
		out = append(out, Ref{cell: child})
	}
	return out
}

// Parent returns the actor that has spawned this one; the zero Ref if a Group has.
func (c *Context) Parent() Ref { return Ref{cell: c.cell.parent()} }

// parent returns c's parent, nil if it has none.
func (c *cell) parent() *cell {
	if x := c.extra.Load(); x != nil {
		return x.parent
	}
	return nil
}

// adopt makes c a child of p; false when p is ending.
func (c *cell) adopt(p *cell) bool {
	own := c.more()
	own.parent, own.parentEpoch = p, p.epoch.Load()
	x := p.more()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead || p.reason() != 0 {
		return false
	}
	if x.children == nil {
		x.children = make(map[*cell]struct{})
	}
	x.children[c] = struct{}{}
	return true
}

// orphan takes c, which has ended, from its parent.
func (c *cell) orphan() {
	p := c.parent()
	if p == nil {
		return
	}
	x := p.extra.Load()
	p.mu.Lock()
	delete(x.children, c)
	p.mu.Unlock()
}

func (c *cell) childrenInOrder() []*cell {
	x := c.extra.Load()
	if x == nil {
		return nil
	}
	c.mu.Lock()
	out := make([]*cell, 0, len(x.children))
	for child := range x.children {
		out = append(out, child)
	}
	c.mu.Unlock()
	slices.SortFunc(out, func(a, b *cell) int { return cmp.Compare(a.id, b.id) })
	return out
}

// endChildren stops the children, the youngest first, and waits until they are gone. With cut what their handlers wait for
// ends as well: a parent that restarts holds messages that a child may be waiting for.
func (c *cell) endChildren(cut bool) {
	why := c.reason()
	if why != StopShutdown {
		why = StopParent
	}
	for _, child := range slices.Backward(c.childrenInOrder()) {
		child.stop(why)
		if cut {
			child.sever()
		}
		c.g.await(child.gone())
	}
}
