package zactor

// Watchers returns how many watches there are of an actor.
func Watchers(ref Ref) int {
	c := ref.cell
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.extra.Load(); x != nil {
		return len(x.watchers)
	}
	return 0
}
