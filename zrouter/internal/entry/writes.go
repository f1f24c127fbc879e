package entry

// How writes end, and what they let be told.

//go:noinline
func (s *step) wrote(ev *Event) {
	s.Writing, s.Unknown = false, false
	switch s.Phase { //nolint:exhaustive // in the others no write is under way
	case Claiming:
		s.own(ev, Load)
	case Releasing:
		s.Rev, s.Route = ev.Rev, ev.Route
		s.ackSaved()
		s.forget(!s.Dirty)
		s.lookOrRest()
	case Active, Checking:
		s.Rev, s.TooOld = ev.Rev, false
		s.ackSaved()
		s.goOn()
	case Settling:
		s.lookOrRest()
	case Freezing:
		s.Rev, s.TooOld = ev.Rev, false
		s.ackSaved()
		s.commitIfQuiet()
	case Moving:
		s.moved(ev)
	}
}

//go:noinline
func (s *step) conflicted() {
	if s.Phase == Moving && s.Unknown {
		s.notMoved(Unconfirmed) // it may have landed, and the new owner written since
	}
	s.Writing, s.Unknown = false, false
	switch s.Phase {
	case Claiming:
		if s.rounds++; s.rounds >= maxRounds {
			s.refuseAll(Contended)
			s.Phase = Absent
			return
		}
		s.Phase = Reading
		s.startRead()
	case Settling:
		s.lookOrRest()
	default:
		s.fence()
	}
}

//go:noinline
func (s *step) failed(ev *Event) {
	s.Writing, s.Unknown = false, false
	if ev.Unsavable {
		s.answerUnsavable()
	}
	switch s.Phase { //nolint:exhaustive // in the others no write is under way
	case Claiming:
		s.refuseAll(Unavailable)
		s.Phase = Absent
	case Releasing:
		s.Leaving = false
		if s.bare {
			s.forget(false)
			s.lookOrRest()
			return
		}
		s.Phase = Active
		s.unsaved()
		s.goOn()
	case Active, Checking:
		s.unsaved()
		s.goOn()
	case Settling:
		s.lookOrRest()
	case Freezing:
		s.unsaved()
		if s.owes() { // the save that it waits for is not tried again and again
			s.thaw(Unavailable)
			return
		}
		s.commitIfQuiet()
	case Moving:
		s.unsaved()
		s.thaw(Unavailable)
	}
}

// answerUnsavable ends what waits for a save that will not come.
func (s *step) answerUnsavable() {
	kept := s.held[:0]
	for _, h := range s.held {
		if h.req.Durable && h.saved {
			s.answer(h.req, Unsavable)
		} else {
			kept = append(kept, h)
		}
	}
	s.held = kept
}

// unsaved takes back what a write was to save.
func (s *step) unsaved() {
	s.Dirty = true
	for i := range s.held {
		s.held[i].saved = false
	}
}

// ackSaved tells the successes that a save proves: their effect is in the record.
//
//go:noinline
func (s *step) ackSaved() {
	kept := s.held[:0]
	for _, h := range s.held {
		switch {
		case h.saved && h.idle && s.Suspended: // as from memory: when the lease is back, if it is
			h.req.Durable, h.saved = false, false
			kept = append(kept, h)
		case h.saved:
			s.success(h.req)
		default:
			kept = append(kept, h)
		}
	}
	s.held = kept
	for _, h := range s.held { // ran while the save was under way
		if h.req.Durable || s.Suspended {
			s.saveHeld()
			break
		}
	}
}

// saveHeld saves for a success that waits for it, unless another write follows that saves it: that of a release, or of a move.
func (s *step) saveHeld() {
	if !s.Leaving || s.Running > 0 {
		s.save()
	}
}

// ackServed tells the successes that waited for the lease alone.
//
//go:noinline
func (s *step) ackServed() {
	kept := s.held[:0]
	for _, h := range s.held {
		if h.req.Durable {
			kept = append(kept, h)
		} else {
			s.success(h.req)
		}
	}
	s.held = kept
}

//go:noinline
func (s *step) save() {
	if s.Phase != Active && s.Phase != Checking || !s.Dirty || s.Writing {
		return
	}
	s.startSave()
}

func (s *step) startSave() {
	s.Writing, s.Dirty = true, false
	for i := range s.held {
		s.held[i].saved, s.held[i].idle = true, false
	}
	s.do(Effect{Op: Save, Route: s.Route, Rev: s.Rev})
}

//go:noinline
func (s *step) leave() {
	switch s.Phase { //nolint:exhaustive // the others own nothing, or give it up already
	case Cached:
		s.Phase = Absent
	case Active, Checking:
		s.Leaving = true
		s.releaseIfIdle()
	case Freezing:
		s.Leaving = true
		s.thaw(Unavailable)
	case Moving:
		s.Leaving = true // where the move fails
	}
}

func (s *step) releaseIfIdle() {
	if s.Leaving && s.Phase == Active && s.Running == 0 && !s.Writing {
		s.release()
	}
}

// release gives the ownership up; after LoadFailed there is nothing in memory.
//
//go:noinline
func (s *step) release() {
	s.notMoved(Unavailable)
	s.bare = s.Phase == Loading
	s.Phase, s.Writing, s.Leaving, s.Dirty = Releasing, true, true, false
	for i := range s.held {
		s.held[i].saved, s.held[i].idle = true, false
	}
	s.do(Effect{Op: Release, Route: s.Route, Rev: s.Rev})
}
