// Command gameserver runs the example game server: see `gameserver help`.
package main

import (
	"zgame/examples/chat"
	"zgame/zcli"
)

func main() { zcli.Main(chat.App(), zcli.Services()) }
