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

func keyOf(user string) zmsg.Key { return zmsg.Key{Type: Type, ID: user} }

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
			zrouter.Handle(heard, zrouter.Durable()), zrouter.Handle(blocks),
			zrouter.HandleTell(present, zrouter.ByKey(), zrouter.Durable()),
			zrouter.HandleTell(near, zrouter.InServer()),
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

// activate goes on where the list was left, by a move or a crash.
func activate(c *list) error {
	tell(c)
	tellFriends(c)
	_ = c.PushAll(where(c)) // for people who look at the cluster
	return nil
}

// entries answers with the whole list, whose changes the client is pushed from then on, and asks anew which friends are there.
func entries(c *list, _ *friendpb.List) (*friendpb.Entries, error) {
	if err := c.Bind(c.Session()); err != nil {
		return nil, err
	}
	all := &friendpb.Entries{Where: where(c)}
	for user, p := range c.State().GetPeers() {
		if e := entry(user, p); e.GetStatus() != friendpb.Status_STATUS_NONE || e.GetNote() != "" {
			all.Entries = append(all.Entries, e)
		}
		askIfFriend(c, user, p)
	}
	slices.SortFunc(all.GetEntries(), func(a, b *friendpb.Entry) int { return strings.Compare(a.GetUser(), b.GetUser()) })
	return all, nil
}

func where(c *list) *friendpb.Where {
	return &friendpb.Where{Node: c.Self().Address().Node.ID, Version: uint64(c.Version()), PauseMs: float64(c.Moved()) / float64(time.Millisecond)}
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
	askIfFriend(c, user, c.State().GetPeers()[user])
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
		if e.GetStatus() != before.GetStatus() {
			askIfFriend(c, m.GetFrom(), p)
		}
	}
	if pending(p) {
		tell(c)
	}
	return p, nil
}

func blocks(c *list, q *friendpb.Blocks) (*friendpb.Blocks, error) {
	return &friendpb.Blocks{By: q.GetBy(), User: q.GetUser(), Blocked: c.State().GetPeers()[q.GetUser()].GetBlocked()}, nil
}

// BlockedThen tells an object of any kind, in a later turn of it, whether by has blocked user.
func BlockedThen[S any](c *zrouter.Context[S], by, user string, then func(c *zrouter.Context[S], blocked bool, err error)) {
	zrouter.Then(c, c.Object(keyOf(by)), &friendpb.Blocks{By: by, User: user}, func(c *zrouter.Context[S], a *friendpb.Blocks, err error) {
		then(c, a.GetBlocked(), err)
	})
}

// push tells the user's clients. A gate that does not get it tells its clients of the gap.
func push(c *list, e *friendpb.Entry) {
	if err := c.PushAll(e); err != nil {
		c.Logger().Warn("not pushed", "user", c.Key().ID, "err", err)
	}
}

// tell has the others told what they have not confirmed. Only what is saved is: a list that forgot what it has told would contradict itself.
func tell(c *list) {
	var stances []*friendpb.Stance
	for user, p := range c.State().GetPeers() {
		if pending(p) {
			stances = append(stances, stance(c.Key().ID, user, p))
		}
	}
	if len(stances) == 0 {
		return
	}
	c.AfterSave(func(c *list) {
		for _, s := range stances {
			zrouter.Then(c, c.Object(keyOf(s.GetTo())), s, func(c *list, a *friendpb.Heard, err error) {
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

func tellLater(c *list, err error) {
	if !errors.Is(err, errFull) {
		c.Logger().Debug("not confirmed yet", "user", c.Key().ID, "err", err)
	}
	c.AfterKey("tell", again, tell)
}
