package ztest

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zclient"
)

// message is a pointer to a generated message type M.
type message[M any] interface {
	*M
	proto.Message
}

// Call sends a request and returns its answer; an error fails the test.
func Call[R any, P message[R]](tb testing.TB, c *zclient.Client, req proto.Message) P {
	tb.Helper()
	answer, err := zclient.Call[R, P](tb.Context(), c, req)
	if err != nil {
		tb.Fatalf("ztest: %T: %v", req, err)
	}
	return answer
}

// Pushes are the pushes of one type that a client gets, in order, from Watch on.
type Pushes[M any, P message[M]] struct {
	tb testing.TB
	ch chan P
}

// maxPushes is how many may wait to be looked at; a test that lets more come fails.
const maxPushes = 1 << 16

// Watch collects the pushes of type M that c gets from now on, until the test ends.
func Watch[M any, P message[M]](tb testing.TB, c *zclient.Client) *Pushes[M, P] {
	tb.Helper()
	w := &Pushes[M, P]{tb: tb, ch: make(chan P, maxPushes)}
	tb.Cleanup(zclient.On(c, func(m P) {
		select {
		case w.ch <- m:
		default:
			tb.Errorf("ztest: more than %d pushes wait to be looked at", maxPushes)
		}
	}))
	return w
}

// Next returns the next push. None within half a minute fails the test.
func (w *Pushes[M, P]) Next() P {
	w.tb.Helper()
	return w.Until("any", func(P) bool { return true })
}

// Until passes over pushes up to one that ok accepts, and returns it. None within half a minute fails the test with what
// was waited for.
func (w *Pushes[M, P]) Until(what string, ok func(P) bool) P {
	w.tb.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for passed := 0; ; passed++ {
		select {
		case m := <-w.ch:
			if ok(m) {
				return m
			}
		case <-timeout.C:
			w.tb.Fatalf("ztest: no push (%s) within %v; %d others came", what, patience, passed)
		}
	}
}
