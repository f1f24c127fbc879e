package znode

import (
	"net/url"

	"zgame/zactor"
	"zgame/zmsg"
)

// ActorsStatus is what a node says of its actors to operators.
type ActorsStatus struct {
	Node     zmsg.NodeRef     `json:"node"`
	All      int              `json:"all"` // that match
	Actors   []zactor.Status  `json:"actors"`
	Failures []zactor.Failure `json:"failures"` // of any actor, the newest first
}

// listActors lists the actors whose name or type has ?match= in it, those with the fullest mailboxes first.
func (n *Node) listActors(q url.Values, most int) (ActorsStatus, error) {
	s := ActorsStatus{Node: n.Self(), Failures: n.group.Failures()}
	s.Actors, s.All = n.group.Actors(q.Get("match"), most)
	return s, nil
}
