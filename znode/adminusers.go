package znode

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"zgame/zmsg"
	"zgame/zuser"
)

// What the admin port has of users; see the table in docs/guide/operations.md.

// UserSession is one session of a user.
type UserSession struct {
	Gate       string `json:"gate"`
	Epoch      uint64 `json:"epoch"`
	ID         uint64 `json:"id"`
	Generation uint32 `json:"generation"`
}

// UserStatus is what the directory knows of a user.
type UserStatus struct {
	User     string        `json:"user"`
	Sessions []UserSession `json:"sessions"` // the oldest first; empty: he is not logged in
}

// serveUser says which sessions a user has, at whatever gates.
func (n *Node) serveUser(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), stopStep)
	defer cancel()
	user := r.PathValue("user")
	refs, err := n.users.Sessions(ctx, user)
	if err != nil && !errors.Is(err, zuser.ErrNotInServer) {
		writeText(w, userError(err), err.Error()+"\n")
		return
	}
	s := UserStatus{User: user, Sessions: make([]UserSession, 0, len(refs))}
	for _, ref := range refs {
		s.Sessions = append(s.Sessions, UserSession{ref.Gate.ID, ref.Gate.Epoch, ref.ID, ref.Gen})
	}
	writeJSON(w, http.StatusOK, s)
}

// kickCode is the close code of who is kicked by an operator who does not say which.
const kickCode = 4000

// Kicked says how many sessions were closed.
type Kicked struct {
	Sessions int `json:"sessions"`
}

// kickUser closes all sessions of a user: with ?code=, of those that are the application's, and ?text=, which the client reads.
func (n *Node) kickUser(w http.ResponseWriter, r *http.Request) {
	q, user, code := r.URL.Query(), r.PathValue("user"), uint64(kickCode)
	if text := q.Get("code"); text != "" {
		var err error
		if code, err = strconv.ParseUint(text, 10, 16); err != nil || code < 4000 || code > 4999 {
			writeText(w, http.StatusBadRequest, fmt.Sprintf("code=%q: expected a close code of the application's, 4000 to 4999\n", text))
			return
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), stopStep)
	defer cancel()
	count, err := n.users.Kick(ctx, user, uint32(code), q.Get("text"))
	if err != nil {
		writeText(w, userError(err), fmt.Sprintf("the user %q: %v\n", user, err))
		return
	}
	n.log.Info("a user was kicked by request at the admin port", "user", user, "code", code, "sessions", count, "from", r.RemoteAddr)
	writeJSON(w, http.StatusOK, Kicked{count})
}

func userError(err error) int {
	switch {
	case errors.Is(err, zuser.ErrNotInServer):
		return http.StatusNotFound
	case errors.Is(err, zmsg.ErrBadRequest):
		return http.StatusBadRequest
	default:
		return http.StatusServiceUnavailable
	}
}
