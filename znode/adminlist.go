package znode

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"zgame/internal/adminport"
	"zgame/zgate"
	"zgame/zmsg"
	"zgame/zrouter"
)

// Lists that the admin port has of what may be very much: each is bounded by ?n=; see the table in docs/guide/operations.md.

const (
	defaultListed = 20
	maxListed     = 1000 // bounds ?n=
)

// listed reads ?n=.
func listed(q url.Values) (int, error) {
	text := q.Get("n")
	if text == "" {
		return defaultListed, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxListed {
		return 0, fmt.Errorf("n=%s: expected a number from 1 to %d", text, maxListed)
	}
	return n, nil
}

// serveList answers what list makes of the query, with its ?n=.
func serveList[T any](list func(q url.Values, n int) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		n, err := listed(q)
		var answer T
		if err == nil {
			answer, err = list(q, n)
		}
		if err != nil {
			writeText(w, http.StatusBadRequest, err.Error()+"\n")
			return
		}
		writeJSON(w, http.StatusOK, answer)
	}
}

// SessionsStatus is what a node says of the sessions at its gate to operators.
type SessionsStatus struct {
	All      int                   `json:"all"` // that match
	Sessions []zgate.SessionStatus `json:"sessions"`
}

// listSessions lists the sessions at the gate whose user, client, address or id is ?match=, or has it in it.
func (n *Node) listSessions(q url.Values, most int) (s SessionsStatus, _ error) {
	if n.gate != nil {
		s.Sessions, s.All = n.gate.Look(q.Get("match"), most)
	}
	return s, nil
}

// ObjectsStatus is what a node says of its objects in memory to operators.
type ObjectsStatus struct {
	All     int                    `json:"all"` // that match
	Objects []zrouter.ObjectStatus `json:"objects"`
}

// listObjects lists the objects in memory of the kind ?kind= whose id has ?match= in it, those that were used last first.
func (n *Node) listObjects(q url.Values, most int) (s ObjectsStatus, _ error) {
	s.Objects, s.All = n.objects.set.Residents(q.Get("kind"), q.Get("match"), most)
	return s, nil
}

// listHistory lists which objects came into this node's memory, and left it, with a number above ?since=: the newest, the oldest of them first; with ?id= of that object alone.
func (n *Node) listHistory(q url.Values, most int) ([]zrouter.Passage, error) {
	since := uint64(0)
	if text := q.Get("since"); text != "" {
		var err error
		if since, err = strconv.ParseUint(text, 10, 64); err != nil {
			return nil, fmt.Errorf("since=%s: expected the number of an earlier answer, or 0", text)
		}
	}
	k := zmsg.Key{}
	if q.Has("id") {
		var err error
		if k, err = adminport.KeyIn(q); err != nil {
			return nil, err
		}
	}
	return n.objects.set.History(since, k, most), nil
}
