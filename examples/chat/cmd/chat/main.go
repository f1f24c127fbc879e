// Command chat is the chat example as a game server of its own: dev, run, bots and all that zcli offers.
package main

import (
	"zgame/examples/chat"
	"zgame/examples/chat/bots"
	"zgame/zbots"
	"zgame/zcli"
)

func main() {
	zcli.Main(chat.App(), zcli.Services(), zbots.Command(bots.Scripts()...))
}
