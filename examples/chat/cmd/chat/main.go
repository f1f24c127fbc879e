// Command chat is the chat example as a game server of its own: dev, run and all that zcli offers.
package main

import (
	"zgame/examples/chat"
	"zgame/zcli"
)

func main() { zcli.Main(chat.App()) }
