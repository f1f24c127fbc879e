package zuser

import (
	"context"
	"errors"

	"zgame/zmsg"
	"zgame/zrouter"
)

// OnlineServer is the hook PullOnlineServer for a kind without Create whose objects are users' (their ids are the users'), and come into memory when these
// log in: who asks for one that nobody has by the record that was read is told by it whether that will change.
//
//	PullOnlineServer: func(ctx context.Context, k zmsg.Key) (zrouter.Route, error) { return n.Users().OnlineServer(ctx, k) },
//
// The user is not there: nobody has it, and the request ends with ErrNotInServer. He is: the record is read anew, since his login may have had the object
// claimed meanwhile, and the request follows its owner. Nobody has claimed it yet: ErrAgain, so that the request asks again, and ends as unavailable, which
// may be sent again, where that does not help. Errors: ErrAgain; those of Presence and of zrouter.ManagerSet.Recorded.
//
// Presence says whether, the record says where: only the record has the route version by which an owner can be told from an older one.
func (u *Users) OnlineServer(ctx context.Context, k zmsg.Key) (zrouter.Route, error) {
	p, err := u.Presence(ctx, k.ID)
	switch {
	case errors.Is(err, ErrNotInServer), err == nil && !p.GetOnline():
		return zrouter.Route{}, nil
	case err != nil:
		return zrouter.Route{}, err
	}
	r, err := u.set.Recorded(ctx, k)
	if err == nil && r.Owner.IsZero() || errors.Is(err, zrouter.ErrNotFound) {
		return zrouter.Route{}, zrouter.ErrAgain
	}
	return r, err
}
