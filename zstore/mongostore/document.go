package mongostore

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"zgame/zmsg"
	"zgame/zstore"
)

// document is a record as it is stored, for reading. Writing goes by fields; see write.go.
type document struct {
	ID  documentID `bson:"_id"`
	Own struct {
		Node    *string `bson:"n"`
		Epoch   int64   `bson:"e"`
		Version int64   `bson:"t"`
		Pending int64   `bson:"p"`
	} `bson:"own"`
	Rev      int64       `bson:"rev"`
	WID      bson.Binary `bson:"wid"`
	Schema   int64       `bson:"sv"`
	State    []byte      `bson:"st"`
	Done     []done      `bson:"dd"`
	Attached []byte      `bson:"at"`
	Deleted  bool        `bson:"del"`
}

type documentID struct {
	Type int64  `bson:"t"`
	Zone int64  `bson:"z"`
	ID   string `bson:"i"`
}

type done struct {
	Origin string `bson:"o"`
	Seq    int64  `bson:"s"`
	Reply  []byte `bson:"r"`
}

func (d *document) key() zmsg.Key {
	return zmsg.Key{Type: uint32(d.ID.Type), Zone: uint32(d.ID.Zone), ID: d.ID.ID}
}

func (d *document) own() zstore.Own {
	o := zstore.Own{Version: zmsg.RouteVersion(d.Own.Version), Pending: d.Own.Pending != 0}
	if d.Own.Node != nil {
		o.Node = zmsg.NodeRef{ID: *d.Own.Node, Epoch: uint64(d.Own.Epoch)}
	}
	return o
}

func (d *document) record() (zstore.Record, error) {
	r := zstore.Record{
		Key: d.key(), Own: d.own(), Rev: uint64(d.Rev), Schema: uint32(d.Schema), State: d.State, Attachment: d.Attached, Deleted: d.Deleted,
	}
	if len(d.WID.Data) != len(r.WID) || d.Rev == 0 {
		return zstore.Record{}, fmt.Errorf("mongostore: the document of %s is not a record of zgame", r.Key)
	}
	copy(r.WID[:], d.WID.Data)
	if len(d.Done) > 0 {
		r.Done = make([]zstore.Done, len(d.Done))
		for i, e := range d.Done {
			r.Done[i] = zstore.Done{Origin: e.Origin, Seq: uint64(e.Seq), Reply: e.Reply}
		}
	}
	return r, nil
}

// The parts of filters and updates. Their order is fixed, so that a command is the same bytes each time.

func idOf(k zmsg.Key) bson.D {
	return bson.D{{Key: "t", Value: int64(k.Type)}, {Key: "z", Value: int64(k.Zone)}, {Key: "i", Value: k.ID}}
}

func nodeOf(n zmsg.NodeRef) any {
	if n.IsZero() {
		return nil
	}
	return n.ID
}

func pendingOf(o zstore.Own) int64 {
	if o.Pending {
		return 1
	}
	return 0
}

func widOf(w zstore.WriteID) bson.Binary { return bson.Binary{Data: w[:]} }

func stateOf(b []byte) bson.Binary { return bson.Binary{Data: b} }

func doneOf(in []zstore.Done) bson.A {
	out := make(bson.A, len(in))
	for i, d := range in {
		out[i] = bson.D{{Key: "o", Value: d.Origin}, {Key: "s", Value: int64(d.Seq)}, {Key: "r", Value: bson.Binary{Data: d.Reply}}}
	}
	return out
}

// filter is the condition of every write on a record that exists: owner, route version and revision exactly as seen.
func filter(c *zstore.Change) bson.D {
	return bson.D{
		{Key: "_id", Value: idOf(c.Key)},
		{Key: "own.n", Value: nodeOf(c.Own.Node)},
		{Key: "own.e", Value: int64(c.Own.Node.Epoch)},
		{Key: "own.t", Value: int64(c.Own.Version)},
		{Key: "rev", Value: int64(c.Rev)},
		{Key: "del", Value: false},
	}
}

// tombstone is the condition of a Create on top of a deleted record that was read as cur.
func tombstone(cur *zstore.Record) bson.D {
	return bson.D{
		{Key: "_id", Value: idOf(cur.Key)},
		{Key: "own.t", Value: int64(cur.Own.Version)},
		{Key: "rev", Value: int64(cur.Rev)},
		{Key: "del", Value: true},
	}
}

// fresh is the document of a Create where there is none.
func fresh(r *zstore.Record) bson.D {
	return bson.D{
		{Key: "_id", Value: idOf(r.Key)},
		{Key: "own", Value: bson.D{
			{Key: "n", Value: nodeOf(r.Own.Node)},
			{Key: "e", Value: int64(r.Own.Node.Epoch)},
			{Key: "t", Value: int64(r.Own.Version)},
			{Key: "p", Value: pendingOf(r.Own)},
		}},
		{Key: "rev", Value: int64(r.Rev)},
		{Key: "wid", Value: widOf(r.WID)},
		{Key: "sv", Value: int64(r.Schema)},
		{Key: "st", Value: stateOf(r.State)},
		{Key: "dd", Value: doneOf(r.Done)},
		{Key: "del", Value: false},
	}
}

// update turns the document before op into r. It sets what changes and nothing else.
func update(op zstore.Op, r *zstore.Record) bson.D {
	set := bson.D{}
	if op != zstore.OpSave {
		set = append(set,
			bson.E{Key: "own.n", Value: nodeOf(r.Own.Node)},
			bson.E{Key: "own.e", Value: int64(r.Own.Node.Epoch)},
			bson.E{Key: "own.t", Value: int64(r.Own.Version)})
	}
	set = append(set,
		bson.E{Key: "own.p", Value: pendingOf(r.Own)},
		bson.E{Key: "rev", Value: int64(r.Rev)},
		bson.E{Key: "wid", Value: widOf(r.WID)})
	if op != zstore.OpClaim && op != zstore.OpDelete {
		set = append(set,
			bson.E{Key: "sv", Value: int64(r.Schema)},
			bson.E{Key: "st", Value: stateOf(r.State)},
			bson.E{Key: "dd", Value: doneOf(r.Done)})
	}
	if op == zstore.OpCreate || op == zstore.OpDelete {
		set = append(set, bson.E{Key: "del", Value: r.Deleted})
	}
	var unset bson.D
	switch {
	case op == zstore.OpDelete:
		unset = bson.D{{Key: "sv", Value: ""}, {Key: "st", Value: ""}, {Key: "dd", Value: ""}, {Key: "at", Value: ""}}
	case op == zstore.OpMove && len(r.Attachment) > 0:
		set = append(set, bson.E{Key: "at", Value: stateOf(r.Attachment)})
	case op != zstore.OpClaim && op != zstore.OpCreate: // a claim leaves it, and a tombstone has none
		unset = bson.D{{Key: "at", Value: ""}}
	}
	u := bson.D{{Key: "$set", Value: set}}
	if unset != nil {
		u = append(u, bson.E{Key: "$unset", Value: unset})
	}
	return append(u, bson.E{Key: "$currentDate", Value: bson.D{{Key: "mt", Value: true}}})
}
