// Command friend is the friend example as a game server of its own: dev, run and all that zcli offers.
package main

import (
	"zgame/examples/friend"
	"zgame/zcli"
)

func main() { zcli.Main(friend.App(), zcli.Services()) }
