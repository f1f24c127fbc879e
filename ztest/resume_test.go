package ztest_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zclient"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/ztest"
)

// wire dials, and cuts what it has dialled.
type wire struct {
	mu    sync.Mutex
	conns []net.Conn
	torn  bool // no dial succeeds
}

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.torn {
		return nil, net.ErrClosed
	}
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err == nil {
		w.conns = append(w.conns, c)
	}
	return c, err
}

// cut breaks what there is by resets; torn says whether there is no way from now on.
func (w *wire) cut(torn bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		_ = c.Close()
	}
	w.conns, w.torn = nil, torn
}

// wired connects a client whose connections can be cut.
func wired(t *testing.T, c *ztest.Nodes, name string, k int) (*listener, *wire) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w := &wire{}
	cl, err := zclient.Dial(ctx, zclient.Config{
		URL: c.Node(k).GateURL(), Token: name, RequestTimeout: patience, Dialer: w.dial, MinBackoff: time.Millisecond, MaxBackoff: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cl.Close()
		<-cl.Done()
	})
	return listen(t, cl), w
}

// The connection of a client that is bound to an object breaks again and again, while the object moves from node to node and says things: the client
// misses nothing, in order, its own requests run once, and nobody is told of an end.
func TestCutsWhileAnObjectMoves(t *testing.T) {
	t.Parallel()
	app := &stages{}
	c := ztest.Cluster(t, 3, app.app(), ztest.Settings(gateAlone))
	ann, w := wired(t, c, "ann", 0)
	ref := ann.Session().Ref
	ann.join("go")
	const rounds = 30
	for n := range uint64(rounds) {
		if n%3 == 1 {
			w.cut(false)
		}
		if n%10 == 5 {
			moveStage(t, c, "go", 1+int(n/10)%2)
		}
		var said *chatpb.Said
		var err error
		ztest.Eventually(t, "a connection", func() bool { // a request while there is none is not made
			said, err = ann.say("go")
			return err == nil || zmsg.OutcomeOf(err) != zmsg.NotExecuted
		})
		if err != nil || said.GetSeq() != n+1 {
			t.Fatalf("word %d is number %d: %v", n+1, said.GetSeq(), err)
		}
	}
	ztest.Eventually(t, "all is heard", func() bool { return len(ann.heard()) == rounds })
	if got := ann.heard(); !slices.Equal(got, count(rounds)) {
		t.Errorf("heard %v", got)
	}
	if st := ann.Stats(); st.Resumes == 0 || st.Lost != 0 || st.Gaps != 0 || ann.Session().Ref != ref {
		t.Errorf("%+v", st)
	}
	if told := app.told(); len(told) != 0 {
		t.Errorf("told of the ends of %v", told)
	}
}

// H2, S2: a client that is gone is suspended first, and what is pushed to its user waits for it; when it does not come back, its objects are told once,
// and its user has no session.
func TestAClientThatDoesNotComeBack(t *testing.T) {
	t.Parallel()
	app := &stages{}
	c := ztest.Cluster(t, 2, app.app(), ztest.Settings(func(k int, s *znode.Settings) {
		gateAlone(k, s)
		s.Gate.ResumeWindow = 3 * time.Second
	}))
	ann, w := wired(t, c, "ann", 0)
	bob := listen(t, c.Client("bob", 0))
	ann.join("go")
	bob.join("go")
	w.cut(true)
	if _, err := bob.say("go"); err != nil {
		t.Fatal(err)
	}
	ztest.Eventually(t, "bob hears himself", func() bool { return len(bob.heard()) == 1 })
	w.cut(false)
	if ztest.Eventually(t, "ann hears or is new", func() bool { return len(ann.heard()) == 1 || ann.Stats().Lost == 1 }); ann.Stats().Lost == 0 {
		if st := ann.Stats(); st.Resumes != 1 || st.Gaps != 0 {
			t.Errorf("%+v", st)
		}
	} else {
		t.Log("the machine was too busy for her to be back in time")
		return
	}
	if told := app.told(); len(told) != 0 {
		t.Fatalf("told of the ends of %v", told)
	}
	w.cut(true)
	ztest.Eventually(t, "the stage is told", func() bool { return slices.Equal(app.told(), []string{"ann"}) })
	w.cut(false)
	ztest.Eventually(t, "ann is back, and knows that she was gone", func() bool { return ann.Stats().Lost == 1 && ann.State().Phase == zclient.Online })
	if ann.Session().Resumed {
		t.Error("resumed")
	}
	ann.join("go")
	if _, err := bob.say("go"); err != nil {
		t.Fatal(err)
	}
	ztest.Eventually(t, "both hear it", func() bool { return len(ann.heard()) == 2 && len(bob.heard()) == 2 })
	if told := app.told(); len(told) != 1 {
		t.Errorf("told of the ends of %v", told)
	}
}
