package chat_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
	"zgame/znode"
	"zgame/zrouter"
	"zgame/ztest"
	"zgame/zuser"
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
	zclient.On(c, func(l *chatpb.Line) {
		if l.GetKind() == chatpb.LineKind_LINE_KIND_SAID {
			note(t, o, l)
		}
	})
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
	c := ztest.Cluster(t, 2, chat.With(chat.Options{Rate: -1}), ztest.RealServers())
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
	c := ztest.Cluster(t, 2, chat.With(chat.Options{Rate: -1}))
	ann, bob := c.Client("ann", 0), c.Client("bob", 1)
	for _, node := range []string{"n1", "n2"} {
		t.Run(node, func(t *testing.T) {
			lines := ztest.Watch[chatpb.Line](t, ann)
			room := roomOn(t, ann, node)
			for i := range 60 {
				if said := ztest.Call[chatpb.Said](t, ann, &chatpb.Say{Room: room, Text: fmt.Sprint("ann ", i+1)}); said.GetSeq() != uint64(i+2) {
					t.Fatalf("line %d got seq %d", i+1, said.GetSeq())
				}
			}
			j := join(t, bob, room)
			if n := len(j.GetHistory()); n != 50 || j.GetHistory()[49].GetSeq() != 62 {
				t.Errorf("history has %d lines, want the last 50 up to 62", n)
			}
			if want := []string{"ann", "bob"}; !slices.Equal(j.GetMembers(), want) {
				t.Errorf("members %v, want %v", j.GetMembers(), want)
			}
			waitNotice(lines, room, "bob", came)
			if again := join(t, bob, room); len(again.GetMembers()) != 2 || again.GetHistory()[49].GetSeq() != 62 {
				t.Errorf("joining twice gave members %v, line %v", again.GetMembers(), again.GetHistory()[49])
			}
			hole := ztest.Call[chatpb.Lines](t, bob, &chatpb.History{Room: room, After: 3, Before: 7}).GetLines()
			if len(hole) != 3 || hole[0].GetSeq() != 4 || hole[2].GetText() != "ann 5" {
				t.Errorf("between 3 and 7 there is %v", hole)
			}
			ztest.Call[chatpb.Left](t, bob, &chatpb.Leave{Room: room})
			waitNotice(lines, room, "bob", left)
			for _, bad := range []struct {
				req  proto.Message
				code zmsg.Code
			}{
				{&chatpb.Say{Room: room, Text: "not here"}, zmsg.Code(chatpb.Code_CODE_NOT_MEMBER)},
				{&chatpb.History{Room: room}, zmsg.Code(chatpb.Code_CODE_NOT_MEMBER)},
				{&chatpb.Join{Room: "no spaces"}, zmsg.Code(chatpb.Code_CODE_BAD_ROOM)},
				{&chatpb.Say{Room: "nobody-is-here", Text: "hello?"}, zmsg.CodeNotFound},
			} {
				if err := bob.Request(t.Context(), bad.req, nil); zmsg.CodeOf(err) != bad.code {
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

// A client that goes without a word is out of its rooms, and the others hear of it, once; so it is when its gate's node goes.
func TestLostClientsLeave(t *testing.T) {
	c := ztest.Cluster(t, 2, chat.App())
	ann, bob, cyd := c.Client("ann", 0), c.Client("bob", 1), c.Client("cyd", 1)
	seen := gather(ann)
	room := roomOn(t, ann, "n1")
	join(t, bob, room)
	join(t, cyd, room)
	if err := bob.Close(); err != nil {
		t.Fatal(err)
	}
	seen.until(t, room, []string{"ann came", "bob came", "cyd came", "bob left"})
	c.Stop(1)
	seen.until(t, room, []string{"ann came", "bob came", "cyd came", "bob left", "cyd left"})
	if m := ztest.Call[chatpb.Members](t, ann, &chatpb.Who{Room: room}); !slices.Equal(m.GetMembers(), []string{"ann"}) {
		t.Errorf("members %v, want ann alone", m.GetMembers())
	}
}

// A room goes on where the other node has left it: history, numbers and members; nobody joins again.
func TestRoomMovesWithItsNode(t *testing.T) {
	c := ztest.Cluster(t, 2, chat.App(), ztest.RealServers())
	ann := c.Client("ann", 0)
	seen := gather(ann)
	moved := ztest.Watch[chatpb.Where](t, ann)
	room := roomOn(t, ann, "n2")
	for i := range 5 {
		ztest.Call[chatpb.Said](t, ann, &chatpb.Say{Room: room, Text: fmt.Sprint("line ", i+1)})
	}
	c.Stop(1)
	c.Settle()
	if w := moved.Next(); w.GetNode() != "n1" || w.GetVersion() != 2 || w.GetPauseMs() <= 0 {
		t.Errorf("moved to %v", w)
	}
	if said := ztest.Call[chatpb.Said](t, ann, &chatpb.Say{Room: room, Text: "line 6"}); said.GetSeq() != 7 {
		t.Errorf("after the move the line got seq %d, want 7", said.GetSeq())
	}
	seen.until(t, room, []string{"ann came", "ann: line 1", "ann: line 2", "ann: line 3", "ann: line 4", "ann: line 5", "ann: line 6"})
	bob := c.Client("bob", 0)
	j := join(t, bob, room)
	if len(j.GetHistory()) != 8 || j.GetNode() != "n1" || !slices.Equal(j.GetMembers(), []string{"ann", "bob"}) {
		t.Errorf("joined %d lines on %s with %v, want 8 on n1 with ann and bob", len(j.GetHistory()), j.GetNode(), j.GetMembers())
	}
}

// Rooms move to and fro while people speak, come and go: nobody at any gate loses a line, or gets one twice, or two in the wrong order.
func TestRoomsMoveWhilePeopleSpeak(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 3, chat.With(chat.Options{Rate: -1}))
	const people, each, moves = 6, 40, 12
	room := zmsg.Key{Type: chat.Type, ID: "go"}
	var all []*zclient.Client
	var seen []*told
	for i := range people {
		all = append(all, c.Client(fmt.Sprint("p", i), i%3))
		seen = append(seen, gather(all[i]))
		join(t, all[i], "go")
	}
	guest := c.Client("guest", 2)
	var wg sync.WaitGroup
	for i, cl := range all {
		wg.Go(func() {
			for n := range each {
				if _, err := zclient.Call[chatpb.Said](t.Context(), cl, &chatpb.Say{Room: "go", Text: fmt.Sprint(n)}); err != nil {
					t.Errorf("p%d: %v", i, err)
				}
			}
		})
	}
	wg.Go(func() {
		for range 10 {
			join(t, guest, "go")
			ztest.Call[chatpb.Left](t, guest, &chatpb.Leave{Room: "go"})
		}
	})
	for range moves {
		from := c.OwnerOf(room)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		_, err := c.Node(from).Objects().Transfer(ctx, room, c.Node((from+1)%3).Self())
		cancel()
		if err != nil && !errors.Is(err, zrouter.ErrHandoff) && !errors.Is(err, zrouter.ErrMoved) {
			t.Error(err)
		}
	}
	wg.Wait()
	last := ztest.Call[chatpb.Said](t, all[0], &chatpb.Say{Room: "go", Text: "over"}).GetSeq()
	if want := uint64(people + people*each + 20 + 1); last != want {
		t.Errorf("there are %d lines, want %d", last, want)
	}
	for i, s := range seen {
		ztest.Eventually(t, "all lines have come", func() bool { return s.newest("go") == last })
		seqs := s.seqs("go")
		for k, n := range seqs {
			if n != seqs[0]+uint64(k) {
				t.Fatalf("p%d heard %v", i, seqs)
			}
		}
	}
}

// The node of a room is killed: what was acknowledged is there, under its number, and who has asked again for what he did not know the end of has said it
// once. Nobody joins again; the notices are told once.
func TestRoomOfAKilledNode(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 3, chat.With(chat.Options{Rate: -1}), ztest.Settings(func(k int, s *znode.Settings) {
		if k == 0 {
			s.Logic.Router.Hosts = nil // a gate alone
		}
	}))
	ann, bob := c.Client("ann", 0), c.Client("bob", 0)
	seen := gather(bob)
	room := roomOn(t, ann, "n2")
	join(t, bob, room)
	acked := map[string]uint64{}
	for i := range 60 {
		text := fmt.Sprint("line ", i)
		for { // as a client that does not give up
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			said, err := zclient.Call[chatpb.Said](ctx, ann, &chatpb.Say{Room: room, Text: text, Once: text})
			cancel()
			if err == nil {
				acked[text] = said.GetSeq()
				break
			}
			if !zmsg.CodeOf(err).Retry() {
				t.Fatal(err)
			}
		}
		if i == 30 {
			c.Kill(1)
		}
	}
	lines := ztest.Call[chatpb.Lines](t, bob, &chatpb.History{Room: room}).GetLines()
	if len(lines) != 62 {
		t.Errorf("%d lines, want two that came and 60", len(lines))
	}
	for _, l := range lines {
		if l.GetKind() == chatpb.LineKind_LINE_KIND_SAID && acked[l.GetText()] != l.GetSeq() {
			t.Errorf("%q was acknowledged as %d and is %d", l.GetText(), acked[l.GetText()], l.GetSeq())
		}
	}
	ztest.Eventually(t, "the last line comes by a push", func() bool { return seen.newest(room) == lines[len(lines)-1].GetSeq() })
	if !seen.agree(room, lines) {
		t.Errorf("pushed were %v", seen.texts(room))
	}
}

// A client comes to another gate, while its own drains: it is in the room as before, nobody reads that it has left, and nothing is lost.
func TestMembersGoFromGateToGate(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 3, chat.With(chat.Options{Rate: -1}))
	ann := c.Client("ann", 0)
	seen := gather(ann)
	var to atomic.Pointer[string]
	lead := func(k int) {
		u, err := url.Parse(c.Node(k).GateURL())
		if err != nil {
			t.Fatal(err)
		}
		to.Store(&u.Host)
	}
	lead(1)
	bob, err := zclient.Dial(t.Context(), zclient.Config{
		URL: "ws://gate.example/ws", Token: "bob", RequestTimeout: 30 * time.Second, MinBackoff: 5 * time.Millisecond, MaxBackoff: 50 * time.Millisecond,
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, *to.Load())
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bob.Close(); <-bob.Done() })
	heard := gather(bob)
	before := bob.Session().Ref
	join(t, ann, "go")
	join(t, bob, "go")
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 60 {
			for _, cl := range []*zclient.Client{ann, bob} {
				ztest.Call[chatpb.Said](t, cl, &chatpb.Say{Room: "go", Text: fmt.Sprint(i)})
			}
		}
	})
	lead(2)
	c.Stop(1)
	wg.Wait()
	if now := bob.Session().Ref; now.ID != before.ID || now.Gate == before.Gate {
		t.Errorf("bob's session was %v and is %v", before, now)
	}
	const lines = 2 + 120
	for who, g := range map[string]*told{"ann": seen, "bob": heard} {
		ztest.Eventually(t, "all lines have come to "+who, func() bool { return g.newest("go") == lines })
		seqs := g.seqs("go")
		for k, n := range seqs {
			if n != seqs[0]+uint64(k) {
				t.Fatalf("%s heard %v", who, seqs)
			}
		}
		if slices.Contains(g.texts("go"), "bob left") {
			t.Errorf("%s reads that bob has left", who)
		}
	}
	_ = bob.Close()
	ztest.Eventually(t, "bob has left", func() bool { return slices.Contains(seen.texts("go"), "bob left") })
	if m := ztest.Call[chatpb.Members](t, ann, &chatpb.Who{Room: "go"}).GetMembers(); !slices.Equal(m, []string{"ann"}) {
		t.Errorf("there are %q", m)
	}
}

// S12: two and three join at once where there is room for two.
func TestRoomIsFull(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 2, chat.With(chat.Options{Members: 2}))
	for _, people := range []int{2, 3, 5} {
		room := fmt.Sprint("room-", people)
		var in atomic.Int64
		var wg sync.WaitGroup
		for i := range people {
			cl := c.Client(fmt.Sprint("u", people, i), i%2)
			wg.Go(func() {
				switch _, err := zclient.Call[chatpb.Joined](t.Context(), cl, &chatpb.Join{Room: room}); {
				case err == nil:
					in.Add(1)
				case zmsg.CodeOf(err) != zmsg.Code(chatpb.Code_CODE_FULL):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if in.Load() != 2 {
			t.Errorf("of %d there are %d in", people, in.Load())
		}
	}
}

// Whispers are kept for both: for who is not there, who comes back elsewhere, and while boxes move; each once, however often it is sent.
func TestWhispersAreKept(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 3, chat.With(chat.Options{Burst: 1000}))
	ann, bob := c.Client("ann", 0), c.Client("bob", 1)
	ztest.Call[chatpb.WhispersKept](t, bob, &chatpb.Whispers{})
	_ = bob.Close()
	ztest.Eventually(t, "bob has gone", func() bool {
		_, err := c.Node(0).Users().Sessions(t.Context(), "bob")
		return errors.Is(err, zuser.ErrNotInServer)
	})
	var want []string
	for i := range 6 {
		text := fmt.Sprint("whisper ", i)
		want = append(want, text)
		for range 2 {
			ztest.Call[chatpb.Whispered](t, ann, &chatpb.Whisper{To: "bob", Text: text, Once: text})
		}
		for _, user := range []string{"ann", "bob"} {
			k := zmsg.Key{Type: chat.BoxType, ID: user}
			from := c.OwnerOf(k)
			if _, err := c.Node(from).Objects().Transfer(t.Context(), k, c.Node((from+1)%3).Self()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, cl := range []*zclient.Client{ann, c.Client("bob", 2)} {
		var got []string
		for _, w := range ztest.Call[chatpb.WhispersKept](t, cl, &chatpb.Whispers{}).GetWhispers() {
			if w.GetFrom() != "ann" || w.GetTo() != "bob" || w.GetAtMs() == 0 {
				t.Errorf("%v", w)
			}
			got = append(got, w.GetText())
		}
		if !slices.Equal(got, want) {
			t.Errorf("client %d is told %q", i, got)
		}
	}
	// A box forgets the oldest.
	for i := range 250 {
		ztest.Call[chatpb.Whispered](t, ann, &chatpb.Whisper{To: "ann", Text: fmt.Sprint(i), Once: fmt.Sprint(i)})
	}
	if w := ztest.Call[chatpb.WhispersKept](t, ann, &chatpb.Whispers{}).GetWhispers(); len(w) != 200 || w[0].GetText() != "50" || w[199].GetText() != "249" {
		t.Errorf("%d are kept, from %v", len(w), w[0])
	}
}

// A whisper reaches one user, at whatever node, in order, and says where there is nobody; what is said too fast, or is not wanted, is refused; that
// somebody types is told to the others.
func TestWhispersAndManners(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 2, chat.With(chat.Options{Rate: 0.001, Burst: 10, Clean: func(_, text string) (string, error) {
		if text == "spam" {
			return "", zmsg.Errorf(zmsg.Code(chatpb.Code_CODE_BAD_TEXT), "no spam")
		}
		return strings.ReplaceAll(text, "darn", "****"), nil
	}}))
	ann, bob := c.Client("ann", 0), c.Client("bob", 1)
	whispers, typing, lines := ztest.Watch[chatpb.Whispered](t, bob), ztest.Watch[chatpb.Typing](t, bob), ztest.Watch[chatpb.Line](t, bob)
	refused := func(req proto.Message, code zmsg.Code) {
		t.Helper()
		if err := ann.Request(t.Context(), req, nil); zmsg.CodeOf(err) != code {
			t.Errorf("%v: %v, want code %v", req, err, code)
		}
	}
	refused(&chatpb.Whisper{To: "nobody", Text: "hello?"}, zmsg.Code(chatpb.Code_CODE_NOBODY))
	ztest.Call[chatpb.WhispersKept](t, bob, &chatpb.Whispers{})
	for i := range 9 {
		ztest.Call[chatpb.Whispered](t, ann, &chatpb.Whisper{To: "bob", Text: fmt.Sprint("darn ", i)})
	}
	for i := range 9 {
		if w := whispers.Next(); w.GetFrom() != "ann" || w.GetText() != fmt.Sprint("**** ", i) {
			t.Errorf("whispered %v", w)
		}
	}
	refused(&chatpb.Whisper{To: "bob", Text: "too much"}, zmsg.CodeRateLimited)
	refused(&chatpb.Whisper{To: "bob", Text: "spam"}, zmsg.Code(chatpb.Code_CODE_BAD_TEXT))
	join(t, ann, "go")
	join(t, bob, "go")
	if err := ann.Send(&chatpb.Typing{Room: "go"}); err != nil {
		t.Fatal(err)
	}
	if p := typing.Next(); p.GetUser() != "ann" || p.GetRoom() != "go" {
		t.Errorf("typing: %v", p)
	}
	refused(&chatpb.Say{Room: "go", Text: "spam"}, zmsg.Code(chatpb.Code_CODE_BAD_TEXT))
	for i := range 10 {
		ztest.Call[chatpb.Said](t, ann, &chatpb.Say{Room: "go", Text: fmt.Sprint("darn ", i)})
	}
	refused(&chatpb.Say{Room: "go", Text: "too much"}, zmsg.CodeRateLimited)
	lines.Until("a line", func(l *chatpb.Line) bool { return l.GetText() == "**** 9" })
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

const (
	came = chatpb.LineKind_LINE_KIND_CAME
	left = chatpb.LineKind_LINE_KIND_LEFT
)

// waitNotice waits until the room says that user came or left; a room tells everybody, the newcomer too.
func waitNotice(w *ztest.Pushes[chatpb.Line, *chatpb.Line], room, user string, kind chatpb.LineKind) {
	w.Until(fmt.Sprint(user, ": ", kind), func(l *chatpb.Line) bool { return l.GetRoom() == room && l.GetFrom() == user && l.GetKind() == kind })
}

// told is the lines that a client got.
type told struct {
	mu    sync.Mutex
	lines []*chatpb.Line
}

func gather(c *zclient.Client) *told {
	g := &told{}
	zclient.On(c, func(l *chatpb.Line) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.lines = append(g.lines, l)
	})
	return g
}

func (g *told) of(room string) (all []*chatpb.Line) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.lines {
		if l.GetRoom() == room {
			all = append(all, l)
		}
	}
	return all
}

func (g *told) seqs(room string) (all []uint64) {
	for _, l := range g.of(room) {
		all = append(all, l.GetSeq())
	}
	return all
}

func (g *told) newest(room string) uint64 {
	if all := g.seqs(room); len(all) > 0 {
		return slices.Max(all)
	}
	return 0
}

func text(l *chatpb.Line) string {
	switch l.GetKind() {
	case came:
		return l.GetFrom() + " came"
	case left:
		return l.GetFrom() + " left"
	default:
		return l.GetFrom() + ": " + l.GetText()
	}
}

func (g *told) texts(room string) (all []string) {
	for _, l := range g.of(room) {
		all = append(all, text(l))
	}
	return all
}

// agree reports that what came is what the room has, from where it began, but for what came twice.
func (g *told) agree(room string, has []*chatpb.Line) bool {
	at := map[uint64]string{}
	for _, l := range has {
		at[l.GetSeq()] = text(l)
	}
	last := uint64(0)
	for _, l := range g.of(room) {
		if at[l.GetSeq()] != text(l) || last != 0 && l.GetSeq() > last+1 {
			return false
		}
		last = max(last, l.GetSeq())
	}
	return true
}

// until waits until the lines of a room are those, and no others.
func (g *told) until(t *testing.T, room string, want []string) {
	t.Helper()
	ztest.Eventually(t, fmt.Sprint("the lines are ", want), func() bool { return len(g.texts(room)) >= len(want) })
	if got := g.texts(room); !slices.Equal(got, want) {
		t.Fatalf("the lines are %q, want %q", got, want)
	}
}

// golden returns the bytes of a packet of the golden frames that hold every client language to the same wire.
func golden(t *testing.T, name string) []byte {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "zgame").Output() // elsewhere, where this is a copy
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "zmsg", "testdata", "golden", "golden.json"))
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
	lines.Until("hello of ann", func(l *chatpb.Line) bool { return l.GetFrom() == "ann" && l.GetText() == "hello" })
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
					if l.GetText() != "hello" && l.GetKind() == chatpb.LineKind_LINE_KIND_SAID { // the golden request's
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
