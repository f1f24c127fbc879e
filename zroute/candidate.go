package zroute

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"zgame/zdiscovery"
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

// RemoteCandidate is one actor of another node, with what its node's record says. Adverts are all its ids, sorted; they and
// Labels are shared and read only.
type RemoteCandidate struct {
	seed uint64 // of its scores; 0: not known yet, for candidates that Remote did not make

	Node    zmsg.NodeRef
	Actor   uint64
	Type    string
	Adverts []zmsg.Advert

	State   zdiscovery.State // Ready, or Draining where a strategy asked for those too
	Zone    string
	Version string
	Weight  uint32 // 0 counts as zdiscovery.DefaultWeight
	Load    uint32 // 1000 is all the node has; as old as its record
	Labels  map[string]string
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

func (c *RemoteCandidate) scoreSeed() uint64 {
	if c.seed != 0 {
		return c.seed
	}
	return scoreSeed(c.Node.ID, c.Actor)
}

func (c *RemoteCandidate) weight() uint32 {
	if c.Weight == 0 {
		return zdiscovery.DefaultWeight
	}
	return c.Weight
}

func compareRemote(a, b *RemoteCandidate) int {
	return cmp.Or(cmp.Compare(a.Node.ID, b.Node.ID), cmp.Compare(a.Node.Epoch, b.Node.Epoch), cmp.Compare(a.Actor, b.Actor))
}

func equalRemote(a, b RemoteCandidate) bool { return a.Load == b.Load && equalPlace(a, b) }

// equalPlace is equalRemote for strategies that do not look at loads.
func equalPlace(a, b RemoteCandidate) bool {
	return a.Node == b.Node && a.Actor == b.Actor && a.Type == b.Type && a.State == b.State && a.Zone == b.Zone &&
		a.Version == b.Version && a.Weight == b.Weight &&
		equalAdverts(a.Adverts, b.Adverts) && maps.Equal(a.Labels, b.Labels)
}

// equalAdverts looks at the adverts only where they are not the very same: a record that did not change is shared by all lists.
func equalAdverts(a, b []zmsg.Advert) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}
