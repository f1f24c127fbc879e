package zactor

import (
	"testing"
	"testing/synctest"
	"time"

	"zgame/zmsg"
)

// After a peak of requests their futures are let go, also while others are open; late replies to them are counted, and those that
// are open end.
func TestFuturesAfterAPeak(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		late := 0
		table := newFutures(realClock{}, func() { late++ })
		defer table.end()
		const peak = 8_000
		all := make([]*future, peak)
		tokens := make([]uint64, peak)
		for i := range all {
			all[i] = table.get()
			tokens[i] = all[i].arm(int64(time.Second))
		}
		kept := func() (n int) {
			for i := range table.shards {
				n += len(table.shards[i].all)
			}
			return n
		}
		open := all[0] // ends by its deadline
		for i, f := range all[1:] {
			f.Reply(tokens[i+1], &zmsg.Reply{})
			<-f.wake
			f.put()
		}
		table.trim()
		if n := kept(); n > 2*futureShards*keptFutures {
			t.Errorf("one request is open, %d futures are kept", n)
		}
		for i, f := range all[1:] {
			f.Reply(tokens[i+1], &zmsg.Reply{})
		}
		if late != peak-1 {
			t.Errorf("%d late replies, want %d", late, peak-1)
		}
		<-open.wake
		if open.reply.Code != zmsg.CodeTimeout {
			t.Errorf("the open request ended with %v", open.reply.Code)
		}
		open.put()
	})
}
