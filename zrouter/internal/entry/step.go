package entry

// maxRounds is how often requests wait for reading and claiming before they are refused.
const maxRounds = 3

// step is one run of Step. What it is made of is not inlined: together the effects that all of it would put on the stack make it grow in
// each goroutine of an actor that has just begun, which costs more than all the calls.
type step struct {
	*Entry
	f   *Facts
	out []Effect
}

// Step applies ev to e and appends what is to be done to out, in order. Events of reads and writes are told once for each that
// was asked for; those of requests once for each that runs, until a Drop.
func (e *Entry) Step(f *Facts, ev *Event, out []Effect) []Effect {
	s := &step{e, f, out}
	switch ev.Kind {
	case Asked:
		s.asked(ev.Req)
	case HasRead, ReadFailed:
		s.read(ev)
	case Wrote:
		s.wrote(ev)
	case Conflicted:
		s.conflicted()
	case Failed:
		s.failed(ev)
	case Unclear:
		s.Unknown = true
		s.do(Effect{Op: Resolve})
	case Loaded:
		s.loaded()
	case LoadFailed:
		s.refuseAll(Unusable)
		s.release()
	case Ran:
		s.ran(ev)
	case Panicked:
		s.panicked(ev.Req)
	case SaveDue:
		s.save()
	case Idle:
		if s.Admits() && s.Running == 0 && len(s.held) == 0 && !s.Writing {
			s.release()
		}
	case Rest:
		if s.Admits() && s.Running == 0 && len(s.held) == 0 && !s.Writing && !s.Dirty {
			s.fence()
		}
	case Leave:
		s.leave()
	case Overdue:
		if s.Phase.Resident() && (s.Dirty || s.Writing) {
			s.TooOld = true
			s.refuseAll(Unavailable)
		}
	case Suspend:
		s.Suspended = true
		if s.Phase == Freezing {
			s.thaw(Unavailable)
		}
		if s.Phase != Reading && s.Phase != Turning { // where another is to be asked
			s.refuseAll(Unavailable)
		}
		if len(s.held) > 0 { // without a lease a write alone lets them be told
			s.saveHeld()
		}
	case Resume:
		s.resume()
	case Told:
		s.told(ev)
	case FenceOver:
		s.passed(ev)
	case Undelivered:
		s.undelivered(ev)
	case Expired:
		if s.Phase == Cached {
			s.Phase = Absent
		}
	case Dirtied:
		s.Dirty = s.Dirty || s.Phase.Resident()
	default:
		s.move(ev)
	}
	return s.out
}

func (s *step) do(x Effect) { s.out = append(s.out, x) }

//go:noinline
func (s *step) answer(r Req, why Cause) { s.do(Effect{Op: Answer, Req: r, Cause: why, Route: s.Route}) }

//go:noinline
func (s *step) asked(r Req) {
	switch s.Phase {
	case Absent:
		s.wait(r)
		s.look()
	case Cached:
		// Whoever was sent here and finds another owner has seen an older route than this node, or this node's is wrong: the
		// record decides, so that two wrong routes never send a request to and fro.
		if s.doubts(r) {
			s.wait(r)
			s.look()
			return
		}
		s.forward(r, s.Route)
	case Active:
		switch {
		case s.Suspended, s.TooOld && !r.Work: // work may make a state smaller that cannot be saved
			s.answer(r, Unavailable)
		case !s.open() && (!s.TooOld || s.Unknown || s.Leaving), s.Fencing && r.Hint < s.Route.Version:
			s.wait(r)
		case r.Hint > s.Route.Version:
			// Never give anything up because of a hint; nor serve before the record was looked at.
			s.wait(r)
			s.Phase = Checking
			s.startRead()
		default:
			s.run(r)
		}
	case Claiming, Loading, Releasing, Settling, Checking, Freezing, Moving:
		switch {
		case s.Suspended:
			s.answer(r, Unavailable)
		case s.Phase == Freezing && r.Then: // of what runs still, with which it belongs
			s.run(r)
		default:
			s.wait(r)
		}
	case Reading:
		s.wait(r)
	case Turning:
		s.wait(r)
		if s.doubts(r) {
			s.look()
		}
	}
}

// doubts reports that the record is to be read before r is sent on by the route.
func (s *step) doubts(r Req) bool { return r.Own || r.Again || r.Hops > 0 && r.Hint >= s.Route.Version }

// wait puts r behind the others.
//
//go:noinline
func (s *step) wait(r Req) {
	if len(s.Queue) >= s.f.MaxQueue && !r.Fence {
		s.answer(r, Busy)
		return
	}
	s.Queue = append(s.Queue, r)
}

func (s *step) take() []Req {
	q := s.Queue
	s.Queue = nil
	return q
}

//go:noinline
func (s *step) refuseAll(why Cause) {
	for _, r := range s.take() {
		s.answer(r, why)
	}
}

// look reads the record for the requests that wait.
//
//go:noinline
func (s *step) look() {
	s.Phase, s.rounds = Reading, 0
	s.startRead()
}

//go:noinline
func (s *step) startRead() {
	if s.reading {
		s.again = true
		return
	}
	s.reading = true
	s.do(Effect{Op: Read})
}

// lookOrRest goes on without a state in memory.
func (s *step) lookOrRest() {
	if len(s.Queue) > 0 {
		s.look()
	} else {
		s.Phase = Absent
	}
}

//go:noinline
func (s *step) read(ev *Event) {
	s.reading = false
	if s.again {
		s.again = false
		if s.Phase == Reading || s.Phase == Checking {
			s.startRead()
		}
		return
	}
	switch s.Phase { //nolint:exhaustive // in the others nobody waits for it any more
	case Checking:
		s.checked(ev)
	case Reading:
		if ev.Kind == ReadFailed {
			s.refuseAll(Unavailable)
			s.Phase = Absent
			return
		}
		if s.older(ev.Route) {
			s.startRead()
			return
		}
		s.decide(ev)
	}
}

// older reports, a bounded number of times, that a request waits whose path has seen a newer version than was read: it came while
// the read was on its way.
func (s *step) older(read Route) bool {
	for _, q := range s.Queue {
		if q.Hint > read.Version && s.rounds < maxRounds {
			s.rounds++
			return true
		}
	}
	return false
}

// checked ends Checking.
func (s *step) checked(ev *Event) {
	resumed := s.resumed
	s.resumed = false
	switch {
	case ev.Kind == ReadFailed:
		s.Phase = Active
		s.Suspended = s.Suspended || resumed // not before the record was seen
		s.refuseAll(Unavailable)
		s.goOn()
	case ev.Found && ev.Route == s.Route:
		s.Phase = Active
		s.goOn()
	default:
		s.fence()
	}
}

// decide sends the requests that wait where the record says.
//
//go:noinline
func (s *step) decide(ev *Event) {
	nobody := !ev.Found || ev.Route.Owner.IsZero() || ev.OwnerDead ||
		ev.Route.Owner.ID == s.f.Self.ID && ev.Route.Owner.Epoch < s.f.Self.Epoch
	if ev.Route.Version < s.Route.Version && s.Route.Owner != s.f.Self && !s.Route.Owner.IsZero() {
		// Told meanwhile of what is newer than what was read.
		s.cached(s.Route)
		return
	}
	if ev.Route.Version > s.Route.Version {
		s.Route = ev.Route
	}
	switch {
	case nobody:
		s.place(ev)
	case ev.Route.Owner != s.f.Self:
		s.cached(ev.Route)
	case s.Suspended:
		s.refuseAll(Unavailable)
		s.Phase = Absent
	default: // owned already, with nothing in memory, and no write under way
		s.own(ev, Load)
	}
}

// own has the state made in memory of what this node owns now.
//
//go:noinline
func (s *step) own(ev *Event, load Op) {
	s.Route, s.Rev, s.Phase = ev.Route, ev.Rev, Loading
	s.Expect = 0 // from here on the record may be newer than what is on its way here
	s.do(Effect{Op: load})
	if !s.Lane.Owner.IsZero() { // what was sent on comes back here
		s.sendFence()
	}
}

// cached makes r the route, and forwards what waits: behind what was sent on by an older route, if anything was.
//
//go:noinline
func (s *step) cached(r Route) {
	s.Route, s.Phase = r, Cached
	if s.Fencing || s.overtakes(r) {
		s.Phase = Turning
		s.sendFence()
		return
	}
	for _, q := range s.take() {
		s.forward(q, r)
	}
}

// place finds an owner for what nobody owns: this node, or its home.
//
//go:noinline
func (s *step) place(ev *Event) {
	// Of this node: it had the object before it was started again, is its home, was taken for the home, or is asked by name.
	wanted := ev.Route.Owner.ID == s.f.Self.ID && ev.Found
	orphaned := ev.Found && !ev.Route.Owner.IsZero()
	for _, q := range s.take() {
		switch {
		case q.Fence: // goes where the others go
			s.Queue = append(s.Queue, q)
		case !q.Look && (s.f.OnDemand && (!q.Shy || orphaned) || q.Own && (ev.Found || q.Make)):
			s.Queue = append(s.Queue, q)
			wanted = wanted || q.Own || q.Hops > 0 || s.f.Home == s.f.Self
		case ev.Found:
			s.answer(q, NotInServer)
		default:
			s.answer(q, NotFound)
		}
	}
	s.Phase = Absent
	own, why := wanted && s.f.CanOwn && !s.Suspended, Unavailable
	if own && ev.Found && s.f.Newer {
		own, why = false, Unusable // claimed, it would be given up at once: two writes for each request
	}
	switch {
	case len(s.Queue) == 0:
	case own:
		s.Phase, s.Writing = Claiming, true
		op := Create
		if ev.Found {
			op = Claim
		}
		s.do(Effect{Op: op, Route: ev.Route, Rev: ev.Rev})
	case s.f.Home.IsZero() || s.f.Home == s.f.Self:
		s.refuseAll(why)
	default:
		// Not a route: nobody has committed it, so it is not remembered.
		for _, q := range s.take() {
			if q.Own {
				s.answer(q, why)
				continue
			}
			s.forward(q, Route{s.f.Home, ev.Route.Version})
		}
	}
}

//go:noinline
func (s *step) forward(r Req, to Route) {
	switch {
	case r.Own:
		s.answer(r, Moved)
	case r.Hops >= s.f.MaxTTL, r.Hops >= s.f.MaxHops && to.Version <= r.Hint: // by newer and newer routes is no circle: it follows an object that moves
		s.answer(r, Hops)
	default:
		r.Hops++
		r.Hint = max(r.Hint, to.Version)
		if to == s.Route && !r.Look && !r.Fence { // not a placement
			s.Lane = to
		}
		s.do(Effect{Op: Forward, Req: r, Route: to})
	}
}

//go:noinline
func (s *step) undelivered(ev *Event) {
	if s.Phase == Cached && s.Route.Version == ev.Route.Version {
		s.Phase = Absent
	}
	if s.Lane == ev.Route {
		s.Lane = Route{} // nobody is there, or what was on its way is lost
	}
	r := ev.Req
	r.Hops--
	if r.Again {
		s.answer(r, Unavailable)
		return
	}
	r.Again = true
	s.asked(r)
}

// fence ends a residence whose record is another's.
//
//go:noinline
func (s *step) fence() {
	s.forget(false)
	s.lookOrRest()
}

// forget drops the memory, and what was not told of it is lost.
//
//go:noinline
func (s *step) forget(saved bool) {
	if !s.bare {
		s.do(Effect{Op: Drop, Saved: saved, Route: s.Route})
	}
	for _, h := range s.held {
		s.answer(h.req, Lost)
	}
	if s.Phase == Moving && s.Writing {
		s.notMoved(Unconfirmed)
	} else {
		s.notMoved(Unavailable)
	}
	s.held, s.Running = nil, 0
	s.Dirty, s.Leaving, s.TooOld, s.bare, s.resumed = false, false, false, false, false
}

//go:noinline
func (s *step) loaded() {
	s.Phase = Active
	s.goOn()
}

// goOn does what had to wait for the phase to be Active and nothing unknown.
//
//go:noinline
func (s *step) goOn() {
	if s.Phase != Active || s.Unknown {
		return
	}
	if s.resumed {
		s.Phase = Checking
		s.startRead()
		return
	}
	if !s.Suspended {
		s.ackServed()
	}
	s.releaseIfIdle()
	if s.open() {
		for _, q := range s.take() {
			if s.Fencing && q.Hint < s.Route.Version {
				s.Queue = append(s.Queue, q)
				continue
			}
			s.run(q)
		}
	}
}

//go:noinline
func (s *step) run(r Req) {
	if r.Own && !r.Work || r.Fence {
		s.do(Effect{Op: Ack, Req: r})
		return
	}
	s.Running++
	s.do(Effect{Op: Run, Req: r})
}

// success ends r, or has it run again.
//
//go:noinline
func (s *step) success(r Req) {
	if !r.Then {
		s.do(Effect{Op: Ack, Req: r})
		return
	}
	r.Then, r.Durable = false, false
	s.run(r)
}

//go:noinline
func (s *step) ran(ev *Event) {
	s.Running--
	s.Dirty = s.Dirty || ev.Dirty
	switch {
	case ev.Req.Durable && (s.Dirty || s.Writing):
		s.held = append(s.held, held{req: ev.Req, saved: !s.Dirty, idle: !s.Dirty}) // the write under way has all that it saw
		s.saveHeld()
	case (s.Phase == Active || s.Phase == Freezing) && !s.Suspended && !s.Unknown:
		s.success(ev.Req)
	default:
		ev.Req.Durable = false // all is saved: it waits for the record to be seen, or for the lease
		s.held = append(s.held, held{req: ev.Req})
		if s.Suspended {
			s.saveHeld()
		}
	}
	s.releaseIfIdle()
	s.commitIfQuiet()
}

// panicked drops a memory that may be half changed; the last saved record is loaded again.
//
//go:noinline
func (s *step) panicked(r Req) {
	s.answer(r, Broken)
	writing := s.Writing
	s.forget(false)
	if writing { // the record is not known before it has ended
		s.Phase = Settling
		return
	}
	s.lookOrRest()
}

//go:noinline
func (s *step) resume() {
	s.Suspended = false
	switch s.Phase { //nolint:exhaustive // the others look at the record before they serve
	case Active, Checking:
		s.Phase, s.resumed = Checking, true
		s.startRead()
	case Loading, Releasing, Freezing, Moving: // where it serves on afterwards
		s.resumed = true
	}
}
