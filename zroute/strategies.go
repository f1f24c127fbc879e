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
	return pickAmong(m, c, at, s.of(m, c[at[0]].Type))
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
	if by := r.ByID[m.ID]; by != nil {
		return by.Pick(m, c)
	}
	if by := r.ByType[c[0].Type]; by != nil {
		return by.Pick(m, c)
	}
	if r.Default != nil {
		return r.Default.Pick(m, c)
	}
	return 0, nil
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

// chooser finds the strategy of a message: Strategies with what is to know about each looked up before.
type chooser struct {
	def      choice
	byID     map[uint32]choice
	byType   map[string]choice
	draining bool // one of them sees candidates of draining nodes
}

func newChooser(s RemoteStrategy) chooser {
	t, ok := s.(Strategies)
	if !ok {
		def := newChoice(s)
		return chooser{def: def, draining: def.draining}
	}
	if t.Default == nil {
		t.Default = first{}
	}
	k := chooser{def: newChoice(t.Default), byID: make(map[uint32]choice), byType: make(map[string]choice)}
	k.draining = k.def.draining
	for id, s := range t.ByID {
		if s != nil {
			k.byID[id] = newChoice(s)
			k.draining = k.draining || k.byID[id].draining
		}
	}
	for typ, s := range t.ByType {
		if s != nil {
			k.byType[typ] = newChoice(s)
			k.draining = k.draining || k.byType[typ].draining
		}
	}
	return k
}

func (k *chooser) of(m *zmsg.Message, c []RemoteCandidate) choice {
	if len(k.byID) > 0 {
		if by, ok := k.byID[m.ID]; ok {
			return by
		}
	}
	if len(k.byType) > 0 && len(c) > 0 {
		if by, ok := k.byType[c[0].Type]; ok {
			return by
		}
	}
	return k.def
}
