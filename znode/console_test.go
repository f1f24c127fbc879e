package znode_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"zgame/examples/chat"
	"zgame/examples/chat/chatpb"
	"zgame/zclient"
	"zgame/znode"
	"zgame/zrouter"
)

// What the admin port lists for operators, and a console beside it that is off where it is not set.
func TestOperatorsLists(t *testing.T) {
	rig := newRig()
	app := chat.App()
	cfg := rig.config("a", app)
	cfg.Settings.Console.Address, cfg.Settings.Console.ReadToken, cfg.Settings.Actors.Measure = "127.0.0.1:0", "a-token-of-readers", true
	n := start(t, cfg)
	off := start(t, rig.config("b", app))
	if off.ConsoleAddr() != "" {
		t.Errorf("a console without console.address at %s", off.ConsoleAddr())
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ann, err := zclient.Dial(ctx, zclient.Config{URL: n.GateURL(), Token: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ann.Close() }()
	if _, err := zclient.Call[chatpb.Joined](ctx, ann, &chatpb.Join{Room: "lobby"}); err != nil {
		t.Fatal(err)
	}
	ask := func(n *znode.Node, path string, v any) (status int, text string) {
		t.Helper()
		res, err := http.Get("http://" + n.AdminAddr() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if v != nil {
			if err := json.Unmarshal(b, v); err != nil {
				t.Errorf("%s: %s: %v", path, b, err)
			}
		}
		return res.StatusCode, string(b)
	}
	var sessions znode.SessionsStatus
	if ask(n, "/sessions?match=ann", &sessions); sessions.All != 1 || len(sessions.Sessions) != 1 || sessions.Sessions[0].User != "ann" || sessions.Sessions[0].Remote == "" {
		t.Errorf("sessions: %+v", sessions)
	}
	if ask(off, "/sessions?match=ann", &sessions); sessions.All != 0 {
		t.Errorf("sessions at the other gate: %+v", sessions)
	}
	found := 0
	for _, x := range []*znode.Node{n, off} {
		var objects znode.ObjectsStatus
		ask(x, "/objects?match=lobby&kind=rooms", &objects)
		for _, o := range objects.Objects {
			if found++; o.Key.ID != "lobby" || o.Kind != "rooms" || o.Version != 1 || o.Phase != "active" {
				t.Errorf("objects: %+v", o)
			}
			var history []zrouter.Passage
			q := url.Values{"type": {"100"}, "id": {"lobby"}}
			if ask(x, "/history?"+q.Encode(), &history); len(history) != 1 || history[0].What != "loaded" || history[0].Version != 1 {
				t.Errorf("history: %+v", history)
			}
			var handlers []znode.HandlerStatus
			if ask(n, "/handlers", &handlers); x == n && (len(handlers) == 0 || handlers[0].Handled == 0 || handlers[0].P99 == 0) {
				t.Errorf("handlers: %+v", handlers)
			}
		}
	}
	if found != 1 {
		t.Errorf("%d nodes have the room", found)
	}
	var charts struct{ Charts []struct{ Values []*float64 } }
	if ask(n, "/charts", &charts); len(charts.Charts) < 10 || len(charts.Charts[0].Values) == 0 {
		t.Errorf("charts: %+v", charts)
	}
	if status, text := ask(off, "/charts", nil); status != http.StatusNotFound || !strings.Contains(text, "console.address") {
		t.Errorf("charts of a node without a console: %d %s", status, text)
	}
	var line znode.DrainLine
	if ask(n, "/drain?since=0", &line); line.Step != znode.DrainServing || len(line.Passages) == 0 {
		t.Errorf("the drain with what came and went: %+v", line)
	}
	if ask(n, "/drain", &line); line.Step != znode.DrainServing {
		t.Errorf("the drain: %+v", line)
	}
	for path, want := range map[string]string{
		"/sessions?n=0": "1 to 1000", "/objects?n=1001": "1 to 1000", "/history?n=x": "1 to 1000", "/history?since=-1": "since=-1", "/history?id=a&type=x": "x/0/a", "/drain?since=x": "since=x",
	} {
		if status, text := ask(n, path, nil); status != http.StatusBadRequest || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	// The console asks the nodes, for who has the token.
	for token, want := range map[string]int{"a-token-of-readers": http.StatusOK, "a-token-of-nobody!": http.StatusUnauthorized} {
		q, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.ConsoleAddr()+"/api/each/node", http.NoBody)
		q.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != want || want == http.StatusOK && !strings.Contains(string(b), `"state":"ready"`) {
			t.Errorf("%s: %s %s", token, res.Status, b)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// What is wrong with the settings of a console: it is never open by accident, nor without a token.
func TestConsoleSettings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change func(s *znode.Settings)
		want   string
	}{
		{func(s *znode.Settings) { s.Console.Address = "127.0.0.1:9190" }, "without them nobody could look"},
		{func(s *znode.Settings) { s.Console.Address, s.Console.ReadToken = "nowhere", "a-token-of-readers" }, "console.address \"nowhere\": expected host:port"},
		{func(s *znode.Settings) { s.Console.ReadToken = "short" }, "console.read_token: expected at least 16"},
		{func(s *znode.Settings) { s.Console.Address, s.Console.ReadToken = ":9190", "a-token-of-readers" }, "console.insecure_plaintext"},
		{func(s *znode.Settings) {
			s.Console.Address, s.Console.ReadToken, s.Admin.Address = "127.0.0.1:9190", "a-token-of-readers", ""
		}, "expected admin.address too"},
		{func(s *znode.Settings) {
			s.Console.Address, s.Console.ReadToken, s.Console.InsecurePlaintext = ":9190", "a-token-of-readers", true
		}, ""},
		{func(s *znode.Settings) {
			s.Console.Address, s.Console.OperatorToken = "127.0.0.1:9190", "a-token-of-operators"
		}, ""},
	} {
		s := znode.DefaultSettings()
		c.change(&s)
		err := s.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", s.Console, err, c.want)
		}
		if strings.Contains(s.Text(), "a-token") {
			t.Error("a token is printed")
		}
	}
}

// What the charts of an hour cost: this each 5 s.
func BenchmarkCharts(b *testing.B) {
	rig := newRig()
	n, err := znode.New(rig.config("a", chat.App()))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	if err := n.Start(ctx); err != nil {
		b.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = n.Stop(ctx)
	}()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := n.GatherSums(); err != nil {
			b.Fatal(err)
		}
	}
}
