package zgate

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// SessionStatus is how a session looks to operators.
type SessionStatus struct {
	ID         uint64 `json:"id,string"`
	Generation uint32 `json:"generation"`
	User       string `json:"user"`
	Client     string `json:"client,omitempty"` // what it calls itself
	Remote     string `json:"remote,omitempty"` // of the connection, or the last one
	Away       bool   `json:"away"`             // it has no connection, and waits for its client
	Unread     int    `json:"unread"`           // bytes that wait for the client to read
	Objects    int    `json:"objects"`          // that it is bound to
	Groups     int    `json:"groups"`           // that it is in
}

// Look returns how the sessions are whose user, client or address has match in it, or whose id is match: at most n, by user and id; and how many
// there are of them. It looks at each session, and holds none up for long.
func (g *Gate) Look(match string, n int) (list []SessionStatus, all int) {
	for _, s := range g.sessions.all() {
		x, there := s.status()
		if !there || !x.matches(match) {
			continue
		}
		all++
		list = append(list, x)
		if len(list) > 4*n+64 {
			list = byUser(list, n)
		}
	}
	return byUser(list, n), all
}

func byUser(list []SessionStatus, n int) []SessionStatus {
	slices.SortFunc(list, func(a, b SessionStatus) int { return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.ID, b.ID)) })
	return list[:min(len(list), max(n, 0))]
}

func (s *SessionStatus) matches(match string) bool {
	return strings.Contains(s.User, match) || strings.Contains(s.Client, match) || strings.Contains(s.Remote, match) || strconv.FormatUint(s.ID, 10) == match
}

// status is how the session is; false: it is none of this gate's, or not yet.
func (s *Session) status() (x SessionStatus, there bool) {
	c := s.lock()
	state := s.state
	x.Unread = c.q.queued
	c.q.mu.Unlock()
	if state != stateActive && state != stateSuspended {
		return x, false
	}
	x.ID, x.Generation, x.User, x.Client, x.Away = s.ref.ID, s.ref.Gen, s.user, s.client, state == stateSuspended
	if a := s.RemoteAddr(); a.IsValid() {
		x.Remote = a.String()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x.Objects, x.Groups = len(s.objects), len(s.groups)
	return x, true
}
