package zbus

import "strings"

const hexDigits = "0123456789abcdef"

// Token makes one token of a subject from any string: letters, digits and '-' stay, every other byte becomes '_' and
// two hex digits. Different strings give different tokens.
func Token(s string) string {
	if s == "" {
		return "_"
	}
	plain := true
	for i := range len(s) {
		plain = plain && tokenByte(s[i])
	}
	if plain {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	for i := range len(s) {
		if c := s[i]; tokenByte(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('_')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	return b.String()
}

func tokenByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-'
}
