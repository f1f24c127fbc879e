// Package game is a small game to begin with: a lobby that greets, and tables at which people roll a die.
package game

import (
	"zgame/examples/game/web"
	"zgame/zactor"
	"zgame/znode"
	"zgame/zrouter"
)

// App returns the game as a program for zcli.Main.
func App() znode.App {
	return znode.App{
		Name:    "game",
		Page:    web.Page(),
		Objects: func(*znode.Node) []zrouter.AnyKind { return []zrouter.AnyKind{Tables()} },
		Setup: func(n *znode.Node) error {
			_, err := n.Spawn("lobby", newLobby)
			return err
		},
		Actors: map[string]func() zactor.Actor{"lobby": newLobby},
	}
}
