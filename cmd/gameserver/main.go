// Command gameserver runs the example game server: see `gameserver help`.
package main

import (
	"zgame/examples"
	"zgame/zbots"
	"zgame/zcli"
	"zgame/zcli/gen"
)

func main() {
	zcli.Main(examples.App(), zcli.Services(), gen.Command(), zbots.Command(examples.Bots()...))
}
