package znode

import (
	"fmt"
	"net/http"
	"strconv"

	"zgame/zactor"
)

// ActorsStatus is what a node says of its actors to operators.
type ActorsStatus struct {
	All      int              `json:"all"` // that match
	Actors   []zactor.Status  `json:"actors"`
	Failures []zactor.Failure `json:"failures"` // of any actor, the newest first
}

// maxActors bounds ?n= of /actors.
const maxActors = 1000

// serveActors lists the actors whose name or type has ?match= in it, those with the fullest mailboxes first, at most ?n= (20).
func (n *Node) serveActors(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	most := 20
	if text := q.Get("n"); text != "" {
		v, err := strconv.Atoi(text)
		if err != nil || v < 1 || v > maxActors {
			writeText(w, http.StatusBadRequest, fmt.Sprintf("n=%s: expected a number from 1 to %d\n", text, maxActors))
			return
		}
		most = v
	}
	s := ActorsStatus{Failures: n.group.Failures()}
	s.Actors, s.All = n.group.Actors(q.Get("match"), most)
	writeJSON(w, http.StatusOK, s)
}
