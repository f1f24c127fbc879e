package zgate

import (
	"cmp"
	"slices"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// ownRoute is where the messages of one session with one id go. One without a target is what an object has taken back: it keeps what its owners
// before say out.
type ownRoute struct {
	id uint32
	to *zmsg.SessionRoute
}

// SetRoute has what a session sends from now on with the ids of r go to r's actor or object, ahead of the Dispatcher; with neither it goes where it
// went before. The reading goroutine sees the new routes with the next message that it handles: what is before it has gone the old way.
// It does not block. Errors: those of Session; ErrTooMany; ErrOldOwner, where r is of an object that has said something newer about one of the ids;
// ErrNotWired.
func (g *Gate) SetRoute(ref zmsg.SessionRef, r *zmsg.SessionRoute) error {
	if g.cfg.Deliver == nil {
		return ErrNotWired
	}
	s, err := g.session(ref)
	if err != nil {
		return err
	}
	later := *r
	if s.later(func() { _ = s.setRoute(&later) }) {
		return nil
	}
	return s.setRoute(r)
}

func (s *Session) setRoute(r *zmsg.SessionRoute) error {
	g := s.g
	s.mu.Lock()
	defer s.mu.Unlock()
	if to, gone := s.goneTo(); gone {
		body, err := r.Encode()
		if err != nil {
			return err
		}
		return g.forward(to, &zmsg.Envelope{Op: wirepb.SessionOp_SESSION_OP_ROUTE, Body: body})
	}
	var now []ownRoute
	if old := s.routes.Load(); old != nil {
		now = slices.Clone(*old)
	}
	to := *r
	to.IDs = nil
	for _, id := range r.IDs {
		i, there := slices.BinarySearchFunc(now, id, compareID)
		switch {
		case there && now[i].to.By == r.By && r.Version < now[i].to.Version:
			g.count.dropOldOwner.Inc()
			return ErrOldOwner
		case there && r.IsNone() && r.Version == 0:
			now = slices.Delete(now, i, i+1)
		case there:
			now[i].to = &to
		case r.IsNone() && r.Version == 0:
		default:
			now = slices.Insert(now, i, ownRoute{id, &to})
		}
	}
	if len(now) > g.cfg.MaxRoutes {
		if now = slices.DeleteFunc(now, func(o ownRoute) bool { return o.to.IsNone() }); len(now) > g.cfg.MaxRoutes {
			return ErrTooMany
		}
	}
	s.routes.Store(&now)
	return nil
}

func compareID(o ownRoute, id uint32) int { return cmp.Compare(o.id, id) }

// ownRoute returns where messages of the id go by the session's own word, nil: as all others'.
func (s *Session) ownRoute(id uint32) *zmsg.SessionRoute {
	routes := s.routes.Load()
	if routes == nil {
		return nil
	}
	i, there := slices.BinarySearchFunc(*routes, id, compareID)
	if !there || (*routes)[i].to.IsNone() {
		return nil
	}
	return (*routes)[i].to
}

// toOwnRoute hands m on by a route of the session's own.
func (s *Session) toOwnRoute(r *zmsg.SessionRoute, m *zmsg.Message) {
	err := s.g.cfg.Deliver(r, m)
	switch {
	case err == nil:
		s.g.count.ownRoute.Inc()
		return
	case zmsg.CodeOf(err) == zmsg.CodeBusy:
		s.g.count.busy.Inc()
	default:
		s.g.count.failed.Inc()
	}
	m.ReplyError(err)
	m.Release()
}
