package chat

import (
	"google.golang.org/protobuf/proto"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
	"zgame/zstore"
)

// rooms serves the rooms that rendezvous on the room's name gives to this node. Every message is one step on a room's
// record (record.go).
type rooms struct {
	store zstore.Store
	node  string
	open  map[string]*room
}

func newRooms(store zstore.Store, node string) *rooms {
	return &rooms{store: store, node: node, open: map[string]*room{}}
}

// Handlers says what the actor understands. What clients send goes to the room's shard.
func (r *rooms) Handlers() []zactor.Handler {
	client := []zactor.HandlerOption{zactor.FromClients(), zactor.Sharded()}
	return []zactor.Handler{
		zactor.Handle(r.join, client...), zactor.Handle(r.leave, client...), zactor.Handle(r.say, client...),
		zactor.Handle(r.who, client...), zactor.HandleTell(r.closed),
	}
}

// join: first the gate's group, then the room. A line that is said in between reaches the client by push and in the
// history, with one seq; no line is in neither.
func (r *rooms) join(c *zactor.Context, req *chatpb.Join) (*chatpb.Joined, error) {
	room, user, session, sessions := req.GetRoom(), c.User(), c.Session(), c.Group().Sessions()
	came, joined := false, &chatpb.Joined{Room: room, Node: r.node}
	return nil, r.do(c, room, &step{
		before: func() error { return sessions.Join(session, group(room)) },
		apply: func(s *chatpb.RoomState) error {
			came = enter(s, user, session) || came
			joined.History, joined.Members = history(s), names(s)
			return nil
		},
		then: func(c *zactor.Context) proto.Message {
			publishIf(c, came, room, &chatpb.Presence{Room: room, User: user, Here: true})
			return joined
		},
	})
}

func (r *rooms) say(c *zactor.Context, req *chatpb.Say) (*chatpb.Said, error) {
	room, session := req.GetRoom(), c.Session()
	line := &chatpb.Line{Room: room, From: c.User(), Text: req.GetText(), AtMs: c.Now().UnixMilli()}
	return nil, r.do(c, room, &step{
		apply: func(s *chatpb.RoomState) error { return say(s, session, line) },
		then: func(c *zactor.Context) proto.Message {
			publishIf(c, true, room, line)
			return &chatpb.Said{Room: room, Seq: line.GetSeq()}
		},
	})
}

func (r *rooms) who(c *zactor.Context, req *chatpb.Who) (*chatpb.Members, error) {
	members := &chatpb.Members{Room: req.GetRoom()}
	return nil, r.do(c, req.GetRoom(), &step{
		apply: func(s *chatpb.RoomState) error { members.Members = names(s); return nil },
		then:  func(*zactor.Context) proto.Message { return members },
	})
}

func (r *rooms) leave(c *zactor.Context, req *chatpb.Leave) (*chatpb.Left, error) {
	return nil, r.do(c, req.GetRoom(), remove(req.GetRoom(), c.Session()))
}

// closed: a session that is a member somewhere has ended.
func (r *rooms) closed(c *zactor.Context, e *wirepb.SessionClosed) error {
	session := zmsg.ClosedSession(e)
	for name, room := range r.open {
		if room.watched[session] {
			r.change(c, room, remove(name, session))
		}
	}
	return nil
}

// remove is the step that takes a session out of a room.
func remove(room string, session zmsg.SessionRef) *step {
	var user string
	var left bool
	return &step{
		apply: func(s *chatpb.RoomState) error {
			if who, last := exit(s, session); who != "" {
				user, left = who, last
			}
			return nil
		},
		then: func(c *zactor.Context) proto.Message {
			_ = c.Leave(session, group(room)) // a session that is gone has left
			publishIf(c, left, room, &chatpb.Presence{Room: room, User: user})
			return &chatpb.Left{Room: room}
		},
	}
}

// publishIf sends msg to the room. What fails is counted by gate and bus; the history has every line.
func publishIf(c *zactor.Context, when bool, room string, msg proto.Message) {
	if !when {
		return
	}
	if err := c.Publish(group(room), msg); err != nil {
		c.Logger().Warn("not published", "room", room, "err", err)
	}
}
