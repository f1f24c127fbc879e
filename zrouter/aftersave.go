package zrouter

import (
	"time"

	"zgame/zactor"
	"zgame/zrouter/internal/entry"
)

// saveAgain is the wait before a save is asked for again that could not be.
const saveAgain = 200 * time.Millisecond

// AfterSave runs fn in a turn of the object when its state, as it is now, is in the store, and does not let that wait for the save delay: for what others
// may hear of only when no crash can take it back. By then the state may have changed again. Functions run in the order in which they were given, and a
// transfer waits for them: the object goes when they have run. Where it leaves this node's memory otherwise (a panic, a lost lease, Stop, Delete) fn may not
// run: OnActivate of its next owner has what was saved, and goes on from there. Of the hooks it is for OnActivate alone.
func (c *Context[S]) AfterSave(fn func(c *Context[S])) {
	run := c.turn(fn)
	if trace := c.SendTrace(); trace.Span != 0 {
		then := run
		run = func(zc *zactor.Context) { zc.CarryTrace(trace); then(zc) }
	}
	res := c.cell.res
	res.saves.add(run)
	res.afterSave(c.Self(), res.saves.last)
}

// afterSaves are the functions that wait for a save, by number. A save has all that was changed before it, so one for a number lets those before run as
// well, and they run in their order also where one of them had to be asked for again.
type afterSaves struct {
	waits []func(*zactor.Context) // oldest first
	last  uint64                  // the number of the newest
}

func (a *afterSaves) add(fn func(*zactor.Context)) {
	a.waits = append(a.waits, fn)
	a.last++
}

// run runs those up to n.
func (a *afterSaves) run(zc *zactor.Context, n uint64) {
	for a.waiting(n) {
		fn := a.waits[0]
		a.waits[0] = nil
		if a.waits = a.waits[1:]; len(a.waits) == 0 {
			a.waits = nil
		}
		fn(zc)
	}
}

// waiting reports that n has not run.
func (a *afterSaves) waiting(n uint64) bool { return n > a.last-uint64(len(a.waits)) }

// afterSave asks for a save of the state as it is now, for the functions up to n. Called in the object's turn.
func (r *residence) afterSave(self zactor.Ref, n uint64) {
	saved := false
	save := order{req: entry.Req{Own: true, Work: true, Durable: true, Then: true}, work: func(zc *zactor.Context) {
		switch {
		case zc.Self() != self: // of another memory of the object, whose functions these are not
		case saved:
			r.saves.run(zc, n)
		default: // runs behind what has asked, and again when that is saved
			saved = true
		}
	}}
	r.sh.set.begin(r.o.key, save, func(_ Route, err error) {
		if err == nil {
			return
		}
		// Too much waits, or the lease is not valid now: the object may live on. If not, the actor has ended.
		_ = self.Turn(func(zc *zactor.Context) {
			zc.After(saveAgain, func(zc *zactor.Context) {
				if r.saves.waiting(n) {
					r.afterSave(self, n)
				}
			})
		}, nil)
	})
}
