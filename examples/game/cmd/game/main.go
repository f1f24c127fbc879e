// Command game is the game as a server: dev, run, bots and all that zcli offers.
package main

import (
	"zgame/examples/game"
	"zgame/zbots"
	"zgame/zcli"
)

func main() {
	zcli.Main(game.App(), zcli.Services(), zbots.Command(game.Bots()...))
}
