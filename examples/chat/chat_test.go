package chat_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"zgame/examples/chat"
	"zgame/examples/chat/chatpb"
	"zgame/zclient"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
	"zgame/ztest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func join(t *testing.T, c *zclient.Client, room string) *chatpb.Joined {
	t.Helper()
	return ztest.Call[chatpb.Joined](t, c, &chatpb.Join{Room: room})
}

// A room that each node would serve: rendezvous spreads rooms, so among a few dozen names both are found.
func roomOn(t *testing.T, c *zclient.Client, node string) string {
	t.Helper()
	for i := range 200 {
		name := "room-" + strconv.Itoa(i)
		if j := join(t, c, name); j.GetNode() == node {
			return name
		}
		ztest.Call[chatpb.Left](t, c, &chatpb.Leave{Room: name})
	}
	t.Fatalf("no room lives on %s", node)
	return ""
}

// listen feeds what everybody says into an oracle: the text is "sender number".
func listen(t *testing.T, c *zclient.Client) *ztest.Oracle {
	t.Helper()
	o := &ztest.Oracle{}
	zclient.On(c, func(l *chatpb.Line) { note(t, o, l) })
	return o
}

func note(t *testing.T, o *ztest.Oracle, l *chatpb.Line) {
	t.Helper()
	from, number, ok := strings.Cut(l.GetText(), " ")
	n, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil || from != l.GetFrom() {
		t.Errorf("line %q of %s is not what was said", l.GetText(), l.GetFrom())
		return
	}
	o.Got(from, n)
}

// The first proof: two nodes on real servers, one zclient at each gate and a third client on another websocket
// library; 1,000 numbered lines from each arrive at all, once, in each sender's order.
func TestTwoNodesManyLines(t *testing.T) {
	const lines = 1000
	c := ztest.Cluster(t, 2, chat.App(), ztest.RealServers())
	ann, bob := c.Client("ann", 0), c.Client("bob", 1)
	atAnn, atBob := listen(t, ann), listen(t, bob)
	room := roomOn(t, ann, "n2")
	join(t, bob, room)
	cyd := dialForeign(t, c.Node(0).GateURL(), "cyd")
	cyd.join(room)

	var wg sync.WaitGroup
	for name, cl := range map[string]*zclient.Client{"ann": ann, "bob": bob} {
		wg.Go(func() {
			for n := 1; n <= lines; n++ {
				if _, err := zclient.Call[chatpb.Said](t.Context(), cl, &chatpb.Say{Room: room, Text: fmt.Sprint(name, " ", n)}); err != nil {
					t.Errorf("%s says %d: %v", name, n, err)
					return
				}
			}
		})
	}
	wg.Go(func() { cyd.say(room, lines) })
	wg.Wait()
	for at, o := range map[string]*ztest.Oracle{"ann": atAnn, "bob": atBob, "cyd": &cyd.oracle} {
		ztest.Eventually(t, "all lines are at "+at, func() bool {
			return o.Count("ann") >= lines && o.Count("bob") >= lines && o.Count("cyd") >= lines
		})
		if err := o.Check(lines, "ann", "bob", "cyd"); err != nil {
			t.Errorf("at %s: %v", at, err)
		}
	}
}

func TestRoomLife(t *testing.T) {
	c := ztest.Cluster(t, 2, chat.App())
	ann, bob := c.Client("ann", 0), c.Client("bob", 1)
	for _, node := range []string{"n1", "n2"} {
		t.Run(node, func(t *testing.T) {
			room := roomOn(t, ann, node)
			presence := ztest.Watch[chatpb.Presence](t, ann)

			for i := range 60 {
				if said := ztest.Call[chatpb.Said](t, ann, &chatpb.Say{Room: room, Text: fmt.Sprint("ann ", i+1)}); said.GetSeq() != uint64(i+1) {
					t.Fatalf("line %d got seq %d", i+1, said.GetSeq())
				}
			}
			j := join(t, bob, room)
			if n := len(j.GetHistory()); n != 50 || j.GetHistory()[49].GetSeq() != 60 {
				t.Errorf("history has %d lines, want the last 50 up to 60", n)
			}
			if want := []string{"ann", "bob"}; !slices.Equal(j.GetMembers(), want) {
				t.Errorf("members %v, want %v", j.GetMembers(), want)
			}
			waitPresence(t, presence, "bob", true)
			if again := join(t, bob, room); len(again.GetMembers()) != 2 {
				t.Errorf("joining twice gave members %v", again.GetMembers())
			}
			ztest.Call[chatpb.Left](t, bob, &chatpb.Leave{Room: room})
			waitPresence(t, presence, "bob", false)
			for _, bad := range []struct {
				req  proto.Message
				code chatpb.Code
			}{
				{&chatpb.Say{Room: room, Text: "not here"}, chatpb.Code_CODE_NOT_MEMBER},
				{&chatpb.Join{Room: "no spaces"}, chatpb.Code_CODE_BAD_ROOM},
				{&chatpb.Join{}, chatpb.Code_CODE_BAD_ROOM},
			} {
				if err := bob.Request(t.Context(), bad.req, nil); zmsg.CodeOf(err) != zmsg.Code(bad.code) {
					t.Errorf("%v: %v, want code %v", bad.req, err, bad.code)
				}
			}
			for _, text := range []string{"", "  ", strings.Repeat("x", 501)} {
				if err := ann.Request(t.Context(), &chatpb.Say{Room: room, Text: text}, nil); zmsg.CodeOf(err) != zmsg.Code(chatpb.Code_CODE_BAD_TEXT) {
					t.Errorf("text of %d: %v, want bad text", len(text), err)
				}
			}
		})
	}
}

// A client that goes without a word is out of its rooms, and the others hear of it; so it is when its gate's node goes.
func TestLostClientsLeave(t *testing.T) {
	c := ztest.Cluster(t, 2, chat.App())
	ann, bob, cyd := c.Client("ann", 0), c.Client("bob", 1), c.Client("cyd", 1)
	room := roomOn(t, ann, "n1")
	join(t, bob, room)
	join(t, cyd, room)
	presence := ztest.Watch[chatpb.Presence](t, ann)
	if err := bob.Close(); err != nil {
		t.Fatal(err)
	}
	waitPresence(t, presence, "bob", false)
	c.Stop(1)
	waitPresence(t, presence, "cyd", false)
	if m := ztest.Call[chatpb.Members](t, ann, &chatpb.Who{Room: room}); !slices.Equal(m.GetMembers(), []string{"ann"}) {
		t.Errorf("members %v, want ann alone", m.GetMembers())
	}
}

// The shard that takes a room over goes on where the other stopped: history, numbers and members.
func TestRoomMovesWithItsNode(t *testing.T) {
	c := ztest.Cluster(t, 2, chat.App(), ztest.RealServers())
	ann := c.Client("ann", 0)
	lines := ztest.Watch[chatpb.Line](t, ann)
	room := roomOn(t, ann, "n2")
	for i := range 5 {
		ztest.Call[chatpb.Said](t, ann, &chatpb.Say{Room: room, Text: fmt.Sprint("line ", i+1)})
	}
	c.Stop(1)
	c.Settle()
	said := ztest.Call[chatpb.Said](t, ann, &chatpb.Say{Room: room, Text: "line 6"})
	if said.GetSeq() != 6 {
		t.Errorf("after the move the line got seq %d, want 6", said.GetSeq())
	}
	for i := range 6 {
		if l := lines.Next(); l.GetSeq() != uint64(i+1) {
			t.Errorf("line %d came with seq %d", i+1, l.GetSeq())
		}
	}
	bob := c.Client("bob", 0)
	j := join(t, bob, room)
	if len(j.GetHistory()) != 6 || j.GetNode() != "n1" || !slices.Equal(j.GetMembers(), []string{"ann", "bob"}) {
		t.Errorf("joined %d lines on %s with %v, want 6 on n1 with ann and bob", len(j.GetHistory()), j.GetNode(), j.GetMembers())
	}
	k := c.Add()
	c.Settle()
	said = ztest.Call[chatpb.Said](t, bob, &chatpb.Say{Room: room, Text: "line 7"})
	if said.GetSeq() != 7 {
		t.Errorf("with node %d added the line got seq %d, want 7", k, said.GetSeq())
	}
}

// A frame for an unknown id is answered with its own seq; garbage closes the connection it came by, with a code and a
// reason; everybody else goes on.
func TestStrangeBytesHurtNobodyElse(t *testing.T) {
	c := ztest.Cluster(t, 2, chat.App())
	ann := c.Client("ann", 0)
	room := roomOn(t, ann, "n2")
	eve := dialForeign(t, c.Node(0).GateURL(), "eve")
	eve.send(&wirepb.Frame{Kind: wirepb.FrameKind_FRAME_KIND_REQUEST, Id: 424242, Seq: 77, Body: []byte("?")})
	f := wait(t, eve.failed)
	if zmsg.Code(f.GetCode()) != zmsg.CodeNoRoute || f.GetSeq() != 77 || zmsg.Outcome(f.GetOutcome()) != zmsg.NotExecuted {
		t.Errorf("unknown id: %v, want no route, seq 77, not executed", f)
	}
	// A body that is not what the id says, through to the other node's actor.
	id, _ := zmsg.IDOf(&chatpb.Say{})
	eve.send(&wirepb.Frame{Kind: wirepb.FrameKind_FRAME_KIND_REQUEST, Id: id, Seq: 78, Body: []byte{0x0a, 0x7f, 'x'}})
	if f := wait(t, eve.failed); zmsg.Code(f.GetCode()) != zmsg.CodeBadRequest || f.GetSeq() != 78 {
		t.Errorf("a broken body: %v, want bad request, seq 78", f)
	}
	for _, garbage := range []string{"garbage", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", ""} {
		g := dialForeign(t, c.Node(0).GateURL(), "gus")
		if err := g.ws.Write(t.Context(), websocket.MessageBinary, []byte(garbage)); err != nil {
			t.Fatal(err)
		}
		err := wait(t, g.ended)
		var closed websocket.CloseError
		if !errors.As(err, &closed) || closed.Code != 3502 || closed.Reason == "" {
			t.Errorf("garbage %q: %v, want close code 3502 with a reason", garbage, err)
		}
	}
	ztest.Call[chatpb.Said](t, ann, &chatpb.Say{Room: room, Text: "unmoved"})
	eve.join(room)
}

func wait[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(30 * time.Second):
		t.Fatal("nothing came")
		panic("not reached")
	}
}

// waitPresence waits until the room says that user came or went; a room tells everybody, the newcomer too.
func waitPresence(t *testing.T, w *ztest.Pushes[chatpb.Presence, *chatpb.Presence], user string, here bool) {
	t.Helper()
	w.Until(fmt.Sprint("presence of ", user, ": ", here), func(p *chatpb.Presence) bool { return p.GetUser() == user && p.GetHere() == here })
}

// golden returns the bytes of a packet of the golden frames that hold every client language to the same wire.
func golden(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("../../zmsg/testdata/golden/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []struct{ Name, Type, Hex string }
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	for _, g := range list {
		if g.Name == name && g.Type == "zgame.v1.Packet" {
			b, err := hex.DecodeString(g.Hex)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
	}
	t.Fatalf("no golden packet %q", name)
	return nil
}

// The golden frames, sent as they are, mean to a real gate what they say: ann logs in, and says "hello" in "go".
func TestGoldenFramesAtARealGate(t *testing.T) {
	c := ztest.Cluster(t, 2, chat.App())
	bob := c.Client("bob", 1)
	join(t, bob, "go")
	lines := ztest.Watch[chatpb.Line](t, bob)
	ann := dialForeign(t, c.Node(0).GateURL(), "ann")
	ann.join("go")
	if err := ann.ws.Write(t.Context(), websocket.MessageBinary, golden(t, "request")); err != nil {
		t.Fatal(err)
	}
	if seq := wait(t, ann.said); seq != 7 {
		t.Errorf("the response has seq %d, want the golden request's 7", seq)
	}
	if l := lines.Next(); l.GetFrom() != "ann" || l.GetText() != "hello" {
		t.Errorf("bob got %v, want hello from ann", l)
	}
}

// foreign is a client that shares nothing with zclient: another websocket library, login by the golden frame, and other
// frames by the generated code.
type foreign struct {
	t      *testing.T
	ws     *websocket.Conn
	oracle ztest.Oracle
	joined chan struct{}
	said   chan uint64
	failed chan *wirepb.Frame
	ended  chan error
}

func dialForeign(t *testing.T, gate, user string) *foreign {
	t.Helper()
	if _, err := url.Parse(gate); err != nil {
		t.Fatal(err)
	}
	ws, _, err := websocket.Dial(t.Context(), gate, &websocket.DialOptions{Subprotocols: []string{zmsg.SubprotocolPB}})
	if err != nil {
		t.Fatal(err)
	}
	f := &foreign{t: t, ws: ws, joined: make(chan struct{}, 1), said: make(chan uint64, 2000), failed: make(chan *wirepb.Frame, 10), ended: make(chan error, 1)}
	if len(user) != len("ann") {
		t.Fatalf("user %q: the golden hello has room for a name of 3 letters", user)
	}
	hello := bytes.Replace(golden(t, "hello"), []byte("ann"), []byte(user), 1)
	if err := ws.Write(t.Context(), websocket.MessageBinary, hello); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { // ends when the test closes the connection
		defer close(done)
		f.read()
	}()
	t.Cleanup(func() { ws.CloseNow(); <-done })
	return f
}

func (f *foreign) send(frames ...*wirepb.Frame) {
	b, err := proto.Marshal(&wirepb.Packet{Frames: frames})
	if err == nil {
		err = f.ws.Write(context.Background(), websocket.MessageBinary, b)
	}
	if err != nil {
		f.t.Error(err)
	}
}

func (f *foreign) request(seq uint64, m proto.Message) {
	body, _ := proto.Marshal(m)
	id, _ := zmsg.IDOf(m)
	f.send(&wirepb.Frame{Kind: wirepb.FrameKind_FRAME_KIND_REQUEST, Id: id, Seq: seq, Body: body})
}

func (f *foreign) read() {
	lineID, _ := zmsg.IDOf(&chatpb.Line{})
	for {
		_, b, err := f.ws.Read(context.Background())
		if err != nil {
			f.ended <- err
			return
		}
		var p wirepb.Packet
		if err := proto.Unmarshal(b, &p); err != nil {
			f.t.Error(err)
			return
		}
		for _, fr := range p.GetFrames() {
			switch fr.GetKind() {
			case wirepb.FrameKind_FRAME_KIND_RESPONSE:
				switch {
				case fr.GetCode() != 0:
					f.failed <- fr
				case fr.GetSeq() == 1:
					f.joined <- struct{}{}
				default:
					f.said <- fr.GetSeq()
				}
			case wirepb.FrameKind_FRAME_KIND_PUSH:
				if fr.GetId() == lineID {
					l := &chatpb.Line{}
					if err := proto.Unmarshal(fr.GetBody(), l); err != nil {
						f.t.Error(err)
					}
					if l.GetText() != "hello" { // the golden request's
						note(f.t, &f.oracle, l)
					}
				}
			default: // control: Welcome and what comes with time
			}
		}
	}
}

func (f *foreign) join(room string) {
	f.t.Helper()
	f.request(1, &chatpb.Join{Room: room})
	select {
	case <-f.joined:
	case e := <-f.failed:
		f.t.Fatalf("join: %v", e)
	case <-time.After(30 * time.Second):
		f.t.Fatal("join: no answer")
	}
}

// say says lines, 16 requests in flight.
func (f *foreign) say(room string, lines int) {
	inFlight := 0
	for n := 1; n <= lines; n++ {
		f.request(uint64(n+1), &chatpb.Say{Room: room, Text: fmt.Sprint("cyd ", n)})
		if inFlight++; inFlight == 16 {
			f.acknowledged()
			inFlight--
		}
	}
	for ; inFlight > 0; inFlight-- {
		f.acknowledged()
	}
}

func (f *foreign) acknowledged() {
	select {
	case <-f.said:
	case e := <-f.failed:
		f.t.Errorf("say: %v", e)
	case <-time.After(30 * time.Second):
		f.t.Error("say: no answer")
	}
}
