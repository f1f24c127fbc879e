package zrouter

import (
	"time"

	"zgame/zactor"
	"zgame/zrouter/internal/entry"
)

// saveAgain is the wait before a save is asked for again that could not be.
const saveAgain = 200 * time.Millisecond

// AfterSave runs fn in a turn of the object when its state, as it is now, is in the store, and does not let that wait for the save delay: for what others
// may hear of only when no crash can take it back. By then the state may have changed again. fn does not run where the object leaves this
// node's memory before: OnActivate of its next owner has what was saved, and goes on from there. Of the hooks it is for OnActivate alone.
func (c *Context[S]) AfterSave(fn func(c *Context[S])) {
	run := c.turn(fn)
	if trace := c.SendTrace(); trace.Span != 0 {
		then := run
		run = func(zc *zactor.Context) { zc.CarryTrace(trace); then(zc) }
	}
	c.cell.afterSave(c.Self(), run)
}

func (c *cell[S]) afterSave(self zactor.Ref, run func(*zactor.Context)) {
	save := order{req: entry.Req{Own: true, Work: true, Durable: true}, work: func(*zactor.Context) {}}
	c.res.sh.set.begin(c.res.o.key, save, func(_ Route, err error) {
		next := run
		if err != nil { // too much waits, or the lease is not valid now: the object may live on
			next = func(zc *zactor.Context) {
				zc.After(saveAgain, func(zc *zactor.Context) { c.afterSave(zc.Self(), run) })
			}
		}
		_ = self.Turn(next, nil) // the actor has ended: as promised
	})
}
