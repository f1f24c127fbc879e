package friend

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/examples/friend/friendpb"
	"zgame/zmsg"
	"zgame/zrouter"
)

// Type is the number of the lists in keys; the id is the user's.
const Type = 110

// again is how long a list waits before it tells another one what that has not confirmed.
const again = 2 * time.Second

type list = zrouter.Context[*friendpb.FriendState]

// Lists is the kind: one list for each user, made when somebody first needs it. Everything is saved before it is told.
func Lists() zrouter.Kind[*friendpb.FriendState] {
	client := []zrouter.HandlerOption{zrouter.FromClients(), zrouter.Durable()}
	return zrouter.Kind[*friendpb.FriendState]{
		Type: Type, Name: "friends", Version: 2,
		Create:     func(zmsg.Key) (*friendpb.FriendState, error) { return &friendpb.FriendState{}, nil },
		Migrate:    migrate,
		OnActivate: activate,
		Handlers: []zrouter.Handler[*friendpb.FriendState]{
			zrouter.Handle(entries, zrouter.FromClients()),
			zrouter.Handle(func(c *list, r *friendpb.Add) (*friendpb.Changed, error) { return edit(c, r.GetUser(), add) }, client...),
			zrouter.Handle(func(c *list, r *friendpb.Accept) (*friendpb.Changed, error) { return edit(c, r.GetUser(), accept) }, client...),
			zrouter.Handle(func(c *list, r *friendpb.Remove) (*friendpb.Changed, error) { return edit(c, r.GetUser(), remove) }, client...),
			zrouter.Handle(func(c *list, r *friendpb.Block) (*friendpb.Changed, error) { return edit(c, r.GetUser(), block) }, client...),
			zrouter.Handle(func(c *list, r *friendpb.Unblock) (*friendpb.Changed, error) { return edit(c, r.GetUser(), unblock) }, client...),
			zrouter.Handle(func(c *list, r *friendpb.Note) (*friendpb.Changed, error) {
				return edit(c, r.GetUser(), note(r.GetText()))
			}, client...),
			zrouter.Handle(heard, zrouter.Durable()),
			zrouter.Handle(flush, zrouter.Durable()),
		},
	}
}

// migrate reads a record of version 1, which had friends by name. That the other one wants it too is heard from his list, which is migrated then.
func migrate(from uint32, raw []byte) (*friendpb.FriendState, error) {
	if from != 1 {
		return nil, fmt.Errorf("a record of version %d: expected 1 or 2", from)
	}
	var old friendpb.FriendStateV1
	if err := proto.Unmarshal(raw, &old); err != nil {
		return nil, err
	}
	s := &friendpb.FriendState{}
	for _, user := range old.GetFriends() {
		p, err := peer(s, user)
		if err != nil {
			return nil, err
		}
		want(s, p, true)
	}
	return s, nil
}

// activate has what a crash has kept the list from telling be told.
func activate(c *list) error {
	tell(c)
	return nil
}

// entries answers with the whole list, whose changes the client is pushed from then on.
func entries(c *list, _ *friendpb.List) (*friendpb.Entries, error) {
	if err := c.Bind(c.Session()); err != nil {
		return nil, err
	}
	all := &friendpb.Entries{}
	for user, p := range c.State().GetPeers() {
		if e := entry(user, p); e.GetStatus() != friendpb.Status_STATUS_NONE || e.GetNote() != "" {
			all.Entries = append(all.Entries, e)
		}
	}
	slices.SortFunc(all.GetEntries(), func(a, b *friendpb.Entry) int { return strings.Compare(a.GetUser(), b.GetUser()) })
	return all, nil
}

// edit is one request of the user about somebody.
func edit(c *list, user string, do func(*friendpb.FriendState, *friendpb.Peer) error) (*friendpb.Changed, error) {
	e, err := change(c.State(), c.Key().ID, user, c.Now().UnixMilli(), do)
	if err != nil {
		return nil, err
	}
	c.Dirty()
	push(c, e)
	tell(c)
	return &friendpb.Changed{Entry: e}, nil
}

// heard is what another list says.
func heard(c *list, m *friendpb.Stance) (*friendpb.Heard, error) {
	p, err := listen(c, m)
	if err != nil {
		return nil, err
	}
	return &friendpb.Heard{Stance: stance(c.Key().ID, m.GetFrom(), p)}, nil
}

func listen(c *list, m *friendpb.Stance) (*friendpb.Peer, error) {
	if m.GetFrom() == "" || m.GetFrom() == c.Key().ID {
		return nil, errBadUser
	}
	p, err := peer(c.State(), m.GetFrom())
	if err != nil {
		return nil, err
	}
	before := entry(m.GetFrom(), p)
	if hear(c.State(), p, m, c.Now().UnixMilli()) {
		c.Dirty()
	}
	if e := entry(m.GetFrom(), p); !proto.Equal(e, before) {
		push(c, e)
	}
	if pending(p) {
		tell(c)
	}
	return p, nil
}

// push tells the user's clients. A gate that does not get it tells its clients of the gap.
func push(c *list, e *friendpb.Entry) {
	if err := c.PushAll(e); err != nil {
		c.Logger().Warn("not pushed", "user", c.Key().ID, "err", err)
	}
}

// tell has the others told what they have not confirmed. Only what is saved is: a list that forgot what it has told would contradict itself. So it
// asks itself first, whose answer comes when all that it holds is saved.
func tell(c *list) {
	if !anyPending(c.State()) {
		return
	}
	zrouter.Then(c, c.Object(c.Key()), &friendpb.Flush{}, func(c *list, saved *friendpb.Flushed, err error) {
		if err != nil {
			tellLater(c, err)
			return
		}
		for _, s := range saved.GetStances() {
			zrouter.Then(c, c.Object(zmsg.Key{Type: Type, Zone: c.Key().Zone, ID: s.GetTo()}), s, func(c *list, a *friendpb.Heard, err error) {
				if err == nil {
					_, err = listen(c, a.GetStance())
				}
				if err != nil {
					tellLater(c, err)
				}
			})
		}
	})
}

func anyPending(s *friendpb.FriendState) bool {
	for _, p := range s.GetPeers() {
		if pending(p) {
			return true
		}
	}
	return false
}

// flush answers with what is to be told.
func flush(c *list, _ *friendpb.Flush) (*friendpb.Flushed, error) {
	f := &friendpb.Flushed{}
	for user, p := range c.State().GetPeers() {
		if pending(p) {
			f.Stances = append(f.Stances, stance(c.Key().ID, user, p))
		}
	}
	return f, nil
}

func tellLater(c *list, err error) {
	if !errors.Is(err, errFull) {
		c.Logger().Debug("not confirmed yet", "user", c.Key().ID, "err", err)
	}
	c.AfterKey("tell", again, tell)
}
