package zmsg

import (
	"google.golang.org/protobuf/proto"

	"zgame/zmsg/wirepb"
)

// SessionRoute says where what a session sends with certain message ids goes, ahead of all other routes.
type SessionRoute struct {
	IDs []uint32
	// Actor of any node, or Object: to whom. Neither: the route is taken back.
	Actor  Address
	Object Key
	// By is the object that sets the route, and Version its route version; zero where it is none. Of what one object says the newest owner's counts.
	By      Key
	Version RouteVersion
}

// IsNone reports whether r takes routes back.
func (r *SessionRoute) IsNone() bool { return r.Actor.IsZero() && r.Object == Key{} }

// Encode returns r as the body of an envelope.
func (r *SessionRoute) Encode() ([]byte, error) { return proto.Marshal(r.Wire()) }

// Wire returns r as a message.
func (r *SessionRoute) Wire() *wirepb.SessionRoute {
	return &wirepb.SessionRoute{
		Ids: r.IDs, Node: r.Actor.Node.ID, Epoch: r.Actor.Node.Epoch, Actor: r.Actor.Actor, Object: keyToWire(r.Object), By: keyToWire(r.By),
		Version: uint64(r.Version),
	}
}

// DecodeSessionRoute reads what Encode has written. Errors wrap ErrMalformed.
func DecodeSessionRoute(body []byte) (r SessionRoute, err error) {
	var w wirepb.SessionRoute
	if err := proto.Unmarshal(body, &w); err != nil {
		return r, malformed("session route: " + err.Error())
	}
	return SessionRouteOf(&w), nil
}

// SessionRouteOf returns the route that w is.
func SessionRouteOf(w *wirepb.SessionRoute) SessionRoute {
	return SessionRoute{
		IDs: w.GetIds(), Actor: Address{Node: NodeRef{ID: w.GetNode(), Epoch: w.GetEpoch()}, Actor: w.GetActor()},
		Object: keyOfWire(w.GetObject()), By: keyOfWire(w.GetBy()), Version: RouteVersion(w.GetVersion()),
	}
}

func keyToWire(k Key) *wirepb.ObjectKey {
	if k == (Key{}) {
		return nil
	}
	return &wirepb.ObjectKey{Type: k.Type, Zone: k.Zone, Id: k.ID}
}

func keyOfWire(k *wirepb.ObjectKey) Key {
	return Key{Type: k.GetType(), Zone: k.GetZone(), ID: k.GetId()}
}
