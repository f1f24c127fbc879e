package chat

import (
	"slices"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
	"zgame/zrouter"
)

// Type is the number of the rooms in keys; the id is the room's name.
const Type = 100

type room = zrouter.Context[*chatpb.RoomState]

// Rooms is the kind: one object for each room, made by the first who joins. Nothing is told, by an answer or a push, before it is saved.
func Rooms(o Options) zrouter.Kind[*chatpb.RoomState] {
	o = o.withDefaults()
	client := []zrouter.HandlerOption{zrouter.FromClients(), zrouter.Durable()}
	inside := []zrouter.HandlerOption{zrouter.FromClients(), zrouter.Durable(), zrouter.InServer()} // for who has joined: it makes no room
	return zrouter.Kind[*chatpb.RoomState]{
		Type: Type, Name: "rooms", Version: 1,
		Create:     create,
		OnActivate: activate,
		Handlers: []zrouter.Handler[*chatpb.RoomState]{
			zrouter.Handle(o.join, client...), zrouter.Handle(o.say, inside...), zrouter.Handle(leave, inside...),
			zrouter.Handle(who, inside...), zrouter.Handle(history, inside...),
			zrouter.HandleTell(typing, inside...), zrouter.HandleTell(closed), zrouter.HandleTell(moved),
		},
		Settings: zrouter.Settings{ObjectFreeTimeout: 5 * time.Minute},
	}
}

func create(k zmsg.Key) (*chatpb.RoomState, error) {
	if !roomName.MatchString(k.ID) {
		return nil, errBadRoom
	}
	return &chatpb.RoomState{}, nil
}

// activate goes on where the room was left, by a move or by a crash: its members' sessions are bound again, those that have ended meanwhile are told of,
// and what is saved and may not have been pushed is pushed.
func activate(c *room) error {
	for _, m := range c.State().GetMembers() {
		if err := c.Bind(sessionOf(m)); err != nil {
			return err
		}
	}
	_ = c.PushAll(where(c)) // for people who look at the cluster
	push(c, c.State().GetLast())
	return nil
}

func (o Options) join(c *room, _ *chatpb.Join) (*chatpb.Joined, error) {
	s := c.State()
	if err := c.Bind(c.Session()); err != nil {
		return nil, err
	}
	changed, err := enter(s, c.Key().ID, c.User(), c.Session(), o.Members, c.Now().UnixMilli())
	if err != nil {
		_ = c.Unbind(c.Session())
		return nil, err
	}
	if changed {
		tell(c)
	}
	w := where(c)
	return &chatpb.Joined{Room: c.Key().ID, History: between(s, 0, 0, newestLines), Members: names(s), Node: w.GetNode(), Where: w}, nil
}

func (o Options) say(c *room, req *chatpb.Say) (*chatpb.Said, error) {
	text, err := o.check(c.User(), req.GetText(), req.GetOnce())
	if err != nil {
		return nil, err
	}
	line := &chatpb.Line{Room: c.Key().ID, From: c.User(), Text: text, AtMs: c.Now().UnixMilli(), Once: req.GetOnce()}
	seq, err := speak(c.State(), c.Session(), line, o.pace())
	if err != nil {
		return nil, err
	}
	tell(c)
	return &chatpb.Said{Room: c.Key().ID, Seq: seq}, nil
}

func leave(c *room, _ *chatpb.Leave) (*chatpb.Left, error) {
	if exit(c.State(), c.Key().ID, c.Session(), c.Now().UnixMilli()) {
		tell(c)
	}
	return &chatpb.Left{Room: c.Key().ID}, c.Unbind(c.Session())
}

// closed: the session of a member has ended.
func closed(c *room, e *wirepb.SessionClosed) error {
	if exit(c.State(), c.Key().ID, zmsg.ClosedSession(e), c.Now().UnixMilli()) {
		tell(c)
	}
	return nil
}

// moved: the session of a member goes on at another gate, where it is bound already.
func moved(c *room, m *wirepb.SessionMoved) error {
	if from, to := zmsg.MovedSession(m); rename(c.State(), from, to) {
		c.Dirty()
	}
	return nil
}

func who(c *room, _ *chatpb.Who) (*chatpb.Members, error) {
	return &chatpb.Members{Room: c.Key().ID, Members: names(c.State())}, nil
}

func history(c *room, req *chatpb.History) (*chatpb.Lines, error) {
	s := c.State()
	if find(s, c.Session()) < 0 {
		return nil, errNotMember
	}
	lines := &chatpb.Lines{Room: c.Key().ID, Lines: between(s, req.GetAfter(), req.GetBefore(), someLines)}
	if len(s.GetLines()) > 0 {
		lines.First = s.GetLines()[0].GetSeq()
	}
	return lines, nil
}

// typing goes to the others, as far as they are there and not behind.
func typing(c *room, _ *chatpb.Typing) error {
	if find(c.State(), c.Session()) < 0 {
		return errNotMember
	}
	others := slices.DeleteFunc(c.Sessions(), func(s zmsg.SessionRef) bool { return s == c.Session() })
	_ = c.PushMany(others, &chatpb.Typing{Room: c.Key().ID, User: c.User()}, zactor.Class(zmsg.Volatile)) // nobody asks for it
	return nil
}

// tell has the lines pushed that there are now, when they are saved.
func tell(c *room) {
	c.Dirty()
	last := c.State().GetLast()
	c.AfterSave(func(c *room) { push(c, last) })
}

// push pushes the lines up to last, which are saved, that were not pushed yet. Where that does not go well it does so again, and a client may get a line
// twice; what a client does not get it sees by the numbers.
func push(c *room, last uint64) {
	s := c.State()
	for _, line := range between(s, s.GetTold(), last+1, keptLines) {
		if err := c.PushAll(line); err != nil {
			c.Logger().Debug("not pushed", "room", c.Key().ID, "err", err)
			c.AfterKey("push", time.Second, func(c *room) { push(c, last) })
			return
		}
		s.Told = line.GetSeq() // saved with the next line
	}
}

func where(c *room) *chatpb.Where {
	return &chatpb.Where{
		Room: c.Key().ID, Node: c.Self().Address().Node.ID, Version: uint64(c.Version()), PauseMs: float64(c.Moved()) / float64(time.Millisecond),
	}
}
