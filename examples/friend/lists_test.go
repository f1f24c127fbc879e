package friend_test

import (
	"fmt"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"zgame/examples/friend"
	"zgame/examples/friend/friendpb"
	"zgame/zclient"
	"zgame/zmsg"
	"zgame/ztest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func key(user string) zmsg.Key { return zmsg.Key{Type: friend.Type, ID: user} }

// person is a client that has its list open.
type person struct {
	name    string
	client  *zclient.Client
	changes *ztest.Pushes[friendpb.Entry, *friendpb.Entry]
}

func open(t *testing.T, c *ztest.Nodes, name string, gate int) *person {
	t.Helper()
	p := &person{name: name, client: c.Client(name, gate)}
	p.changes = ztest.Watch[friendpb.Entry](t, p.client)
	ztest.Call[friendpb.Entries](t, p.client, &friendpb.List{})
	return p
}

// sees waits for a push that says so.
func (p *person) sees(user string, s friendpb.Status) {
	p.changes.Until(fmt.Sprintf("%s sees %s as %v", p.name, user, s), func(e *friendpb.Entry) bool { return e.GetUser() == user && e.GetStatus() == s })
}

const (
	friends  = friendpb.Status_STATUS_FRIEND
	incoming = friendpb.Status_STATUS_INCOMING
	outgoing = friendpb.Status_STATUS_OUTGOING
	none     = friendpb.Status_STATUS_NONE
)

// Two people at two nodes become friends and see it; their lists move about; they part.
func TestBecomeFriends(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 3, friend.App())
	ann, bob := open(t, c, "ann", 0), open(t, c, "bob", 1)
	if e := ztest.Call[friendpb.Changed](t, ann.client, &friendpb.Add{User: "bob"}).GetEntry(); e.GetStatus() != outgoing {
		t.Errorf("%v", e)
	}
	ann.sees("bob", outgoing)
	bob.sees("ann", incoming)
	for _, user := range []string{"ann", "bob"} {
		from := c.OwnerOf(key(user))
		to := c.Node((from + 1) % c.Len()).Self()
		if _, err := c.Node(from).Objects().Transfer(t.Context(), key(user), to); err != nil {
			t.Fatal(err)
		}
	}
	ztest.Call[friendpb.Changed](t, bob.client, &friendpb.Accept{User: "ann"})
	ann.sees("bob", friends)
	bob.sees("ann", friends)
	ztest.Call[friendpb.Changed](t, ann.client, &friendpb.Note{User: "bob", Text: "from school"})
	if l := ztest.Call[friendpb.Entries](t, ann.client, &friendpb.List{}).GetEntries(); len(l) != 1 || l[0].GetNote() != "from school" || l[0].GetSinceMs() == 0 {
		t.Errorf("%v", l)
	}
	ztest.Call[friendpb.Changed](t, bob.client, &friendpb.Block{User: "ann"})
	ann.sees("bob", none)
	for _, bad := range []proto.Message{&friendpb.Accept{User: "carl"}, &friendpb.Add{User: "bob"}, &friendpb.Add{User: ""}} {
		if err := bob.client.Request(t.Context(), bad, &friendpb.Changed{}); err == nil {
			t.Errorf("%v: no error", bad)
		}
	}
}

// Nodes crash while people ask, accept and part, and come back: what was answered counts, and in the end both lists of each two say the same.
func TestCrashHalfWay(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 3, friend.App())
	const pairs = 12
	gate := c.Len() - 1 // it stays
	clients := map[string]*zclient.Client{}
	for i := range pairs {
		for _, user := range []string{fmt.Sprint("ann", i), fmt.Sprint("bob", i)} {
			clients[user] = c.Client(user, gate)
		}
	}
	ask := func(user string, req proto.Message) error {
		return clients[user].Request(t.Context(), req, &friendpb.Changed{})
	}
	accepted := make([]bool, pairs)
	var wg sync.WaitGroup
	for i := range pairs {
		wg.Go(func() {
			ann, bob := fmt.Sprint("ann", i), fmt.Sprint("bob", i)
			_ = ask(ann, &friendpb.Add{User: bob})
			accepted[i] = ask(bob, &friendpb.Add{User: ann}) == nil
		})
		if i%4 == 3 {
			k := i / 4 % gate
			c.Kill(k)
			c.Start(k)
		}
	}
	wg.Wait()
	status := func(user, of string) friendpb.Status {
		for _, e := range ztest.Call[friendpb.Entries](t, clients[user], &friendpb.List{}).GetEntries() {
			if e.GetUser() == of {
				return e.GetStatus()
			}
		}
		return none
	}
	for i := range pairs {
		ann, bob := fmt.Sprint("ann", i), fmt.Sprint("bob", i)
		ztest.Eventually(t, ann+" and "+bob+" see the same", func() bool {
			a, b := status(ann, bob), status(bob, ann)
			same := a == friends && b == friends || a == outgoing && b == incoming || a == incoming && b == outgoing || a == none && b == none
			return same && (!accepted[i] || b == friends || b == outgoing)
		})
	}
}

// A record of the first version is read, and the two people that it calls friends are.
func TestMigrate(t *testing.T) {
	t.Parallel()
	kind := friend.Lists()
	raw, err := proto.Marshal(&friendpb.FriendStateV1{Friends: []string{"bob", "carl"}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := kind.Migrate(1, raw)
	if err != nil || len(s.GetPeers()) != 2 || !s.GetPeers()["bob"].GetWant() || s.GetPeers()["bob"].GetVersion() == s.GetPeers()["carl"].GetVersion() {
		t.Errorf("%v, %v", s, err)
	}
	for from, raw := range map[uint32][]byte{0: nil, 3: nil, 1: {0xff}} {
		if s, err := kind.Migrate(from, raw); err == nil {
			t.Errorf("version %d: %v", from, s)
		}
	}
}
