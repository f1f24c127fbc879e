package friend_test

import (
	"fmt"
	"testing"

	"zgame/examples/friend"
	"zgame/examples/friend/friendpb"
	"zgame/zclient"
	"zgame/ztest"
)

// flips is how often somebody's presence has changed, as the client of a friend was told.
type flips struct {
	changes *ztest.Pushes[friendpb.Entry, *friendpb.Entry]
	online  bool
}

// next waits for the next change and returns what it is; other news of friends are passed over.
func (f *flips) next(t *testing.T) bool {
	t.Helper()
	e := f.changes.Until(fmt.Sprint("a change from ", f.online), func(e *friendpb.Entry) bool {
		return e.GetStatus() == friends && e.GetOnline() != f.online
	})
	f.online = e.GetOnline()
	if f.online && e.GetNode() == "" || e.GetSeenMs() == 0 {
		t.Errorf("%v", e)
	}
	return f.online
}

// A friend's coming and going is told once, wherever lists and gates are, and who opens his list finds who is there.
func TestFriendsPresence(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 3, friend.App())
	ann, bob := open(t, c, "ann", 0), open(t, c, "bob", 1)
	ztest.Call[friendpb.Changed](t, ann.client, &friendpb.Add{User: "bob"})
	bob.sees("ann", incoming)
	ztest.Call[friendpb.Changed](t, bob.client, &friendpb.Accept{User: "ann"})
	ztest.Eventually(t, "bob is there", func() bool {
		l := ztest.Call[friendpb.Entries](t, ann.client, &friendpb.List{}).GetEntries()
		return len(l) == 1 && l[0].GetOnline() && l[0].GetNode() == "n2"
	})
	seen := &flips{changes: ztest.Watch[friendpb.Entry](t, ann.client), online: true} // what was pushed before the answer has come
	for i := range 4 {
		_ = bob.client.Close()
		if seen.next(t) {
			t.Error("bob is there, and has gone")
		}
		from := c.OwnerOf(key("ann"))
		if _, err := c.Node(from).Objects().Transfer(t.Context(), key("ann"), c.Node((from+1)%3).Self()); err != nil {
			t.Fatal(err)
		}
		bob.client = c.Client("bob", i%3)
		if !seen.next(t) {
			t.Error("bob has come, and is not there")
		}
	}
	// Who comes later finds out by asking.
	_ = ann.client.Close()
	ann = open(t, c, "ann", 2)
	ztest.Eventually(t, "bob is there", func() bool {
		l := ztest.Call[friendpb.Entries](t, ann.client, &friendpb.List{}).GetEntries()
		return len(l) == 1 && l[0].GetOnline() && l[0].GetNode() != ""
	})
	// A friend who is none any more is told nothing of.
	ztest.Call[friendpb.Changed](t, bob.client, &friendpb.Remove{User: "ann"})
	e := ann.changes.Until("bob is no friend", func(e *friendpb.Entry) bool { return e.GetStatus() == none })
	if e.GetOnline() || e.GetNode() != "" {
		t.Errorf("who is no friend is told of: %v", e)
	}
}

// A friend's gate, and the node of his objects, dies: that he is gone is told, by the resume window after the lease at the latest.
func TestPresenceOfAKilledNode(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 3, friend.App(), window(1))
	ann, bob := open(t, c, "ann", 0), open(t, c, "bob", 2)
	ztest.Call[friendpb.Changed](t, ann.client, &friendpb.Add{User: "bob"})
	bob.sees("ann", incoming)
	ztest.Call[friendpb.Changed](t, bob.client, &friendpb.Accept{User: "ann"})
	ann.changes.Until("bob is there", func(e *friendpb.Entry) bool { return e.GetOnline() })
	c.Kill(2)
	ztest.Eventually(t, "bob is gone", func() bool {
		answer, err := zclient.Call[friendpb.Entries](t.Context(), ann.client, &friendpb.List{})
		if err != nil { // her list may have been there
			return false
		}
		for _, e := range answer.GetEntries() {
			if e.GetUser() == "bob" && e.GetStatus() == friends && !e.GetOnline() {
				return true
			}
		}
		return false
	})
}
