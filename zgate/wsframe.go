package zgate

import (
	"encoding/binary"
	"unicode/utf8"

	"github.com/gorilla/websocket"
)

// Opcodes of RFC 6455 section 5.2, as gorilla numbers its message types.
const (
	opText   = websocket.TextMessage
	opBinary = websocket.BinaryMessage
	opClose  = websocket.CloseMessage
	opPing   = websocket.PingMessage
	opPong   = websocket.PongMessage
)

// maxReason is what a close frame holds beside the code: 125 bytes of control payload less 2.
const maxReason = 123

// appendWSHeader appends the header of an unfragmented, unmasked (a server's) websocket frame with n bytes of payload.
func appendWSHeader(dst []byte, op, n int) []byte {
	b0 := byte(0x80 | op)
	switch {
	case n < 126:
		return append(dst, b0, byte(n))
	case n < 1<<16:
		return append(dst, b0, 126, byte(n>>8), byte(n))
	default:
		return binary.BigEndian.AppendUint64(append(dst, b0, 127), uint64(n))
	}
}

// wsHeaderSize is how much appendWSHeader appends.
func wsHeaderSize(n int) int {
	switch {
	case n < 126:
		return 2
	case n < 1<<16:
		return 4
	default:
		return 10
	}
}

// appendWSClose appends a close frame. Code 0 makes one without a status, which answers one without.
func appendWSClose(dst []byte, code CloseCode, reason string) []byte {
	if code == 0 {
		return appendWSHeader(dst, opClose, 0)
	}
	reason = cut(reason, maxReason)
	dst = appendWSHeader(dst, opClose, 2+len(reason))
	dst = append(dst, byte(code>>8), byte(code))
	return append(dst, reason...)
}

// cut returns s as UTF-8 of at most n bytes, without a torn character at its end.
func cut(s string, n int) string {
	if !utf8.ValidString(s) {
		s = string([]rune(s)) // each bad byte becomes U+FFFD
	}
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
