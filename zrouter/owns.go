package zrouter

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"zgame/zdiscovery"
	"zgame/zmsg"
)

// owners says which message ids belong to objects, as the list of nodes has it.
type owners struct {
	of   *zdiscovery.Snapshot
	ids  map[uint32]ownedID
	typs map[uint32]bool
}

type ownedID struct {
	typ    uint32
	field  protowire.Number // of the key in the body; 0: the session's user
	client bool
	recall bool      // requests of clients are remembered
	until  time.Time // no node hosts the kind, and it is not forgotten before; zero: one does
}

// goneFor is how long the ids of a kind that no node hosts any more are the kind's still: its nodes are being started again, or cannot be
// seen, and who asks is to try again.
const goneFor = time.Minute

// owned returns the table, made anew where the list has changed.
func (s *ManagerSet) owned() *owners {
	snap := s.members.Nodes()
	old := s.owns.Load()
	if old != nil && old.of == snap {
		return old
	}
	o := newOwners(snap, s.kinds, old, s.clock.Now())
	s.owns.Store(o)
	return o
}

// newOwners is what the list says, after old, which may be nil.
func newOwners(snap *zdiscovery.Snapshot, own map[uint32]*kind, old *owners, now time.Time) *owners {
	o := &owners{of: snap, ids: make(map[uint32]ownedID), typs: make(map[uint32]bool)}
	add := func(typ uint32, ads []zmsg.Advert, recall bool) {
		o.typs[typ] = true
		for _, a := range ads {
			if _, there := o.ids[a.ID]; !there {
				o.ids[a.ID] = ownedID{typ: typ, field: protowire.Number(a.KeyField), client: a.Client, recall: recall}
			}
		}
	}
	for _, k := range own {
		add(k.typ, k.adverts, k.set.ClientDedup > 0)
	}
	for i := range snap.Nodes {
		for _, k := range snap.Nodes[i].Kinds {
			add(k.Type, k.Adverts, k.Recalls)
		}
	}
	if old == nil {
		return o
	}
	for id, was := range old.ids {
		if _, there := o.ids[id]; there || was.over(now) {
			continue
		}
		if was.until.IsZero() {
			was.until = now.Add(goneFor)
		}
		o.ids[id] = was
	}
	return o
}

// over reports that the id is nobody's any more.
func (i *ownedID) over(now time.Time) bool { return !i.until.IsZero() && !now.Before(i.until) }

func (s *ManagerSet) known(typ uint32) bool { return s.owned().typs[typ] }

// onDemand reports whether a request makes objects of the type, where a node hosts it.
func (s *ManagerSet) onDemand(typ uint32) bool {
	if k := s.kinds[typ]; k != nil {
		return k.onDemand
	}
	snap := s.members.Nodes()
	if snap == nil {
		return false
	}
	for i := range snap.Nodes {
		for _, k := range snap.Nodes[i].Kinds {
			if k.Type == typ {
				return k.OnDemand
			}
		}
	}
	return false
}

// Owns reports whether messages of the id are for objects: those of a kind that a node hosts, or has hosted up to a minute ago.
func (s *ManagerSet) Owns(id uint32) bool {
	i, ok := s.owned().ids[id]
	return ok && (i.until.IsZero() || !i.over(s.clock.Now()))
}

var (
	errNoKey  error = &zmsg.Error{Code: zmsg.CodeBadRequest, Outcome: zmsg.NotExecuted, Text: "the message does not say which object it is for: its key field is empty"}
	errNoUser error = &zmsg.Error{Code: zmsg.CodeUnauthorized, Outcome: zmsg.NotExecuted, Text: "the message is for the user's own object: log in first"}
)

// Deliver takes a message whose id belongs to a kind for the object that it names by the field marked (zgame.key). Where its type marks
// none, or the field is empty, it is for the object of the kind that the client's session is bound to, and where it is to none, and the type marks
// none, for that of the session's user. Errors: as DeliverObject, so ErrNoNode where the last node that hosted the kind has just gone; zmsg.ErrNoRoute
// where no node hosts such a kind, or clients may not send the id; zmsg.ErrBadRequest, CodeUnauthorized where no object is named.
func (s *ManagerSet) Deliver(m *zmsg.Message) error {
	id, ok := s.owned().ids[m.ID]
	if !ok || m.Client && !id.client {
		return zmsg.ErrNoRoute
	}
	k := zmsg.Key{Type: id.typ}
	if id.field == 0 {
		if bound, ok := s.boundKey(m, id.typ); ok {
			return s.DeliverObject(bound, m)
		}
		if k.ID = m.User; k.ID == "" {
			return errNoUser
		}
		return s.DeliverObject(k, m)
	}
	var err error
	if k.ID, err = id.named(m); err != nil {
		return err
	}
	if k.ID == "" {
		if k, ok = s.boundKey(m, id.typ); !ok {
			return errNoKey
		}
	}
	return s.DeliverObject(k, m)
}

// named returns the id of the object that m names in its body, "" where it names none.
func (i *ownedID) named(m *zmsg.Message) (string, error) {
	body, err := m.EncodedBody()
	if err != nil {
		return "", &zmsg.Error{Code: zmsg.CodeBadRequest, Outcome: zmsg.NotExecuted, Text: err.Error()}
	}
	raw, num, ok := zmsg.FieldKey(body, i.field)
	switch {
	case !ok:
		return "", nil
	case raw != nil:
		return string(raw), nil
	default:
		return strconv.FormatUint(num, 10), nil
	}
}

// DeliverResent is Deliver for a request that its client has sent before, at a gate that is gone: it may have run. The object runs it if it has not, and
// answers as it has answered if it has. Only one that says where it belongs by itself, and is of a kind that remembers (Settings.ClientDedup), is
// taken; of another the error is of CodeUnknownOutcome. Other errors, and outcomes, that say that it did not run say that of this time alone.
func (s *ManagerSet) DeliverResent(m *zmsg.Message) error {
	id, ok := s.owned().ids[m.ID]
	if !ok || !id.client || !id.recall || id.field == 0 { // for the user, or for an object to which the session was bound: who knows now
		return errMayRan
	}
	name, err := id.named(m)
	if err != nil || name == "" {
		return errMayRan
	}
	m.Resent = true
	return s.DeliverObject(zmsg.Key{Type: id.typ, ID: name}, m)
}

// boundKey returns the object of a type that the session is bound to from which m comes.
func (s *ManagerSet) boundKey(m *zmsg.Message, typ uint32) (zmsg.Key, bool) {
	if !m.Client || m.Session.IsZero() {
		return zmsg.Key{}, false
	}
	return s.gates.BoundKey(m.Session, typ)
}

// Kinds returns what the node's record says of the kinds that the set hosts, sorted by type.
func (s *ManagerSet) Kinds() []zdiscovery.Kind {
	out := make([]zdiscovery.Kind, 0, len(s.kinds))
	for _, k := range s.kinds {
		out = append(out, zdiscovery.Kind{Type: k.typ, Name: k.name, Adverts: k.adverts, OnDemand: k.onDemand, Schema: k.version, Recalls: k.set.ClientDedup > 0})
	}
	slices.SortFunc(out, func(a, b zdiscovery.Kind) int { return cmp.Compare(a.Type, b.Type) })
	return out
}
