package zconsole

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// role is what somebody may do. A higher one may do what a lower one may.
type role uint8

const (
	nobody   role = iota
	reader        // looks
	operator      // acts
)

var roleNames = [...]string{"nobody", "reader", "operator"}

func (r role) String() string { return roleNames[r] }

// token is what the bearer of a token may do. What is kept of it has one length, so that a comparison tells nothing of it.
type token struct {
	hash [sha256.Size]byte
	role role
}

// CheckTokens says what is wrong with a console's tokens. None at all are no fault.
func CheckTokens(read, operate string) error {
	var errs []error
	for _, t := range []struct{ key, value string }{{"console.read_token", read}, {"console.operator_token", operate}} {
		if t.value != "" && len(t.value) < MinToken {
			errs = append(errs, fmt.Errorf("%s: expected at least %d characters, such as what `openssl rand -hex 16` prints", t.key, MinToken))
		}
	}
	if read != "" && read == operate {
		errs = append(errs, errors.New("console.read_token is console.operator_token: expected two different ones"))
	}
	return errors.Join(errs...)
}

func tokens(read, operate string) (all []token) {
	for text, r := range map[string]role{read: reader, operate: operator} {
		if text != "" {
			all = append(all, token{sha256.Sum256([]byte(text)), r})
		}
	}
	return all
}

// roleFor returns what the bearer of a token may do. It compares with every token, always in the same time.
func (c *Console) roleFor(text string) (r role) {
	hash := sha256.Sum256([]byte(text))
	for i := range c.tokens {
		r |= role(subtle.ConstantTimeCompare(hash[:], c.tokens[i].hash[:])) * c.tokens[i].role
	}
	return r
}

type roleKey struct{}

func roleOf(r *http.Request) role {
	is, _ := r.Context().Value(roleKey{}).(role)
	return is
}

// as lets those in who may do what least may. The token stands in a header that no browser sends by itself, and no page of another origin can set: a
// request that somebody was led into has none.
func (c *Console) as(least role, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		is := c.roleFor(text)
		switch {
		case is == nobody:
			if text != "" {
				if suppressed, ok := c.wrong.Allow(time.Now()); ok {
					c.log.Warn("console: a wrong token", "from", r.RemoteAddr, "suppressed", suppressed)
				}
			}
			writeError(w, &apiError{http.StatusUnauthorized, "expected the header Authorization: Bearer TOKEN, with console.read_token or console.operator_token of this node's settings"})
		case is < least:
			if suppressed, ok := c.refused.Allow(time.Now()); ok {
				c.log.Warn("console: refused, for a reader", "path", r.URL.Path, "from", r.RemoteAddr, "suppressed", suppressed)
			}
			writeError(w, &apiError{http.StatusForbidden, "this is for operators: it needs console.operator_token"})
		default:
			h(w, r.WithContext(context.WithValue(r.Context(), roleKey{}, is)))
		}
	}
}
