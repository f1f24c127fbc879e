//go:build !invariants

package zgate

import "bytes"

func poison(*bytes.Buffer) {}
