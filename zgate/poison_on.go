//go:build invariants

package zgate

import "bytes"

func poison(buf *bytes.Buffer) {
	b := buf.Bytes()
	b = b[:cap(b)]
	for i := range b {
		b[i] = 0xdb
	}
}
