package ferret

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"

	"zgame/internal/mongowire"
)

// Fault is what the proxy does with one command.
type Fault uint8

// The faults.
const (
	Pass       Fault = iota
	NotPrimary       // answer NotWritablePrimary, and do not pass the command on
	CutBefore        // close the connection, and do not pass the command on
	CutReply         // pass it on, then send half of the reply and close the connection
	DropReply        // pass it on, then close the connection
)

// Proxy stands between MongoDB clients and a server of the protocol. It lets one writing command through at a time and
// injects faults.
type Proxy struct {
	target string
	l      net.Listener
	wg     sync.WaitGroup
	write  sync.Mutex // held from the request to the reply of a writing command

	mu     sync.Mutex
	faults func(command string) Fault // guarded by mu
	conns  map[net.Conn]struct{}      // guarded by mu; nil when stopped
}

// NewProxy starts a proxy on a free port of loopback, for the server at target.
func NewProxy(target string) (*Proxy, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("ferret: %w", err)
	}
	p := &Proxy{target: target, l: l, conns: map[net.Conn]struct{}{}}
	p.wg.Go(p.accept) // ends when Stop closes the listener; Stop waits
	return p, nil
}

// URI is where clients connect.
func (p *Proxy) URI() string { return "mongodb://" + p.l.Addr().String() + "/" }

// SetFaults makes f decide what happens to each command from now on; nil ends all faults. It is called from many
// goroutines.
func (p *Proxy) SetFaults(f func(command string) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = f
}

// Stop closes all connections and waits for the goroutines.
func (p *Proxy) Stop() {
	p.mu.Lock()
	_ = p.l.Close()
	for c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(c) }) // ends when either side, or Stop, closes the connection; Stop waits
	}
}

// keep registers a connection for Stop; false when it came too late.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		_ = c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) drop(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) serve(client net.Conn) {
	if !p.keep(client) {
		return
	}
	defer p.drop(client)
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.target)
	if err != nil || !p.keep(server) {
		return
	}
	defer p.drop(server)
	for {
		req, err := mongowire.Read(client)
		if err != nil {
			return
		}
		reply, fault := p.pass(req, server)
		switch {
		case fault == CutReply:
			_, _ = client.Write(reply[:len(reply)/2])
			return
		case fault == CutBefore, fault == DropReply, reply == nil:
			return
		case req.MoreToCome():
			continue
		}
		if _, err := client.Write(reply); err != nil {
			return
		}
	}
}

// pass carries one command to the server and returns its reply, nil where there is none.
func (p *Proxy) pass(req mongowire.Message, server net.Conn) (mongowire.Message, Fault) {
	name := req.Name()
	fault := p.fault(name)
	switch {
	case fault == NotPrimary:
		return req.Reply(notPrimary), fault
	case fault == CutBefore:
		return nil, fault
	case name == "createIndexes" && needsRealServer(req):
		return req.Reply(fine), fault
	}
	if writes(name) {
		p.write.Lock()
		defer p.write.Unlock()
	}
	if _, err := server.Write(req); err != nil {
		return nil, fault
	}
	reply, err := mongowire.Read(server)
	if err != nil {
		return nil, fault
	}
	return reply, fault
}

func (p *Proxy) fault(name string) Fault {
	p.mu.Lock()
	f := p.faults
	p.mu.Unlock()
	if f == nil {
		return Pass
	}
	return f(name)
}

// writes reports whether a command changes documents or collections.
func writes(name string) bool {
	switch name {
	case "insert", "update", "delete", "findAndModify", "findandmodify", "create", "createIndexes", "drop", "dropDatabase", "dropIndexes":
		return true
	}
	return false
}

// needsRealServer reports options of an index that FerretDB refuses. The command is small and the names are not others'.
func needsRealServer(req mongowire.Message) bool {
	return bytes.Contains(req, []byte("expireAfterSeconds")) || bytes.Contains(req, []byte("partialFilterExpression"))
}

var (
	fine       = document(bson.D{{Key: "ok", Value: 1.0}})
	notPrimary = document(bson.D{
		{Key: "ok", Value: 0.0},
		{Key: "errmsg", Value: "not primary"},
		{Key: "code", Value: int32(10107)},
		{Key: "codeName", Value: "NotWritablePrimary"},
		{Key: "topologyVersion", Value: bson.D{{Key: "processId", Value: bson.ObjectID{}}, {Key: "counter", Value: int64(0)}}},
	})
)

func document(d bson.D) []byte {
	b, err := bson.Marshal(d)
	if err != nil {
		panic(err) // a literal above
	}
	return b
}
