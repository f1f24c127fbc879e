package kvstore

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zstore"
	"zgame/zstore/kvstore/recordpb"
)

// head is what the driver remembers of a document: all but its state, and the fields that this version does not know.
type head struct {
	rec     zstore.Record // State, Done and Attachment are nil unless it was just read
	unknown [3][]byte     // unknown fields of Record, Key and Own
	seq     uint64        // the compare-and-set token; 0: there is no document
}

func (h *head) found() bool { return h.seq != 0 }

// encode returns the document of rec, with the unknown fields of the document before it.
func encode(rec *zstore.Record, unknown *[3][]byte) ([]byte, error) {
	pb := &recordpb.Record{
		Key:     &recordpb.Key{Type: rec.Key.Type, Zone: rec.Key.Zone, Id: rec.Key.ID},
		Own:     &recordpb.Own{Node: rec.Own.Node.ID, Epoch: rec.Own.Node.Epoch, Version: uint64(rec.Own.Version), Pending: rec.Own.Pending},
		Rev:     rec.Rev,
		Wid:     rec.WID[:],
		Schema:  rec.Schema,
		State:   rec.State,
		Deleted: rec.Deleted,

		Attachment: rec.Attachment,
	}
	if len(rec.Done) > 0 {
		pb.Done = make([]*recordpb.Done, len(rec.Done))
		for i, d := range rec.Done {
			pb.Done[i] = &recordpb.Done{Origin: d.Origin, Seq: d.Seq, Reply: d.Reply}
		}
	}
	if len(unknown[0]) > 0 {
		pb.ProtoReflect().SetUnknown(unknown[0])
	}
	if len(unknown[1]) > 0 {
		pb.Key.ProtoReflect().SetUnknown(unknown[1])
	}
	if len(unknown[2]) > 0 {
		pb.Own.ProtoReflect().SetUnknown(unknown[2])
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(pb)
}

var errForeign = errors.New("kvstore: not a record of zgame")

// decode reads a document. The key in it must be k: a subject that holds another key's document is not ours.
func decode(k zmsg.Key, seq uint64, data []byte) (head, error) {
	var pb recordpb.Record
	if err := proto.Unmarshal(data, &pb); err != nil {
		return head{}, fmt.Errorf("%w: %s: %w", errForeign, k, err)
	}
	h := head{seq: seq, rec: zstore.Record{
		Key: zmsg.Key{Type: pb.GetKey().GetType(), Zone: pb.GetKey().GetZone(), ID: pb.GetKey().GetId()},
		Own: zstore.Own{
			Node:    zmsg.NodeRef{ID: pb.GetOwn().GetNode(), Epoch: pb.GetOwn().GetEpoch()},
			Version: zmsg.RouteVersion(pb.GetOwn().GetVersion()),
			Pending: pb.GetOwn().GetPending(),
		},
		Rev: pb.GetRev(), Schema: pb.GetSchema(), State: pb.GetState(), Attachment: pb.GetAttachment(), Deleted: pb.GetDeleted(),
	}}
	if h.rec.Key != k || len(pb.GetWid()) != len(h.rec.WID) || h.rec.Rev == 0 {
		return head{}, fmt.Errorf("%w: document of %s at the place of %s", errForeign, h.rec.Key, k)
	}
	copy(h.rec.WID[:], pb.GetWid())
	for _, d := range pb.GetDone() {
		h.rec.Done = append(h.rec.Done, zstore.Done{Origin: d.GetOrigin(), Seq: d.GetSeq(), Reply: d.GetReply()})
	}
	h.unknown[0] = pb.ProtoReflect().GetUnknown()
	h.unknown[1] = pb.GetKey().ProtoReflect().GetUnknown()
	h.unknown[2] = pb.GetOwn().ProtoReflect().GetUnknown()
	return h, nil
}

var b64 = base64.RawURLEncoding

// subject is where k's document is: the prefix, which ends with a dot, and <type>.<zone>.<id>.
func subject(prefix string, k zmsg.Key) string {
	b := make([]byte, 0, len(prefix)+22+b64.EncodedLen(len(k.ID)))
	b = append(b, prefix...)
	b = strconv.AppendUint(b, uint64(k.Type), 10)
	b = append(b, '.')
	b = strconv.AppendUint(b, uint64(k.Zone), 10)
	b = append(b, '.')
	b = b64.AppendEncode(b, []byte(k.ID))
	return string(b)
}

// keyOf is the inverse of subject.
func keyOf(prefix, subject string) (zmsg.Key, bool) {
	rest, ok := strings.CutPrefix(subject, prefix)
	if !ok {
		return zmsg.Key{}, false
	}
	parts := strings.Split(rest, ".")
	if len(parts) != 3 {
		return zmsg.Key{}, false
	}
	typ, err1 := strconv.ParseUint(parts[0], 10, 32)
	zone, err2 := strconv.ParseUint(parts[1], 10, 32)
	id, err3 := b64.DecodeString(parts[2])
	if errors.Join(err1, err2, err3) != nil {
		return zmsg.Key{}, false
	}
	return zmsg.Key{Type: uint32(typ), Zone: uint32(zone), ID: string(id)}, true
}

// ownHeader is the document's owner once more, so that Scan need not read states.
const ownHeader = "Zgame-Own"

func formatOwn(o zstore.Own) string {
	pending := byte('0')
	if o.Pending {
		pending = '1'
	}
	b := b64.AppendEncode(nil, []byte(o.Node.ID))
	b = append(b, ' ')
	b = strconv.AppendUint(b, o.Node.Epoch, 10)
	b = append(b, ' ')
	b = strconv.AppendUint(b, uint64(o.Version), 10)
	return string(append(b, ' ', pending))
}

func parseOwn(s string) (zstore.Own, bool) {
	parts := strings.Split(s, " ")
	if len(parts) != 4 {
		return zstore.Own{}, false
	}
	id, err1 := b64.DecodeString(parts[0])
	epoch, err2 := strconv.ParseUint(parts[1], 10, 64)
	version, err3 := strconv.ParseUint(parts[2], 10, 64)
	if errors.Join(err1, err2, err3) != nil {
		return zstore.Own{}, false
	}
	return zstore.Own{
		Node:    zmsg.NodeRef{ID: string(id), Epoch: epoch},
		Version: zmsg.RouteVersion(version),
		Pending: parts[3] == "1",
	}, true
}
