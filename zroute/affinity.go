package zroute

import "zgame/zmsg"

// Keyed is a RemoteStrategy or LocalRouter of an application that picks by key: messages with one key go to one candidate
// while the list stands. For those the dispatcher keeps the order when the list changes, as for the ones of this package.
type Keyed interface {
	// Key returns the key of m; ok is false for a message without one.
	Key(m *zmsg.Message) (key uint64, ok bool)
}

// affinity returns the key by which s picks for m, among candidates of typ; ok is false where it picks by none.
func affinity(s RemoteStrategy, m *zmsg.Message, typ string) (key uint64, ok bool) {
	for {
		switch k := s.(type) {
		case *rendezvous:
			return k.key(m)
		case *weightedRendezvous:
			return k.key(m)
		case *zoneFirst:
			s = k.inner
		case *Canary:
			s = k.inner
		case keepDraining:
			s = k.RemoteStrategy
		case Strategies:
			s = k.of(m, typ)
		case Keyed:
			return k.Key(m)
		default:
			return 0, false
		}
	}
}

// mayBeKeyed reports whether s picks by key for some messages.
func mayBeKeyed(s RemoteStrategy) bool {
	switch k := s.(type) {
	case *zoneFirst:
		return mayBeKeyed(k.inner)
	case *Canary:
		return mayBeKeyed(k.inner)
	case keepDraining:
		return mayBeKeyed(k.RemoteStrategy)
	case Strategies:
		one := mayBeKeyed(k.Default)
		for _, s := range k.ByID {
			one = one || mayBeKeyed(s)
		}
		for _, s := range k.ByType {
			one = one || mayBeKeyed(s)
		}
		return one
	case *rendezvous, *weightedRendezvous, Keyed:
		return true
	default:
		return false
	}
}

// localAffinity is affinity for a LocalRouter. fixed says that it picks the same candidate for all messages.
func localAffinity(r LocalRouter, m *zmsg.Message, typ string) (key uint64, ok, fixed bool) {
	for {
		switch k := r.(type) {
		case localFirst:
			return 0, false, true
		case *localRendezvous:
			key, ok = k.key(m)
			return key, ok, !ok
		case LocalRouters:
			r = k.of(m, typ)
		case Keyed:
			key, ok = k.Key(m)
			return key, ok, false
		default:
			return 0, false, false
		}
	}
}

// mayBeKeyedHere is mayBeKeyed for a LocalRouter.
func mayBeKeyedHere(r LocalRouter) bool {
	switch k := r.(type) {
	case *localRendezvous, Keyed:
		return true
	case LocalRouters:
		one := k.Default != nil && mayBeKeyedHere(k.Default)
		for _, r := range k.ByID {
			one = one || mayBeKeyedHere(r)
		}
		for _, r := range k.ByType {
			one = one || mayBeKeyedHere(r)
		}
		return one
	default:
		return false
	}
}
