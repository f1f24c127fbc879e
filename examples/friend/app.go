package friend

import (
	"zgame/examples/web"
	"zgame/znode"
	"zgame/zrouter"
)

// App returns the example as a program for zcli.Main.
func App() znode.App {
	return znode.App{
		Name:     "zgame friend",
		Objects:  func(*znode.Node) []zrouter.AnyKind { return []zrouter.AnyKind{Lists()} },
		Presence: []uint32{Type},
		Page:     web.Page(),
	}
}
