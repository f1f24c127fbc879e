package entry

import "zgame/zmsg"

// Route says who owns the object, and since which version. A zero Owner with a version: nobody since then.
type Route struct {
	Owner   zmsg.NodeRef
	Version zmsg.RouteVersion
}

// Phase is where an object stands on a node.
type Phase uint8

// The phases.
const (
	Absent    Phase = iota // nothing is known, or what is known is too old
	Cached                 // another node owns it
	Turning                // another node owns it since lately: what was sent on to the one before has to arrive first
	Reading                // the record is being read
	Claiming               // a create or a claim is under way
	Loading                // owned; the state is being made of the record
	Active                 // owned, with the state in memory
	Checking               // as Active, but the record is being read first: somebody knows a newer version, or the lease is back
	Releasing              // owned; the state is being written, and that nobody owns it
	Settling               // owned, the memory is dropped, and a write of it is still under way
	Freezing               // owned, to be moved: nothing new runs, what runs ends
	Moving                 // owned; the state and the new owner are being written
)

var phaseNames = [...]string{
	"absent", "cached", "turning", "reading", "claiming", "loading", "active", "checking", "releasing", "settling", "freezing", "moving",
}

// String returns the phase's name in lower case, fit for a metric label.
func (p Phase) String() string { return phaseNames[p] }

// Resident reports whether there is a state in memory.
func (p Phase) Resident() bool {
	return p == Active || p == Checking || p == Releasing || p == Freezing || p == Moving
}

// Req is a request as an entry sees it. Whoever drives the entry has the message.
type Req struct {
	ID      uint64            // unique on this node
	Hint    zmsg.RouteVersion // the newest version that the request has met on its way
	Hops    uint8             // how often it was forwarded
	Durable bool              // its success is told after the state is saved
	Own     bool              // it asks that the object be owned here: it is not forwarded
	Work    bool              // with Own: and is run then
	Then    bool              // with Work: and is run again when a save has all that was there by the first time, before the object goes to another node
	Make    bool              // with Own: and is created if it is not there, whatever the kind says
	Look    bool              // it asks where the object is, and has nothing created or claimed
	Again   bool              // it could not be delivered to the owner once
	Shy     bool              // it is for an object that is in memory, or was when its owner died: it has nothing created, and nothing claimed that was given up
	Fence   bool              // it asks for nothing: it ends when all that came before it has been taken by the owner
}

// held is a success that is not told yet, or what runs again when it is.
type held struct {
	req   Req
	saved bool // a save under way has its effect
	idle  bool // it had none: the save began before it ran, and proves nothing of the ownership since
}

// Entry is what is known of one object on one node. The zero Entry is Absent. It is the node's under one epoch: a node that
// joined again begins with new ones.
type Entry struct {
	Phase Phase
	Route Route
	Rev   uint64 // of the record, while this node owns it

	Queue   []Req // wait for the phase to end, in order
	Running int   // requests that were run and have not ended
	Dirty   bool  // the memory has what no write has taken

	Writing   bool // a save (Active, Checking, Settling), create, claim or release is under way
	Unknown   bool // and its outcome is unknown: it is being resolved
	Suspended bool // the lease is not valid
	Leaving   bool // to be given up as soon as nothing runs
	TooOld    bool // what is not saved is older than allowed: nothing new runs

	Moves  bool              // a transfer is under way
	Target zmsg.NodeRef      // to whom; zero: to nobody
	Notify bool              // the target is given the state, else it loads when it is asked
	Expect zmsg.RouteVersion // this node has agreed to take the object over under this version, and has not seen its record since

	Lane    Route // by which requests were sent on that may not have arrived; no owner: none
	Fencing bool  // a fence is on its way behind them

	held    []held
	rounds  uint8 // of reading and claiming for the requests that wait
	reading bool  // a read is under way
	again   bool  // and may be older than what is known by now
	resumed bool  // the lease is back, and the record was not seen since
	bare    bool  // Releasing without a memory
}

// Admits reports whether a request would be run at once: what a driver may decide without Step.
func (e *Entry) Admits() bool { return e.open() && !e.Fencing }

// open is Admits for what has not been overtaken: what came by the newest route.
func (e *Entry) open() bool {
	return e.Phase == Active && !e.Unknown && !e.Suspended && !e.Leaving && !e.TooOld
}

// Learn keeps a route that was committed, where nothing is known or something older, and nothing is under way. It reports whether
// it did.
func (e *Entry) Learn(r Route) bool {
	if e.Phase != Absent && e.Phase != Cached || r.Version <= e.Route.Version {
		return false
	}
	e.Phase, e.Route = Cached, r
	return true
}

// Facts are what holds at the moment of an event.
type Facts struct {
	Self     zmsg.NodeRef
	Home     zmsg.NodeRef // where the object would live if nobody owned it; zero: no node can have it
	CanOwn   bool         // this node is ready, hosts the kind, and its lease is valid
	OnDemand bool         // the kind is created, and claimed, by a request
	Newer    bool         // the record that was read holds a state of a newer version than this node can load
	MaxHops  uint8        // how often a request is forwarded, unless by a newer route each time
	MaxTTL   uint8        // and in all
	MaxQueue int
}

// Kind is what happened.
type Kind uint8

// The events.
const (
	Asked       Kind = iota // a request arrived (Req)
	HasRead                 // the record was read (Found, Route, Rev, OwnerDead)
	ReadFailed              // it could not be
	Wrote                   // the write under way has landed (Route: after create, claim and release; Rev)
	Conflicted              // it has not, and never will: the record is another's, or at another revision
	Failed                  // it has not, and never will; the record is as it was
	Unclear                 // nobody knows
	Loaded                  // the state is in memory
	LoadFailed              // the record's state cannot be used
	Ran                     // a request was run (Req; Dirty)
	Panicked                // its handler panicked (Req): the memory may be half changed
	SaveDue                 // it is time to save
	Idle                    // nothing came for long: it is given up
	Rest                    // nothing came for long: it leaves memory, and stays this node's
	Leave                   // somebody asks to give it up
	Overdue                 // what is not saved is older than allowed
	Suspend                 // the lease is not valid any more
	Resume                  // it is again, under the same epoch
	Told                    // somebody says where the object lives (Route; Last)
	FenceOver               // a fence has passed, or is lost (Route: what it has met, if anything)
	Undelivered             // a forwarded request (Req) has provably not arrived at Route
	Expired                 // what is known about another's ownership is too old
	Dirtied                 // the state was changed outside of a request

	Transfer   // somebody asks that Target becomes the owner, or nobody where that is zero (Target, Notify)
	Prepared   // the target can take it
	Unprepared // it cannot, or did not answer (Route: a newer one that it knows)
	Unquiet    // what ran when the transfer froze the object has not ended in time

	PrepareAsked // a node asks whether this one can take the object over (From, Route: its own)
	Hinted       // a node has made this one the owner (Route, Rev; Found: with the state)
	Unexpect     // what this node has agreed to take over has not come for long
)

// Event is what happened, with what the kind says.
type Event struct {
	Kind      Kind
	Req       Req
	Found     bool // the record is there, and not deleted
	Route     Route
	Rev       uint64
	OwnerDead bool // it is proven that the record's owner never serves again
	Dirty     bool // the handler has changed the state
	Unsavable bool // Failed: and will again, as long as the state is as it is
	Target    zmsg.NodeRef
	Last      bool // Told: by the answer to what was sent on last
	Notify    bool
	From      zmsg.NodeRef
}

// Op is what is to be done.
type Op uint8

// The effects.
const (
	Read           Op = iota // read the record; ends as HasRead or ReadFailed
	Create                   // write a new record owned by this node; ends as one of the four
	Claim                    // claim it, as Route and Rev say it is; likewise
	Save                     // save the memory as it is now; likewise
	Release                  // write the memory, or the record's state if nothing is loaded, and that nobody owns it; likewise
	Resolve                  // find out about the write under way; likewise
	Load                     // make the state of the record; ends as Loaded or LoadFailed
	Run                      // have the object run Req; ends as Ran or Panicked, unless Drop comes first
	Forward                  // send Req to Route.Owner, one hop further; may end as Undelivered
	Fence                    // send a request with Req.Fence to Route.Owner, behind all that was sent to it; ends as FenceOver
	Answer                   // refuse Req for Cause
	Ack                      // tell the success of Req
	Drop                     // drop the memory, Route.Owner has the object now: what waits in its mailbox ends not executed, what runs ends unknown
	Prepare                  // ask Route.Owner whether it can take the object over; ends as Prepared or Unprepared
	Move                     // write the memory, and that Target owns it; ends as one of the four of writes
	Hint                     // tell Route.Owner that it owns the object, and the state of Rev; in front of what is forwarded to it from now on
	TellPrepared             // answer Route.Owner: this node can take it
	TellUnprepared           // or cannot
	LoadGiven                // make the state of what came with Hinted; ends as Loaded or LoadFailed
	TransferDone             // tell who asked for the transfer: Route.Owner owns it
	TransferNot              // or not, for Cause: the object serves on, unless it is lost; Unconfirmed: nobody knows
)

var opNames = [...]string{
	"read", "create", "claim", "save", "release", "resolve", "load", "run", "forward", "fence", "answer", "ack", "drop",
	"prepare", "move", "hint", "tell_prepared", "tell_unprepared", "load_given", "transfer_done", "transfer_not",
}

// String returns the effect's name in lower case.
func (o Op) String() string { return opNames[o] }

// Cause is why a request is refused.
type Cause uint8

// The causes. All but the last four mean that the request was not executed.
const (
	Busy        Cause = iota // the queue is full
	Unavailable              // the store does not answer, no node can own it, or this one may not serve now
	Contended                // others were faster at claiming, round after round
	Hops                     // forwarded too often
	NotFound                 // no record, and the kind is not created on demand
	NotInServer              // nobody owns it, and the kind is not claimed on demand
	Moved                    // it asked to own, and another does (Route)
	Unusable                 // the record's state cannot be loaded here
	Refused                  // a transfer: the target cannot take it
	Unended                  // a transfer: what ran has not ended in time
	Unconfirmed              // a transfer: the memory was lost while the new owner was written: unknown
	Lost                     // it ran, and the memory was lost before it was saved: unknown
	Broken                   // its handler panicked: unknown
	Unsavable                // it ran, and left a state that cannot be saved
)

var causeNames = [...]string{"busy", "unavailable", "contended", "hops", "not_found", "not_in_server", "moved", "unusable", "refused", "unended", "unconfirmed", "lost", "panicked", "unsavable"}

// String returns the cause's name in lower case, fit for a metric label.
func (c Cause) String() string { return causeNames[c] }

// Executed reports whether the request may have run.
func (c Cause) Executed() bool { return c >= Unconfirmed }

// Effect is one thing to do.
type Effect struct {
	Op    Op
	Req   Req
	Route Route
	Rev   uint64
	Cause Cause
	Saved bool // Drop: all that the memory had is in the record
}
