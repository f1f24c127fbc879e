//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"time"

	"zgame/test/chaos/chaospb"
	"zgame/test/chaos/notes"
	"zgame/test/chaos/oracle"
	"zgame/test/chaos/seam"
	"zgame/zmsg"
	"zgame/zrouter"
)

// lists is the kind of the chaos tests on one node.
type lists struct {
	notes *notes.Notes
	seam  *seam.Process
}

type listContext = zrouter.Context[*chaospb.List]

func (l *lists) kind() zrouter.AnyKind {
	durable, delay := zrouter.On, 500*time.Millisecond
	if os.Getenv("CHAOS_DURABLE") == "false" { // it tells before it has saved
		durable, delay = zrouter.Off, 3*time.Second
	}
	return zrouter.Kind[*chaospb.List]{
		Type: chaospb.ListType, Name: "list", Version: 1,
		Create: func(zmsg.Key) (*chaospb.List, error) { return &chaospb.List{}, nil },
		Handlers: []zrouter.Handler[*chaospb.List]{
			zrouter.Handle(l.add, zrouter.FromClients()), zrouter.Handle(l.read, zrouter.FromClients()), zrouter.Handle(l.watch, zrouter.FromClients()),
		},
		OnHandoff:    l.handoff,
		OnAdopt:      l.adopt,
		OnActivate:   func(c *listContext) error { l.seam.Reach(seam.Activate, c.Key().ID); return nil },
		OnDeactivate: func(c *listContext, _ zrouter.Reason) { l.seam.Reach(seam.Deactivate, c.Key().ID) },
		Settings:     zrouter.Settings{Durable: durable, Dedup: 512, SaveDelay: delay},
	}
}

func (l *lists) add(c *listContext, req *chaospb.Append) (*chaospb.Appended, error) {
	s, op, version := c.State(), req.GetOp(), uint64(c.Version())
	l.notes.Begin(c.Key().ID, op, version, slices.Contains(s.GetOps(), op))
	defer l.notes.End(c.Key().ID, op, version)
	if w := req.GetWorkUs(); w > 0 {
		<-time.After(time.Duration(w) * time.Microsecond)
	}
	s.Ops, s.Hash = append(s.Ops, op), oracle.Chain(s.GetHash(), op)
	c.Dirty()
	if err := c.PushAll(&chaospb.Added{List: c.Key().ID, Op: op}); err != nil {
		fmt.Fprintln(os.Stderr, "a push is not sent:", err) // a client that misses it says so
	}
	return &chaospb.Appended{Len: uint64(len(s.GetOps())), Hash: s.GetHash(), Version: version}, nil
}

func (l *lists) read(c *listContext, req *chaospb.Read) (*chaospb.Content, error) {
	s := c.State()
	answer := &chaospb.Content{Len: uint64(len(s.GetOps())), Hash: s.GetHash(), Version: uint64(c.Version())}
	if req.GetAll() {
		answer.Ops = slices.Clone(s.GetOps())
	}
	return answer, nil
}

func (l *lists) watch(c *listContext, _ *chaospb.Watch) (*chaospb.Content, error) {
	if err := c.Bind(c.Session()); err != nil {
		return nil, err
	}
	return l.read(c, &chaospb.Read{})
}

// handoff gives the new owner the hash of the list to see that it gets just that.
func (l *lists) handoff(c *listContext) ([]byte, error) {
	l.seam.Reach(seam.Handoff, c.Key().ID)
	return binary.BigEndian.AppendUint64(nil, c.State().GetHash()), nil
}

func (l *lists) adopt(c *listContext, attachment []byte) error {
	l.seam.Reach(seam.Adopt, c.Key().ID)
	if want := binary.BigEndian.AppendUint64(nil, c.State().GetHash()); !bytes.Equal(attachment, want) {
		l.notes.Fault("%s came with the attachment %x to version %d, whose state wants %x", c.Key(), attachment, c.Version(), want)
	}
	if p := c.Private(); len(p) > 0 && string(p) != c.Key().ID {
		l.notes.Fault("%s came with the private argument %q", c.Key(), p)
	}
	return nil
}
