// Package proto holds the framework's .proto files, for programs that compile protocols which import them.
package proto

import "embed"

// Files holds zgame/options.proto and what else protocols may import.
//
//go:embed zgame
var Files embed.FS
