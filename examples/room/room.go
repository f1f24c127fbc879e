// Package room is a chat room and nothing else: saved, found from every node, moved while people talk. The chat example has what people expect besides.
package room

import (
	"zgame/examples/chat/chatpb"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/zrouter"
)

type room = zrouter.Context[*chatpb.RoomState]

// App is the program.
func App() znode.App {
	return znode.App{Name: "room", Objects: func(*znode.Node) []zrouter.AnyKind {
		return []zrouter.AnyKind{zrouter.Kind[*chatpb.RoomState]{
			Type: 100, Name: "rooms", Version: 1,
			Create:   func(zmsg.Key) (*chatpb.RoomState, error) { return &chatpb.RoomState{}, nil },
			Handlers: []zrouter.Handler[*chatpb.RoomState]{zrouter.Handle(join, zrouter.FromClients()), zrouter.Handle(say, zrouter.FromClients())},
		}}
	}}
}

func join(c *room, _ *chatpb.Join) (*chatpb.Joined, error) {
	return &chatpb.Joined{Room: c.Key().ID, History: c.State().GetLines()}, c.Bind(c.Session())
}

func say(c *room, req *chatpb.Say) (*chatpb.Said, error) {
	s := c.State()
	s.Last++
	line := &chatpb.Line{Room: c.Key().ID, Seq: s.GetLast(), From: c.User(), Text: req.GetText()}
	s.Lines = append(s.GetLines(), line)[max(0, len(s.GetLines())-99):]
	c.Save()                                           // the answer waits for that,
	c.AfterSave(func(c *room) { _ = c.PushAll(line) }) // and so do the others: no crash takes back what they have read
	return &chatpb.Said{Room: c.Key().ID, Seq: s.GetLast()}, nil
}
