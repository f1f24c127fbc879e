package examples

import (
	"embed"

	"zgame/zcli/scaffold"
)

// The sources that new back ends begin with are those that are built and tested here.
//
//go:embed chat friend game web
var sources embed.FS

// Samples are the back ends that the command new makes. The first one is the default.
func Samples() []scaffold.Sample {
	sample := func(name, help, pkg, page string) scaffold.Sample {
		return scaffold.Sample{Name: name, Help: help, Files: sources, Import: "zgame/examples", Package: pkg, Page: page}
	}
	return []scaffold.Sample{
		sample("empty", "a lobby, and tables at which people roll a die: the least that shows all parts", "game", "game/web"),
		sample("chat", "rooms and whispers", "chat", "web"),
		sample("friend", "lists of friends who see when the others are there", "friend", "web"),
	}
}
