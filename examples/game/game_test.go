package game

import (
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"zgame/examples/game/gamepb"
	"zgame/zclient"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/ztest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLobby(t *testing.T) {
	t.Parallel()
	ann := ztest.Cluster(t, 1, App()).Client("ann", 0)
	for want := uint64(1); want <= 2; want++ {
		w := ztest.Call[gamepb.Welcome](t, ann, &gamepb.Hello{})
		if w.GetNode() != "n1" || w.GetVisits() != want {
			t.Errorf("welcomed by %s as number %d, want n1 and %d", w.GetNode(), w.GetVisits(), want)
		}
	}
}

func TestTableNames(t *testing.T) {
	t.Parallel()
	ann := ztest.Cluster(t, 1, App()).Client("ann", 0)
	if err := ann.Request(t.Context(), &gamepb.Sit{Table: "no spaces"}, nil); zmsg.CodeOf(err) != errName.Code {
		t.Errorf("%v, want %v", err, errName)
	}
}

// Two clients play while the table's node is drained, and the node that it went to, too: every roll has its answer, and comes to both, once, in order, and the
// table is what the rolls come to.
func TestTableMovesWhilePeoplePlay(t *testing.T) {
	t.Parallel()
	const rolls = 90
	c := ztest.Cluster(t, 4, App(), ztest.Settings(func(k int, s *znode.Settings) {
		if k == 0 {
			s.Logic.Router.Hosts = nil // a gate alone, which stays
		}
	}))
	ann, bob := c.Client("ann", 0), c.Client("bob", 0)
	heard := map[string]*ztest.Oracle{"ann": listen(ann), "bob": listen(bob)}
	key := zmsg.Key{Type: TableType, ID: "green"}
	for _, cl := range []*zclient.Client{ann, bob} {
		ztest.Call[gamepb.Scores](t, cl, &gamepb.Sit{Table: key.ID})
	}
	total := map[string]uint64{}
	for i := range rolls {
		cl := []*zclient.Client{ann, bob}[i%2]
		r := ztest.Call[gamepb.Rolled](t, cl, &gamepb.Roll{Table: key.ID})
		if total[r.GetBy()] += uint64(r.GetValue()); total[r.GetBy()] != r.GetScore() || r.GetRoll() != uint64(i+1) {
			t.Fatalf("roll %d of %s is told as roll %d, with a score of %d, want %d", i+1, r.GetBy(), r.GetRoll(), r.GetScore(), total[r.GetBy()])
		}
		if i == rolls/3 || i == 2*rolls/3 {
			c.Stop(c.OwnerOf(key)) // drains it
		}
	}
	for who, o := range heard {
		ztest.Eventually(t, "all rolls have come to "+who, func() bool { return o.Count("green") == rolls })
		if err := o.Check(rolls, "green"); err != nil {
			t.Errorf("to %s: %v", who, err)
		}
	}
}

func listen(c *zclient.Client) *ztest.Oracle {
	o := &ztest.Oracle{}
	zclient.On(c, func(r *gamepb.Rolled) { o.Got(r.GetTable(), r.GetRoll()) })
	return o
}

// What the first version of the program has saved is read by this one.
func TestMigrate(t *testing.T) {
	t.Parallel()
	old := &gamepb.TableStateV1{Rolls: []*gamepb.Rolled{{By: "ann", Value: 6}, {By: "bob", Value: 1}, {By: "ann", Value: 2}}}
	raw, err := proto.Marshal(old)
	if err != nil {
		t.Fatal(err)
	}
	got, err := migrate(1, raw)
	if want := (&gamepb.TableState{Rolls: 3, Scores: map[string]uint64{"ann": 8, "bob": 1}}); err != nil || !proto.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for from, raw := range map[uint32][]byte{0: raw, 3: raw, 1: []byte("broken")} {
		if s, err := migrate(from, raw); err == nil {
			t.Errorf("version %d became %v, want an error", from, s)
		}
	}
}
