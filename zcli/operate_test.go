package zcli

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"zgame/internal/adminport"
	"zgame/zclient"
	"zgame/zdiscovery"
	"zgame/znode"
)

// What operators ask a cluster of two nodes: who is there, where a user and an object are, to move an object, to kick a user.
func TestOperations(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	d := startDev(ctx, t)
	defer func() {
		cancel()
		<-d.code
	}()
	gates := regexp.MustCompile(`gate   (ws://\S+)`).FindAllStringSubmatch(d.out.text(), -1)
	if len(gates) != 2 {
		t.Fatalf("the banner:\n%s", d.out.text())
	}
	ann, err := zclient.Dial(ctx, zclient.Config{URL: gates[1][1], Token: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ann.Close() }() // she may be gone already
	env := []string{"ZGAME_ETCD_ENDPOINTS=" + d.etcd}
	run := func(want int, args ...string) string {
		t.Helper()
		got, out, errs := try(t, env, args...)
		if got != want {
			t.Errorf("%v: exit code %d, want %d\n%s%s", args, got, want, out, errs)
		}
		return out + errs
	}
	owner := regexp.MustCompile(`zuser/ann: (n[12])@\S+ has it; route version (\d+)`)
	was := owner.FindStringSubmatch(run(0, "inspect", "object", "zuser/ann"))
	if was == nil {
		t.Fatal("nobody has the object of who is logged in")
	}
	other := map[string]string{"n1": "n2", "n2": "n1"}[was[1]]
	kind := strings.Split(run(1, "inspect", "object", "room/x"), "they host ")
	if len(kind) != 2 || !strings.Contains(kind[1], "[zuser]") {
		t.Errorf("an unknown kind: %v", kind)
	}
	for _, c := range []struct {
		code int
		args []string
		want []string
	}{
		{2, []string{"inspect", "ann"}, []string{"expected nothing, or actors, or object KEY, or user USER"}},
		{2, []string{"inspect", "thing", "ann"}, []string{"expected nothing, or actors, or object KEY, or user USER"}},
		{2, []string{"inspect", "actors", "--follow"}, []string{"--follow: expected object KEY, or user USER"}},
		{0, []string{"inspect", "actors"}, []string{"QUEUED", "zuser", "0 of 1024", "idle"}},
		{0, []string{"inspect", "actors", "nobody"}, []string{"QUEUED"}},
		{0, []string{"call", "zgame.user.v1.Look", "--object", "zuser/ann"}, []string{"zgame.user.v1.Sessions", `"sessions"`, `"gate"`}},
		{1, []string{"call", "zgame.user.v1.Look", "--object", "zuser/nobody"}, []string{"not_found", "not_executed"}},
		{1, []string{"call", "zgame.user.v1.Lok"}, []string{"did you mean zgame.user.v1.Look?"}},
		{1, []string{"call", "zgame.user.v1.Look", `{"x": 1}`, "--object", "zuser/ann"}, []string{"no zgame.user.v1.Look in JSON", "x"}},
		{1, []string{"call", "zgame.user.v1.Look", "--object", "zusers/ann"}, []string{`did you mean "zuser"?`}},
		{2, []string{"call"}, []string{"expected MESSAGE"}},
		{2, []string{"move", "zuser/ann"}, []string{"expected KEY and NODE"}},
		{2, []string{"kick"}, []string{"expected one USER"}},
		{1, []string{"inspect", "--timeout", "-1s"}, []string{"--timeout -1s: expected a span of time above 0"}},
		{0, []string{"move", "-h"}, []string{"KIND/ZONE/ID", "-admin"}},
		{0, []string{"inspect"}, []string{"NODE", "SESSIONS", "n1@", "n2@", "ready", "s  "}},
		{0, []string{"inspect", "--admin", d.admins[0]}, []string{"n1@", "ready"}},
		{0, []string{"doctor", "--config", d.settings}, []string{"servers     bus, discovery and store answer", "node n1", "node n2", "names       message ids and kinds mean the same"}},
		{2, []string{"doctor", "now"}, []string{`unexpected argument "now"`}},
		{0, []string{"inspect", "user", "ann"}, []string{"ann: session", "at the gate of n2@"}},
		{0, []string{"inspect", "user", "nobody at/all"}, []string{"nobody at/all is not logged in"}},
		{1, []string{"inspect", "object", "zuser/nobody"}, []string{"404"}},
		{1, []string{"inspect", "object", "zuser"}, []string{`the key "zuser": expected KIND/ID`}},
		{0, []string{"inspect", "object", "zuser/ann", "--admin", d.admins[0]}, []string{"zuser/ann: " + was[1]}},
		{1, []string{"inspect", "object", "zusers/ann", "--admin", d.admins[0]}, []string{`did you mean "zuser"?`}},
		{1, []string{"move", "zuser/ann", "n9"}, []string{"404", `there is no node "n9"`}},
		{1, []string{"move", "zuser/nobody", "n1"}, []string{"404"}},
		{0, []string{"move", "zuser/ann", was[1]}, []string{was[1] + "@", "already"}},
		{0, []string{"move", "zuser/ann", other}, []string{was[1] + "@", "gave it up; " + other + "@"}},
		{2, []string{"kick", "ann", "--code", "1000"}, []string{`--code 1000: expected 4000 to 4999`}},
		{1, []string{"kick", "nobody"}, []string{"nobody is not logged in"}},
		{0, []string{"kick", "ann", "--code", "4321", "--text", "see you & good bye"}, []string{"ann: 1 sessions closed with code 4321"}},
	} {
		out := run(c.code, c.args...)
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%v lacks %q:\n%s", c.args, want, out)
			}
		}
	}
	var status znode.NodeStatus
	if err := adminport.Fetch(ctx, d.admins[0], http.MethodGet, "/node", &status); err != nil || status.Up <= 0 || status.Up > 2*time.Minute || time.Since(status.Started) > 2*time.Minute ||
		len(status.Kinds) != 1 || status.Node.ID != "n1" {
		t.Errorf("%+v, %v", status, err)
	}
	n := examineNode(ctx, zdiscovery.Node{Ref: status.Node, Admin: d.admins[0]})
	if n.Err != nil || n.Rate < 0.2 || n.Rate > 5 || n.Skew.Abs() > time.Minute {
		t.Errorf("its clock: %+v", n)
	}
	if code, out, _ := try(t, append(env, "ZGAME_START_TIMEOUT=1s"), "doctor"); code != 1 || !strings.Contains(out, "FAULT") || !strings.Contains(out, "the store") {
		t.Errorf("no store where the settings say one is: exit code %d\n%s", code, out)
	}
	if now := run(0, "inspect", "object", "zuser/0/ann"); !strings.Contains(now, "zuser/0/ann: "+other+"@") {
		t.Errorf("after the move: %s", now)
	}
	select {
	case <-ann.Done():
		if why := ann.State().Reason; why == nil || why.Code != 4321 || why.Text != "see you & good bye" {
			t.Errorf("ann's client: %+v", why)
		}
	case <-ctx.Done():
		t.Error("ann was not kicked")
	}
}
