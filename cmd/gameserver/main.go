// Command gameserver runs the example game server: see `gameserver help`.
package main

import (
	"zgame/examples/chat"
	"zgame/zcli"
	"zgame/zcli/gen"
)

func main() { zcli.Main(chat.App(), zcli.Services(), gen.Command()) }
