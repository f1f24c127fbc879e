// Command room is the room as a server.
package main

import (
	"zgame/examples/room"
	"zgame/zcli"
)

func main() { zcli.Main(room.App()) }
