package chat

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"zgame/examples/chat/chatpb"
	"zgame/zmsg"
	"zgame/zstore"
	"zgame/zstore/memstore"
)

// overtaken is a store whose first save lands, is overtaken by somebody else's, and whose answer is lost.
type overtaken struct {
	zstore.Store
	done bool
}

func (o *overtaken) Save(ctx context.Context, k zmsg.Key, me zstore.Own, rev uint64, w zstore.Write, wid zstore.WriteID) (uint64, error) {
	rev, err := o.Store.Save(ctx, k, me, rev, w, wid)
	if err != nil || o.done {
		return rev, err
	}
	o.done = true
	s := &chatpb.RoomState{}
	if err := proto.Unmarshal(w.State, s); err != nil {
		return 0, err
	}
	if err := say(s, sessionOf(s.GetMembers()[0]), &chatpb.Line{From: "ann", Text: "elsewhere"}); err != nil {
		return 0, err
	}
	w.State, _ = proto.Marshal(s)
	if _, err := o.Store.Save(ctx, k, me, rev, w, zstore.NewWriteID()); err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("%w: the answer was lost", zstore.ErrUnknown)
}

// A write whose outcome is unknown may have landed before another shard's; the batch that is applied anew is not
// applied twice.
func TestUnknownOutcomeDoublesNothing(t *testing.T) {
	ann := zmsg.SessionRef{Gate: zmsg.NodeRef{ID: "n1", Epoch: 1}, ID: 1, Gen: 1}
	bob := zmsg.SessionRef{Gate: zmsg.NodeRef{ID: "n1", Epoch: 1}, ID: 2, Gen: 1}
	rm := &room{key: zmsg.Key{Type: roomType, ID: "go"}}
	store := memstore.New()
	enterAnn := &step{apply: func(s *chatpb.RoomState) error { enter(s, "ann", ann); enter(s, "bob", bob); return nil }}
	if err := rm.commit(t.Context(), store, []*step{enterAnn}); err != nil {
		t.Fatal(err)
	}
	line := &chatpb.Line{From: "ann", Text: "here"}
	leave := remove("go", bob)
	batch := []*step{{apply: func(s *chatpb.RoomState) error { return say(s, ann, line) }}, leave}
	if err := rm.commit(t.Context(), &overtaken{Store: store}, batch); err != nil || batch[0].err != nil || batch[1].err != nil {
		t.Fatal(err, batch[0].err, batch[1].err)
	}
	var got []string
	for _, l := range rm.state.GetLines() {
		got = append(got, fmt.Sprint(l.GetSeq(), " ", l.GetText()))
	}
	if fmt.Sprint(got) != "[1 here 2 elsewhere]" || line.GetSeq() != 1 {
		t.Errorf("lines %q, the line's seq %d", got, line.GetSeq())
	}
}

// What a join has seen does not change with the lines that are said in the same write.
func TestHistoryDoesNotShift(t *testing.T) {
	ann := zmsg.SessionRef{Gate: zmsg.NodeRef{ID: "n1", Epoch: 1}, ID: 1, Gen: 1}
	s := &chatpb.RoomState{}
	enter(s, "ann", ann)
	speak := func() {
		if err := say(s, ann, &chatpb.Line{From: "ann", Text: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	for range historyLines - 1 {
		speak()
	}
	seen := history(s)
	for range 10 {
		speak()
	}
	for i, l := range seen {
		if l.GetSeq() != uint64(i+1) {
			t.Fatalf("line %d of the history has seq %d", i+1, l.GetSeq())
		}
	}
}
