package entry

import (
	"slices"

	"zgame/zmsg"
)

// How ownership moves. The old owner: Active, asking the target (it serves meanwhile), Freezing, Moving, Cached. The target: it agrees
// (Expect), is told that it owns the object (Loading), Active. The write of Moving is what changes the owner; everything behind it can be
// lost, and is found in the record. What waited while the object was frozen is forwarded as every request to another's object is.

//go:noinline
func (s *step) move(ev *Event) {
	switch ev.Kind { //nolint:exhaustive // Step has the others
	case Transfer:
		s.transfer(ev)
	case Prepared:
		switch s.Phase { //nolint:exhaustive // in the others the transfer is over, or further
		case Active:
			s.freeze()
		case Checking:
			s.notMoved(Unavailable)
		}
	case Unprepared:
		switch {
		case s.Phase != Active && s.Phase != Checking || !s.Moves:
		case s.Phase == Active && ev.Route.Version > s.Route.Version:
			// It knows better: this node may own the object no more. Never given up because of a hint, nor served on before a look.
			s.notMoved(Moved)
			s.Phase = Checking
			s.startRead()
		default:
			s.notMoved(Refused)
		}
	case Unquiet:
		if s.Phase == Freezing {
			s.thaw(Unended)
		}
	case PrepareAsked:
		s.prepare(ev)
	case Hinted:
		s.hinted(ev)
	case Unexpect:
		s.Expect = 0
	}
}

func (s *step) transfer(ev *Event) {
	switch {
	case ev.Target == s.f.Self && s.Phase.Resident():
		s.do(Effect{Op: TransferDone, Route: s.Route})
	case !s.Admits():
		s.do(Effect{Op: TransferNot, Route: s.Route, Cause: Unavailable})
	case s.Moves:
		s.do(Effect{Op: TransferNot, Route: s.Route, Cause: Busy})
	default:
		s.Moves, s.Target, s.Notify = true, ev.Target, ev.Notify
		if ev.Target.IsZero() {
			s.freeze()
			return
		}
		s.do(Effect{Op: Prepare, Route: Route{ev.Target, s.Route.Version}})
	}
}

// notMoved ends a transfer that has not happened.
//
//go:noinline
func (s *step) notMoved(why Cause) {
	if !s.Moves {
		return
	}
	s.do(Effect{Op: TransferNot, Route: s.Route, Cause: why})
	s.Moves, s.Target = false, zmsg.NodeRef{}
}

func (s *step) freeze() {
	if !s.Moves {
		return
	}
	if !s.Admits() {
		s.notMoved(Unavailable)
		return
	}
	s.Phase = Freezing
	s.commitIfQuiet()
}

// thaw has the object serve on.
//
//go:noinline
func (s *step) thaw(why Cause) {
	s.notMoved(why)
	s.Phase = Active
	s.goOn()
}

// commitIfQuiet writes the new owner once nothing runs and no save is under way; where something is to run behind a save, the save is made before.
//
//go:noinline
func (s *step) commitIfQuiet() {
	if s.Phase != Freezing || s.Running > 0 || s.Writing {
		return
	}
	if s.owes() {
		s.startSave()
		return
	}
	s.Phase, s.Writing, s.Dirty = Moving, true, false
	for i := range s.held {
		s.held[i].saved, s.held[i].idle = true, false
	}
	s.do(Effect{Op: Move, Route: s.Route, Rev: s.Rev})
}

// owes reports that something is to run behind a save.
func (s *step) owes() bool {
	return slices.ContainsFunc(s.held, func(h held) bool { return h.req.Then })
}

// moved is behind the point of no return: the record names the target.
func (s *step) moved(ev *Event) {
	target := s.Target
	s.Moves, s.Target = false, zmsg.NodeRef{}
	s.Rev, s.Route = ev.Rev, ev.Route
	s.ackSaved()
	if s.Notify && !target.IsZero() {
		s.do(Effect{Op: Hint, Route: s.Route, Rev: s.Rev})
	}
	s.do(Effect{Op: TransferDone, Route: s.Route})
	s.forget(true)
	if target.IsZero() || s.strayed() {
		s.lookOrRest() // for a new place, or a newer route
		return
	}
	s.cached(s.Route)
}

// prepare says whether this node can take the object over. It promises nothing: who agreed may be asked again, by another.
func (s *step) prepare(ev *Event) {
	to := Route{ev.From, ev.Route.Version}
	switch {
	case !s.f.CanOwn, s.Suspended, ev.Route.Version < s.Route.Version, s.Phase >= Claiming:
		s.do(Effect{Op: TellUnprepared, Route: to})
	default:
		s.Expect = ev.Route.Version + 1
		s.do(Effect{Op: TellPrepared, Route: to})
	}
}

// hinted takes the object over: at once where this node has agreed to and not seen the record under that version, for then nobody can
// have changed it since; else the record says what is so.
func (s *step) hinted(ev *Event) {
	if ev.Route.Owner != s.f.Self || ev.Route.Version <= s.Route.Version || s.Suspended {
		return
	}
	switch s.Phase { //nolint:exhaustive // the others own it, under this version or another
	case Absent, Cached, Turning, Reading:
		if ev.Found && s.Expect == ev.Route.Version && !s.behind(ev.Route) {
			s.own(ev, LoadGiven)
			return
		}
		if s.Phase != Reading {
			s.look()
		} else {
			s.startRead() // the one under way may be older
		}
	}
}

// strayed reports that a request waits which came here although its path has seen this route, or a newer one.
func (s *step) strayed() bool {
	for _, q := range s.Queue {
		if q.Hops > 0 && q.Hint >= s.Route.Version {
			return true
		}
	}
	return false
}

// behind reports that a request waits whose path has seen what is newer than r.
func (s *step) behind(r Route) bool {
	for _, q := range s.Queue {
		if q.Hint > r.Version {
			return true
		}
	}
	return false
}
