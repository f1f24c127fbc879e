package zcli

import (
	"context"
	"regexp"
	"testing"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zclient"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/ztrace"
)

// A trace is drawn as what led to what, in the order of time, whatever the order in which nodes sent it; garbage is drawn too, once.
func TestTraceText(t *testing.T) {
	t.Parallel()
	at := func(ms int) time.Time { return time.Date(2026, 11, 30, 10, 0, 0, ms*1e6, time.Local) }
	n1, n2 := zmsg.NodeRef{ID: "n1"}, zmsg.NodeRef{ID: "n2"}
	key := zmsg.Key{Type: 100, ID: "go"}
	got := traceText([]ztrace.Span{
		{ID: 4, Parent: 2, Kind: ztrace.Push, Name: "chat.Line", Node: n1, Start: at(4), Duration: 15 * time.Microsecond, Key: key, Version: 3, Sessions: 2, Result: "ok"},
		{ID: 3, Parent: 2, Kind: ztrace.Save, Name: "rooms", Node: n2, Start: at(3), Duration: 1234567, Key: key, Version: 3, Result: "ok"},
		{ID: 2, Parent: 1, Kind: ztrace.Handler, Name: "chat.Say", Node: n2, Start: at(2), Duration: time.Second, Wait: 20 * time.Microsecond, Key: key, Version: 3, Result: "busy"},
		{ID: 1, Kind: ztrace.Request, Name: "chat.Say", Node: n1, Start: at(1), Duration: 2 * time.Millisecond, User: "ann", Result: "busy"},
		{ID: 7, Parent: 99, Kind: ztrace.Handler, Name: "x", Node: n1, Start: at(9), ActorName: "clock", Result: "ok"},
		{ID: 8, Parent: 9, Kind: ztrace.Handler, Name: "round", Node: n1, Start: at(9)},
		{ID: 9, Parent: 8, Kind: ztrace.Handler, Name: "round", Node: n1, Start: at(9)},
	})
	want := `10:00:00.001  request chat.Say from ann at n1: busy in 2ms
10:00:00.002    handler chat.Say of 100/0/go, version 3 at n2: busy in 1s after 20µs in the mailbox
10:00:00.003      save rooms of 100/0/go, version 3 at n2: ok in 1.23ms
10:00:00.004      push chat.Line of 100/0/go, version 3 to 2 sessions at n1: ok in 15µs
10:00:00.009  handler x by clock at n1: ok in 0s
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// An operator follows a user at two nodes; what the user asks for is printed, also when nobody handles it.
func TestInspectFollow(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	d := startDev(ctx, t)
	defer func() {
		cancel()
		<-d.code
	}()
	gates := regexp.MustCompile(`gate   (ws://\S+)`).FindAllStringSubmatch(d.out.text(), -1)
	ann, err := zclient.Dial(ctx, zclient.Config{URL: gates[1][1], Token: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ann.Close() }()
	for _, c := range []struct{ what, key, want string }{
		{"user", "ann", "request chat.Who from ann at n2: no_route in"},
		{"object", "zuser/ann", "handler zgame.user.v1.Look of "},
	} {
		out, errs := newWatch(c.want), newWatch("following at 2 nodes")
		life, end := context.WithCancel(ctx)
		code := make(chan int, 1)
		go func() { // ends with life
			code <- Run(life, Env{Name: "game", Stdout: out, Stderr: errs, Environ: []string{"ZGAME_ETCD_ENDPOINTS=" + d.etcd}}, znode.App{Name: "test"},
				[]string{"inspect", c.what, c.key, "--follow"})
		}()
		select {
		case <-errs.seen:
		case got := <-code:
			t.Fatalf("ended with %d: %s", got, errs.text())
		}
		if c.what == "user" {
			if _, err := zclient.Call[chatpb.Members](ctx, ann, &chatpb.Who{Room: "x"}); zmsg.CodeOf(err) != zmsg.CodeNoRoute {
				t.Errorf("got %v", err)
			}
		} else if code, _, errs := try(t, []string{"ZGAME_ETCD_ENDPOINTS=" + d.etcd}, "call", "zgame.user.v1.Look", "--object", c.key); code != 0 {
			t.Error(errs)
		}
		select {
		case <-out.seen:
		case <-ctx.Done():
			t.Errorf("%s: nothing came: %s", c.what, out.text())
		}
		end()
		if got := <-code; got != 0 {
			t.Errorf("ended with %d: %s", got, errs.text())
		}
	}
}
