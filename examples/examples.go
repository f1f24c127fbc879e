// Package examples is the examples in one program, as the command gameserver runs them. Each has a main.go of its own too: chat/cmd/chat, friend/cmd/friend.
package examples

import (
	"slices"

	"zgame/examples/chat"
	"zgame/examples/chat/chatpb"
	"zgame/examples/friend"
	"zgame/znode"
	"zgame/zrouter"
)

// App returns chat and friends as one program for zcli.Main.
func App() znode.App {
	app, friends := chat.With(chat.Options{Blocked: friend.BlockedThen[*chatpb.Box]}), friend.App()
	rooms := app.Objects
	app.Name = "zgame examples"
	app.Objects = func(n *znode.Node) []zrouter.AnyKind { return slices.Concat(rooms(n), friends.Objects(n)) }
	app.Presence = friends.Presence
	return app
}
