package zrouter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zrouter/internal/testpb"
	"zgame/zstore"
)

// What Create refuses is told to who asked, from every node, as the kind says it; nothing is written, and the next one who asks is not
// told what the last one was.
func TestCreateRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	answers := map[string]error{
		"app":      zmsg.Errorf(zmsg.CodeApplication+7, "no name for a log"),
		"plain":    errors.New("secret"),
		"absent":   fmt.Errorf("what it is made of: %w", zstore.ErrNotFound),
		"conflict": zstore.ErrConflict,
		"unknown":  zstore.ErrUnknown,
	}
	kind := logs()
	kind.Create = func(k zmsg.Key) (*testpb.Log, error) {
		if k.ID == "panic" {
			panic("boom")
		}
		return new(testpb.Log), answers[k.ID]
	}
	for _, id := range []string{"a", "b"} {
		w.start(id, zrouter.Settings{}, kind)
	}
	answers["panic"] = nil
	for id, cause := range answers {
		want := zmsg.ErrorReply(cause)
		if id == "panic" {
			want.Code = zmsg.CodeInternal
		}
		for _, n := range w.all() {
			_, err := zrouter.Call[testpb.Lines](t.Context(), n.set, key(id), &testpb.Get{})
			if got := zmsg.ErrorReply(err); got.Code != want.Code || got.Outcome != zmsg.NotExecuted || got.Text != want.Text {
				t.Errorf("%s: %+v (%v), expected %v %q, not executed", id, got, err, want.Code, want.Text)
			}
		}
		if rec, err := w.record(id); !errors.Is(err, zstore.ErrNotFound) {
			t.Errorf("%s: %+v, %v", id, rec, err)
		}
	}
	// Where nobody may act the reason is another one.
	n := w.all()[0]
	if _, err := n.set.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := zrouter.Call[testpb.Lines](t.Context(), n.set, key("app"), &testpb.Get{}); !errors.Is(err, zrouter.ErrClosing) {
		t.Error(err)
	}
}

// A caller that takes an answer for another type is told so, at the owner's node and at others: an empty success would be believed.
func TestAnswerOfAnotherType(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	for _, n := range w.all() {
		if _, err := n.keep("x", "1"); err != nil {
			t.Fatal(err)
		}
		got, err := zrouter.Call[testpb.Lines](t.Context(), n.set, key("x"), &testpb.Append{Line: "2"})
		if zmsg.CodeOf(err) != zmsg.CodeInternal || zmsg.OutcomeOf(err) != zmsg.Executed {
			t.Errorf("%v, %v, expected internal, executed", got, err)
		}
	}
}
