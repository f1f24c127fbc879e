package entry

// How the order of what one caller asks for outlives a move. What a node sends on goes over one lane after the other: to the owner before,
// then to the next. Each keeps the order, and what goes over two of them may arrive in either. So before it takes the next lane a node
// sends a fence over the last one: a request without content, which is sent on behind the others as they are, and answered by the
// owner when it has taken them. Until then what comes waits here, with who sends on (Turning) as with who has become the owner itself (Fencing).
//
// A fence that comes back to who sent it has passed as well. A fence is answered, or lost with a node that the others are lost with. It ends in time either way.

// told takes a newer route.
//
//go:noinline
func (s *step) told(ev *Event) {
	if ev.Route.Version <= s.Route.Version || ev.Route.Owner == s.f.Self {
		return
	}
	switch s.Phase { //nolint:exhaustive // the others know, or find out
	case Cached:
		if ev.Last && !s.Fencing {
			s.Lane = Route{} // its answer has come, so what was sent before it has arrived
		}
		s.cached(ev.Route)
	case Turning:
		s.Route = ev.Route
	}
}

// overtakes reports whether what is sent by r could arrive before what was sent on already.
func (s *step) overtakes(r Route) bool {
	return !s.Lane.Owner.IsZero() && s.Lane.Version < r.Version
}

// sendFence sends one, unless one is on its way.
func (s *step) sendFence() {
	if !s.Fencing {
		s.Fencing = true
		s.do(Effect{Op: Fence, Route: s.Lane})
	}
}

// passed goes on behind a fence.
//
//go:noinline
func (s *step) passed(ev *Event) {
	if !s.Fencing {
		return
	}
	s.Fencing, s.Lane = false, Route{}
	switch s.Phase { //nolint:exhaustive // the others have to go on first
	case Turning:
		if ev.Route.Version > s.Route.Version {
			if ev.Route.Owner == s.f.Self || ev.Route.Owner.IsZero() {
				s.look()
				return
			}
			s.Route = ev.Route
		}
		if s.strayed() {
			s.look()
			return
		}
		s.cached(s.Route)
	case Active:
		s.goOn()
	case Loading, Checking: // what came by the newest route would have run already
		var first, then []Req
		for _, q := range s.take() {
			if q.Hint < s.Route.Version {
				then = append(then, q)
			} else {
				first = append(first, q)
			}
		}
		s.Queue = append(first, then...)
	}
}
