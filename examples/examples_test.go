package examples_test

import (
	"testing"

	"go.uber.org/goleak"

	"zgame/examples"
	"zgame/examples/chat/chatpb"
	"zgame/examples/friend/friendpb"
	"zgame/ztest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What somebody whispers who is blocked reaches nobody, and he is not told so; it is heard again when he is unblocked.
func TestBlockedWhispers(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 2, examples.App())
	ann, bob := c.Client("ann", 0), c.Client("bob", 1)
	ztest.Call[chatpb.WhispersKept](t, bob, &chatpb.Whispers{})
	heard := ztest.Watch[chatpb.Whispered](t, bob)
	ztest.Call[chatpb.Whispered](t, ann, &chatpb.Whisper{To: "bob", Text: "one"})
	ztest.Call[friendpb.Changed](t, bob, &friendpb.Block{User: "ann"})
	ztest.Call[chatpb.Whispered](t, ann, &chatpb.Whisper{To: "bob", Text: "two"})
	ztest.Call[friendpb.Changed](t, bob, &friendpb.Unblock{User: "ann"})
	ztest.Call[chatpb.Whispered](t, ann, &chatpb.Whisper{To: "bob", Text: "three"})
	for _, want := range []string{"one", "three"} {
		if w := heard.Next(); w.GetText() != want {
			t.Errorf("bob hears %v, want %q", w, want)
		}
	}
	if kept := ztest.Call[chatpb.WhispersKept](t, bob, &chatpb.Whispers{}).GetWhispers(); len(kept) != 2 {
		t.Errorf("bob's box has %v", kept)
	}
	if kept := ztest.Call[chatpb.WhispersKept](t, ann, &chatpb.Whispers{}).GetWhispers(); len(kept) != 3 {
		t.Errorf("ann's box has %v", kept)
	}
}
