package chat

import (
	"embed"
	"io/fs"

	"zgame/zactor"
	"zgame/znode"
)

//go:embed web/dist
var dist embed.FS

// App returns the example as a program for zcli.Main.
func App() znode.App {
	page, err := fs.Sub(dist, "web/dist")
	if err != nil {
		panic(err) // the directory is compiled in
	}
	return znode.App{
		Name: "zgame chat",
		Page: page,
		Setup: func(n *znode.Node) error {
			_, err := n.Spawn("rooms", func() zactor.Actor { return newRooms(n.Store(), n.Self().ID) })
			return err
		},
		Actors: map[string]func() zactor.Actor{
			"chat.rooms": func() zactor.Actor { return newRooms(nil, "replay") },
		},
	}
}
