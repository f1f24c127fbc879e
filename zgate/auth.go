package zgate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"unicode"
	"unicode/utf8"
)

// Hello is what a client says of itself when it connects.
type Hello struct {
	Token      string         // proof of who the client is; never logged
	Client     string         // name and version of the client library, at most 64 bytes
	RemoteAddr netip.AddrPort // of the connection; zero where it has none
}

// Authenticator decides who a client is: it returns the id of the user, which must not be empty, or an error.
//
// An error that is (or wraps) a *zmsg.Error tells the client its text; any other tells it nothing. The context ends
// after Config.AuthTimeout, or when the gate shuts down. Calls come from many goroutines at once and may block.
type Authenticator interface {
	Authenticate(ctx context.Context, h Hello) (user string, err error)
}

// AuthFunc makes an Authenticator of a function.
type AuthFunc func(ctx context.Context, h Hello) (user string, err error)

// Authenticate calls f.
func (f AuthFunc) Authenticate(ctx context.Context, h Hello) (string, error) { return f(ctx, h) }

// ErrBadName is what DevAuth says of a token that is no name.
var ErrBadName = errors.New("zgate: not a name")

// DevAuth believes everybody: the token is the name of the user. It is for development only. A name has 1 to 32
// characters: letters, digits, spaces between them, and any of "-_.@".
type DevAuth struct{}

// Authenticate returns the token. Errors: ErrBadName.
func (DevAuth) Authenticate(_ context.Context, h Hello) (string, error) {
	name := h.Token
	if n := utf8.RuneCountInString(name); n == 0 || n > 32 || !utf8.ValidString(name) {
		return "", fmt.Errorf("%w: expected 1 to 32 characters", ErrBadName)
	}
	for i, r := range name {
		inside := i > 0 && i+utf8.RuneLen(r) < len(name)
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), unicode.IsMark(r) && i > 0:
		case r == '-' || r == '_' || r == '.' || r == '@':
		case r == ' ' && inside:
		default:
			return "", fmt.Errorf("%w: %q is not a letter, a digit or one of -_.@", ErrBadName, r)
		}
	}
	return name, nil
}
