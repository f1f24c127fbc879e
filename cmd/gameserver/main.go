// Command gameserver runs the example game server: see `gameserver help`.
package main

import (
	"zgame/examples"
	"zgame/examples/chat/bots"
	"zgame/zbots"
	"zgame/zcli"
	"zgame/zcli/gen"
	"zgame/zcli/scaffold"
)

func main() {
	zcli.Main(examples.App(), scaffold.Command(examples.Samples()...), gen.Command(), zcli.Services(), zbots.Command(bots.Scripts()...))
}
