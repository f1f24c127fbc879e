package zroute

import "zgame/zmsg"

// Strategies is a RemoteStrategy for each message id, else for each type of actor (that of the first candidate), else the
// default (nil: First). The maps are not changed once the Dispatcher has it.
type Strategies struct {
	Default RemoteStrategy
	ByID    map[uint32]RemoteStrategy
	ByType  map[string]RemoteStrategy
}

// Pick implements RemoteStrategy.
func (s Strategies) Pick(m *zmsg.Message, c []RemoteCandidate) int {
	return s.of(m, c[0].Type).Pick(m, c)
}

func (s Strategies) pickAmong(m *zmsg.Message, c []RemoteCandidate, at []int) int {
	return pickAmong(m, c, at, s.of(m, c[placeOf(at, 0)].Type))
}

func (s Strategies) of(m *zmsg.Message, typ string) RemoteStrategy {
	if by := s.ByID[m.ID]; by != nil {
		return by
	}
	if by := s.ByType[typ]; by != nil {
		return by
	}
	if s.Default != nil {
		return s.Default
	}
	return first{}
}

// LocalRouters is a LocalRouter for each message id, else for each type of actor (that of the first candidate), else the
// default (nil: LocalFirst). The maps are not changed once the Dispatcher has it.
type LocalRouters struct {
	Default LocalRouter
	ByID    map[uint32]LocalRouter
	ByType  map[string]LocalRouter
}

// Pick implements LocalRouter.
func (r LocalRouters) Pick(m *zmsg.Message, c []LocalCandidate) (int, error) {
	if len(c) == 0 {
		return 0, ErrNotFound
	}
	return r.of(m, c[0].Type).Pick(m, c)
}

func (r LocalRouters) of(m *zmsg.Message, typ string) LocalRouter {
	if by := r.ByID[m.ID]; by != nil {
		return by
	}
	if by := r.ByType[typ]; by != nil {
		return by
	}
	if r.Default != nil {
		return r.Default
	}
	return localFirst{}
}

// choice is a strategy and what it may see.
type choice struct {
	strategy RemoteStrategy
	draining bool // candidates of draining nodes too
}

func newChoice(s RemoteStrategy) choice {
	if k, ok := s.(keepDraining); ok {
		return choice{strategy: k.RemoteStrategy, draining: true}
	}
	return choice{strategy: s}
}

// chooser finds the strategy of a message.
type chooser struct {
	strategies Strategies
	draining   bool // one of them sees candidates of draining nodes
}

func newChooser(s RemoteStrategy) chooser {
	t, ok := s.(Strategies)
	if !ok {
		t = Strategies{Default: s}
	}
	k := chooser{strategies: t, draining: newChoice(t.Default).draining}
	for _, s := range t.ByID {
		k.draining = k.draining || newChoice(s).draining
	}
	for _, s := range t.ByType {
		k.draining = k.draining || newChoice(s).draining
	}
	return k
}

func (k *chooser) of(m *zmsg.Message, c []RemoteCandidate) choice {
	typ := ""
	if len(c) > 0 {
		typ = c[0].Type
	}
	return newChoice(k.strategies.of(m, typ))
}
