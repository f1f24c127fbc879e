package mongostore_test

import (
	"net"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"zgame/internal/mongowire"
)

// fakeServer says that it is the primary of a replica set with sessions, so that the client speaks to it as in
// production, and answers every other command as the test's script says. It knows nothing of documents.
type fakeServer struct {
	t      *testing.T
	l      net.Listener
	wg     sync.WaitGroup
	mu     sync.Mutex
	script func(name string, cmd bson.Raw) answer // guarded by mu
	conns  map[net.Conn]bool                      // guarded by mu
}

// answer is a reply, or how there is none.
type answer struct {
	doc  bson.D // {ok: 1} is added where there is no ok
	half bool   // send half of the reply, then close
	drop bool   // close without a reply
}

func startFake(t *testing.T) *fakeServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeServer{t: t, l: l, conns: map[net.Conn]bool{}}
	f.answer(func(string, bson.Raw) answer { return answer{} })
	f.wg.Go(f.accept) // ends when stop closes the listener; stop waits
	t.Cleanup(f.stop)
	return f
}

func (f *fakeServer) uri() string { return "mongodb://" + f.l.Addr().String() + "/?replicaSet=rs0" }

func (f *fakeServer) answer(script func(name string, cmd bson.Raw) answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.script = script
}

func (f *fakeServer) stop() {
	f.mu.Lock()
	_ = f.l.Close()
	for c := range f.conns {
		_ = c.Close()
	}
	f.conns = nil
	f.mu.Unlock()
	f.wg.Wait()
}

func (f *fakeServer) accept() {
	for {
		c, err := f.l.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		if f.conns == nil {
			f.mu.Unlock()
			_ = c.Close()
			return
		}
		f.conns[c] = true
		f.mu.Unlock()
		f.wg.Go(func() { f.serve(c) }) // ends when either side closes the connection; stop waits
	}
}

func (f *fakeServer) serve(c net.Conn) {
	defer func() {
		_ = c.Close()
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.conns, c)
	}()
	for {
		m, err := mongowire.Read(c)
		if err != nil {
			return
		}
		cmd, err := m.Command()
		if err != nil {
			f.t.Errorf("the client sent %q: %v", m, err)
			return
		}
		a := f.reply(m.Name(), cmd)
		if a.drop {
			return
		}
		if len(a.doc) == 0 || !hasOK(a.doc) {
			a.doc = append(a.doc, bson.E{Key: "ok", Value: 1.0})
		}
		b, err := bson.Marshal(a.doc)
		if err != nil {
			f.t.Error(err)
			return
		}
		out := m.Reply(b)
		if a.half {
			_, _ = c.Write(out[:len(out)/2])
			return
		}
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

func hasOK(d bson.D) bool {
	for _, e := range d {
		if e.Key == "ok" {
			return true
		}
	}
	return false
}

func (f *fakeServer) reply(name string, cmd bson.Raw) answer {
	switch name {
	case "hello", "isMaster", "ismaster":
		addr := f.l.Addr().String()
		return answer{doc: bson.D{
			{Key: "helloOk", Value: true},
			{Key: "isWritablePrimary", Value: true},
			{Key: "ismaster", Value: true},
			{Key: "setName", Value: "rs0"},
			{Key: "hosts", Value: bson.A{addr}},
			{Key: "me", Value: addr},
			{Key: "primary", Value: addr},
			{Key: "setVersion", Value: int32(1)},
			{Key: "electionId", Value: bson.ObjectID{1}},
			{Key: "maxBsonObjectSize", Value: int32(16777216)},
			{Key: "maxMessageSizeBytes", Value: int32(48000000)},
			{Key: "maxWriteBatchSize", Value: int32(100000)},
			{Key: "logicalSessionTimeoutMinutes", Value: int32(30)},
			{Key: "minWireVersion", Value: int32(0)},
			{Key: "maxWireVersion", Value: int32(21)},
		}}
	case "endSessions", "createIndexes", "killCursors":
		return answer{}
	}
	f.mu.Lock()
	script := f.script
	f.mu.Unlock()
	return script(name, cmd)
}
