package adminport

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"zgame/zmsg"
)

// ObjectRoute is where an object lives.
type ObjectRoute struct {
	Owner   string            `json:"owner"` // "" for nobody
	Epoch   uint64            `json:"epoch"`
	Version zmsg.RouteVersion `json:"version"`
}

// Node is the owner.
func (r *ObjectRoute) Node() zmsg.NodeRef { return zmsg.NodeRef{ID: r.Owner, Epoch: r.Epoch} }

// Find says where an object lives, as any node finds it.
func (c *Cluster) Find(ctx context.Context, k zmsg.Key) (route ObjectRoute, err error) {
	address, err := c.Any(ctx)
	if err != nil {
		return route, err
	}
	return route, Fetch(ctx, address, http.MethodGet, ObjectPath(k), &route)
}

// Moved is what a Move has done.
type Moved struct {
	From ObjectRoute   `json:"from"`
	To   ObjectRoute   `json:"to"` // the same: it was there already
	Took time.Duration `json:"took"`
}

// moveRounds is how often a move is asked for: somebody else may move the object meanwhile.
const moveRounds = 4

// Move has the node that has an object in memory give it to the node called to. Errors say what to do; where no answer came the move may have happened.
func (c *Cluster) Move(ctx context.Context, k zmsg.Key, to string) (*Moved, error) {
	for range moveRounds {
		from, err := c.Find(ctx, k)
		switch {
		case err != nil:
			return nil, err
		case from.Owner == "":
			return nil, errors.New("nobody has it in memory, so there is nothing to move: the next request to it decides where it lives")
		case from.Owner == to:
			return &Moved{From: from, To: from}, nil
		}
		address, err := c.Of(from.Owner)
		if err != nil {
			return nil, err
		}
		m, began := Moved{From: from}, time.Now()
		err = Fetch(ctx, address, http.MethodPost, ObjectPath(k)+"/move?to="+url.QueryEscape(to), &m.To)
		if err == nil {
			m.Took = time.Since(began)
			return &m, nil
		}
		switch s, answered := errors.AsType[*StatusError](err); {
		case !answered && ctx.Err() == nil:
			return nil, fmt.Errorf("the node %s, which has it, cannot be asked: %w\n  where its process has died, others take over what it had when its lease has ended (etcd.lease): try again then", from.Owner, err)
		case !answered || s.Status != http.StatusConflict || ctx.Err() != nil:
			return nil, err
		}
		// Who was asked has not got it any more, or refuses: the next look says which.
		if again, lookErr := c.Find(ctx, k); lookErr != nil || again.Version == from.Version {
			return nil, err
		}
	}
	return nil, errors.New("others move it all the time; nothing was done")
}
