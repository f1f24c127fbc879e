package chat

import (
	"path/filepath"
	"testing"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/zactor/zactortest"
	"zgame/zmsg"
	"zgame/zstore/memstore"
)

// The record of the example's actor runs again with the factory that the App registers, without a store.
func TestReplayRooms(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bug := func(h zactor.HandlerInfo, next zactor.Func) zactor.Func {
		if h.Name != "chat.Who" {
			return next
		}
		return func(*zactor.Context) error { panic("a bug") }
	}
	layers := []zactor.Middleware{bug}
	g, s := zactortest.NewSteps(t, zactor.Config{RecordDir: dir, Recorder: &zactor.RecorderOptions{}, Middleware: layers})
	ref, err := g.Spawn("rooms", func() zactor.Actor { return newRooms(memstore.New(), "n1") })
	if err != nil {
		t.Fatal(err)
	}
	for _, msg := range []zmsg.Message{
		{User: "ann", Value: &chatpb.Join{Room: "hall"}},
		{User: "ann", Value: &chatpb.Say{Room: "hall", Text: "hello"}},
		{User: "ann", Value: &chatpb.Who{Room: "hall"}},
	} {
		msg.ID, _ = zmsg.IDOf(msg.Value)
		msg.Client, msg.Session = true, zmsg.SessionRef{Gate: zmsg.NodeRef{ID: "g", Epoch: 1}, ID: 7, Gen: 1}
		if err := ref.Deliver(&msg); err != nil {
			t.Fatal(err)
		}
		s.Run()
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	rec, err := zactor.OpenRecord(files[0])
	if err != nil {
		t.Fatal(err)
	}
	report, err := zactor.Replay(rec, App().Actors[rec.Header.Type], zactor.ReplayOptions{Middleware: layers})
	if err != nil {
		t.Fatal(err)
	}
	if !report.Same || report.Diverged() {
		t.Error(report)
	}
}
