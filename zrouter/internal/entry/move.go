package entry

import "zgame/zmsg"

// How ownership moves. The old owner: Active, asking the target (it serves meanwhile), Freezing, Moving, Handing, Cached. The
// target: it agrees (Expect), is handed the object (Loading), Active. The write of Moving is what changes the owner; everything behind it
// can be lost, and is said again or found in the record.

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
		if s.Phase == Active || s.Phase == Checking {
			s.notMoved(Refused)
		}
	case Unquiet:
		if s.Phase == Freezing {
			s.thaw(Unended)
		}
	case Adopted, NotAdopted, AdoptUnclear, AdoptUndelivered, AdoptOver:
		if s.Phase == Handing {
			s.handed(ev)
		}
	case PrepareAsked:
		s.prepare(ev)
	case AdoptAsked:
		s.adopt(ev)
	}
}

func (s *step) transfer(ev *Event) {
	switch {
	case ev.Target == s.f.Self && s.Phase.Resident():
		s.do(Effect{Op: TransferDone, Route: s.Route})
	case !s.Admits():
		s.do(Effect{Op: TransferNot, Route: s.Route, Cause: Unavailable})
	case !s.Target.IsZero():
		s.do(Effect{Op: TransferNot, Route: s.Route, Cause: Busy})
	default:
		s.Target, s.Notify = ev.Target, ev.Notify
		s.do(Effect{Op: Prepare, Route: Route{ev.Target, s.Route.Version}})
	}
}

// notMoved ends a transfer that has not happened.
//
//go:noinline
func (s *step) notMoved(why Cause) {
	if s.Target.IsZero() {
		return
	}
	s.do(Effect{Op: TransferNot, Route: s.Route, Cause: why})
	s.Target = zmsg.NodeRef{}
}

func (s *step) freeze() {
	if s.Target.IsZero() {
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

// commitIfQuiet writes the new owner once nothing runs and no save is under way.
//
//go:noinline
func (s *step) commitIfQuiet() {
	if s.Phase != Freezing || s.Running > 0 || s.Writing {
		return
	}
	s.Phase, s.Writing, s.Dirty = Moving, true, false
	for i := range s.held {
		s.held[i].saved, s.held[i].idle = true, false
	}
	s.do(Effect{Op: Move, Route: s.Route, Rev: s.Rev})
}

// moved is behind the point of no return: the record names the target.
func (s *step) moved(ev *Event) {
	target := s.Target
	s.Target = zmsg.NodeRef{}
	s.Rev, s.Route = ev.Rev, ev.Route
	s.ackSaved()
	s.do(Effect{Op: TransferDone, Route: s.Route})
	s.forget(true)
	if !s.Notify {
		s.cached(s.Route)
		return
	}
	s.Phase, s.Target = Handing, target
	s.Parked = s.take()
	s.give()
}

func (s *step) give() {
	s.do(Effect{Op: Adopt, Route: s.Route, Rev: s.Rev, Parked: append([]Req(nil), s.Parked...)})
}

// handed ends Handing, or says it again.
func (s *step) handed(ev *Event) {
	switch {
	case ev.Kind == AdoptUnclear:
		s.unclear = true
		s.give()
		return
	case ev.Kind == AdoptUndelivered && s.unclear:
		return // until it is known that the target is gone
	}
	parked := s.Parked
	s.Parked, s.unclear, s.Target = nil, false, zmsg.NodeRef{}
	switch ev.Kind { //nolint:exhaustive // those of adopting
	case NotAdopted, AdoptUndelivered: // the target loads when the first of them arrives
		s.Queue = append(parked, s.Queue...)
	case AdoptOver: // it may have run them
		for _, r := range parked {
			s.answer(r, Unconfirmed)
		}
		if ev.OwnerDead {
			s.lookOrRest()
			return
		}
	}
	s.cached(s.Route)
}

// prepare says whether this node can take the object over.
func (s *step) prepare(ev *Event) {
	to := Route{ev.From, ev.Route.Version}
	if !s.f.CanOwn || s.Suspended || s.Phase.Resident() || ev.Route.Version < s.Route.Version {
		s.do(Effect{Op: TellUnprepared, Route: to})
		return
	}
	s.Expect = ev.Route.Version + 1
	s.do(Effect{Op: TellPrepared, Route: to})
}

// adopt takes the object over: at once where this node has agreed to, for then nobody can have changed the record since; by the
// record where it has not, or does not remember. The same again is answered as the first time.
func (s *step) adopt(ev *Event) {
	to := Route{ev.From, ev.Route.Version}
	switch {
	case s.Taken == ev.Route.Version:
		s.do(Effect{Op: TellAdopted, Route: to})
	case s.declined == ev.Route.Version || ev.Route.Owner != s.f.Self || ev.Route.Version < s.Route.Version:
		s.do(Effect{Op: TellNotAdopted, Route: to})
	case s.Route == ev.Route && (s.Phase.Resident() || s.Phase == Loading || s.Phase == Settling):
		// A request was here before, and the record was loaded for it.
		s.takeOver(ev, to)
		for _, r := range ev.Parked {
			s.asked(r)
		}
	case s.Expect == ev.Route.Version && (s.Phase == Absent || s.Phase == Cached) && !s.Suspended:
		s.takeOver(ev, to)
		s.Route, s.Rev, s.Phase = ev.Route, ev.Rev, Loading
		s.Queue = append(append([]Req(nil), ev.Parked...), s.Queue...)
		s.do(Effect{Op: LoadGiven})
	default:
		// The parked come as requests of their own, and the record says the rest. What was declined once stays declined: a second
		// copy must not bring them a second time.
		s.declined, s.Expect = ev.Route.Version, 0
		s.do(Effect{Op: TellNotAdopted, Route: to})
	}
}

func (s *step) takeOver(ev *Event, to Route) {
	s.Taken, s.Expect = ev.Route.Version, 0
	s.do(Effect{Op: TellAdopted, Route: to})
}
