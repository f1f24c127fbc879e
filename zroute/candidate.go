package zroute

import (
	"cmp"
	"errors"
	"slices"

	"zgame/zmsg"
)

// ErrNotFound is what a LocalRouter answers when none of the local candidates is for the message: it goes on to the
// remote ones.
var ErrNotFound = errors.New("zroute: no local candidate")

// Target is where a local candidate takes messages. A nil error of Deliver means that it took the message over; an
// error leaves it with the caller. Load is the number of messages that wait. zactor.Ref is one.
type Target = interface {
	Deliver(m *zmsg.Message) error
	Load() int
}

// LocalCandidate is one actor of this node that handles a message id.
type LocalCandidate struct {
	Actor  uint64
	Type   string
	Target Target
	Advert zmsg.Advert // of the id that was asked for
}

// RemoteCandidate is one actor of another node. Adverts are all its ids, sorted, shared and read only.
type RemoteCandidate struct {
	Node    zmsg.NodeRef
	Actor   uint64
	Type    string
	Adverts []zmsg.Advert
}

// Address returns where the candidate is.
func (c *RemoteCandidate) Address() zmsg.Address { return zmsg.Address{Node: c.Node, Actor: c.Actor} }

// Advert returns what the candidate says about the id; ok is false when it does not handle it.
func (c *RemoteCandidate) Advert(id uint32) (ad zmsg.Advert, ok bool) {
	i, ok := slices.BinarySearchFunc(c.Adverts, id, func(a zmsg.Advert, id uint32) int { return cmp.Compare(a.ID, id) })
	if !ok {
		return zmsg.Advert{}, false
	}
	return c.Adverts[i], true
}

func compareRemote(a, b *RemoteCandidate) int {
	return cmp.Or(cmp.Compare(a.Node.ID, b.Node.ID), cmp.Compare(a.Node.Epoch, b.Node.Epoch), cmp.Compare(a.Actor, b.Actor))
}

func equalRemote(a, b RemoteCandidate) bool {
	return a.Node == b.Node && a.Actor == b.Actor && a.Type == b.Type && slices.Equal(a.Adverts, b.Adverts)
}
