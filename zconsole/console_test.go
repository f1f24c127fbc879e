package zconsole

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"zgame/examples/chat/chatpb"
	"zgame/internal/adminport"
	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/ztrace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	readToken    = "reader-reader-reader"
	operateToken = "operator-operator-op"
)

// rig is a console, and what stands for the admin port of its two nodes.
type rig struct {
	t     *testing.T
	c     *Console
	http  *httptest.Server
	log   *syncBuffer
	mu    sync.Mutex
	asked []string // method and address; guarded by mu
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newRig(t *testing.T, admin http.HandlerFunc) *rig {
	t.Helper()
	r := &rig{t: t, log: new(syncBuffer)}
	port := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		r.asked = append(r.asked, q.Method+" "+q.URL.RequestURI())
		r.mu.Unlock()
		admin(w, q)
	}))
	messages, err := zmsg.NewRegistry(chatpb.File_chat_chat_proto)
	if err != nil {
		t.Fatal(err)
	}
	nodes := []zdiscovery.Node{
		{Ref: zmsg.NodeRef{ID: "n10", Epoch: 2}, State: zdiscovery.Ready, Admin: strings.TrimPrefix(port.URL, "http://")},
		{Ref: zmsg.NodeRef{ID: "n2", Epoch: 1}, State: zdiscovery.Draining},
	}
	r.c, err = New(Config{
		App: "test", ReadToken: readToken, OperatorToken: operateToken, Node: "n10", Messages: messages,
		Nodes: func() []zdiscovery.Node { return nodes }, Logger: slog.New(slog.NewTextHandler(r.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.http = httptest.NewServer(r.c.Handler())
	t.Cleanup(func() {
		r.c.Close()
		r.http.Close()
		port.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return r
}

func (r *rig) do(method, path, token, body string) (status int, text string) {
	r.t.Helper()
	q, err := http.NewRequestWithContext(r.t.Context(), method, r.http.URL+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func (r *rig) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.asked...)
}

// Who may do what: nobody nothing, readers look, operators act. What is refused does not reach a node.
func TestRoles(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, map[string]any{}) })
	looks := []string{"/api/me", "/api/each/node", "/api/each/actors?match=x", "/api/node/n10/history", "/api/object?type=1&id=a", "/api/messages", "/api/messages/chat.Say"}
	acts := []string{"/api/move?type=1&id=a&to=n10", "/api/kick?user=ann", "/api/drain?node=n10", "/api/call?message=chat.Who"}
	for _, token := range []string{"", "wrong-wrong-wrong-wrong", readToken[1:], "x" + readToken, "Bearer", operateToken + operateToken} {
		for _, path := range append(append([]string{}, looks...), "/api/trace?user=ann", "/api/drain/n10") {
			if status, text := r.do(http.MethodGet, path, token, ""); status != http.StatusUnauthorized || !strings.Contains(text, "console.read_token") {
				t.Errorf("GET %s with %q: %d %s", path, token, status, text)
			}
		}
		for _, path := range acts {
			if status, _ := r.do(http.MethodPost, path, token, ""); status != http.StatusUnauthorized {
				t.Errorf("POST %s with %q: %d", path, token, status)
			}
		}
	}
	for _, path := range acts {
		if status, text := r.do(http.MethodPost, path, readToken, ""); status != http.StatusForbidden || !strings.Contains(text, "console.operator_token") {
			t.Errorf("POST %s by a reader: %d %s", path, status, text)
		}
		if status, _ := r.do(http.MethodGet, path, operateToken, ""); status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
			t.Errorf("GET %s: %d", path, status)
		}
	}
	if asked := r.seen(); len(asked) != 0 {
		t.Errorf("nodes were asked on behalf of nobody: %q", asked)
	}
	for _, token := range []string{readToken, operateToken} {
		for _, path := range looks {
			if status, text := r.do(http.MethodGet, path, token, ""); status != http.StatusOK {
				t.Errorf("GET %s with %s: %d %s", path, token, status, text)
			}
		}
	}
	for _, asked := range r.seen() {
		if !strings.HasPrefix(asked, "GET ") {
			t.Errorf("a look is no look: %s", asked)
		}
	}
	for _, path := range acts[1:] {
		if status, text := r.do(http.MethodPost, path, operateToken, "{}"); status != http.StatusOK {
			t.Errorf("POST %s by an operator: %d %s", path, status, text)
		}
	}
	// Each action has a line, so has what was refused; no line has a token.
	log := r.log.String()
	for _, want := range []string{"action=kick", "action=drain", "action=call", "refused, for a reader", "a wrong token", "role=operator", `what="user=ann"`} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
	if strings.Contains(log, readToken) || strings.Contains(log, operateToken) {
		t.Errorf("a token is in the log:\n%s", log)
	}
	if n := strings.Count(log, "a wrong token"); n > 5 {
		t.Errorf("%d lines about wrong tokens: guessing fills the log", n)
	}
}

// Nothing else than what stands in the lists is handed through, whatever a path looks like.
func TestNothingElseIsHandedThrough(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, map[string]any{}) })
	for _, path := range []string{
		"/api/each/metrics", "/api/each/drain", "/api/each/..%2Fdrain", "/api/each/debug%2Fpprof", "/api/node/n10/drain", "/api/node/n10/..%2Fdrain", "/api/node/n9/history", "/api/each/node%3Fx", "/api/messages/no.Such",
		"/api/drain/n9", "/page/index.html", "/console.go",
	} {
		if status, text := r.do(http.MethodGet, path, operateToken, ""); status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if asked := r.seen(); len(asked) != 0 {
		t.Errorf("nodes were asked: %q", asked)
	}
	// Ids are escaped: they are parts of paths, never paths.
	for _, id := range []string{"../../drain", "a/b", "a?follow=1s", "%2e%2e", "a b\n"} {
		q := fmt.Sprintf("type=1&id=%s", urlEscape(id))
		r.do(http.MethodGet, "/api/object?"+q, operateToken, "")
		r.do(http.MethodPost, "/api/kick?user="+urlEscape(id), operateToken, "")
		r.do(http.MethodPost, "/api/call?message="+urlEscape(id), operateToken, "")
	}
	allowed := regexp.MustCompile(`^(GET /node|GET /objects/1/0/[^/?]+|POST /users/[^/?]+/kick\?code=4000&text=|POST /call/[^/?]+\?)$`)
	for _, asked := range r.seen() {
		if !allowed.MatchString(asked) {
			t.Errorf("a node was asked for %s", asked)
		}
	}
}

func urlEscape(s string) string {
	return strings.NewReplacer("%", "%25", "/", "%2F", "?", "%3F", " ", "%20", "\n", "%0A", "=", "%3D").Replace(s)
}

// Pages of other origins cannot have anything done, even with the token; nothing is cached or framed, no script but ours runs.
func TestHeaders(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, map[string]any{}) })
	q, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, r.http.URL+"/api/drain?node=n10", http.NoBody)
	q.Header.Set("Authorization", "Bearer "+operateToken)
	q.Header.Set("Sec-Fetch-Site", "cross-site")
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusForbidden || len(r.seen()) != 0 {
		t.Errorf("a request of another page: %s, %q", res.Status, r.seen())
	}
	q, _ = http.NewRequestWithContext(t.Context(), http.MethodGet, r.http.URL+"/", http.NoBody)
	res, err = http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	csp := res.Header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
		if !strings.Contains(csp, want) {
			t.Errorf("the policy lacks %s: %s", want, csp)
		}
	}
	if strings.Contains(csp, "unsafe") || res.Header.Get("Cache-Control") != "no-store" || res.Header.Get("X-Content-Type-Options") != "nosniff" || res.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("headers: %v", res.Header)
	}
}

// The page makes text of what nodes say: what would make markup or code of it is not in it.
func TestPageMakesNoMarkup(t *testing.T) {
	t.Parallel()
	bad := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|javascript:| style=| on[a-z]+="|<script>|https?://`)
	n := 0
	err := fs.WalkDir(files, "page", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		n++
		b, err := files.ReadFile(path)
		for line := range strings.SplitSeq(string(b), "\n") {
			if found := bad.FindString(line); found != "" && !strings.HasPrefix(line, "//") && !strings.Contains(line, "http://www.w3.org/2000/svg") {
				t.Errorf("%s has %s: %s", path, found, line)
			}
		}
		return err
	})
	if err != nil || n < 10 {
		t.Errorf("%d files, %v", n, err)
	}
}

// One node that is away, answers rubbish or too much takes nothing from the others.
func TestEach(t *testing.T) {
	t.Parallel()
	answer := `{"user": "<script>alert(1)</script>"}`
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) })
	ask := func() (list []NodeAnswer) {
		status, text := r.do(http.MethodGet, "/api/each/sessions?match=a%26b&n=3", readToken, "")
		if err := json.Unmarshal([]byte(text), &list); err != nil || status != http.StatusOK {
			t.Fatal(status, text, err)
		}
		return list
	}
	list := ask()
	if len(list) != 2 || list[0].ID != "n2" || !strings.Contains(list[0].Error, "no admin port") || list[1].ID != "n10" || list[1].Ref != "n10@2" || list[1].Error != "" {
		t.Errorf("got %+v", list)
	}
	var data map[string]string
	if err := json.Unmarshal(list[1].Data, &data); err != nil || data["user"] != "<script>alert(1)</script>" {
		t.Errorf("what the node says is not what came: %s, %v", list[1].Data, err)
	}
	if asked := r.seen(); len(asked) != 1 || asked[0] != "GET /sessions?match=a%26b&n=3" {
		t.Errorf("asked %q", asked)
	}
	for _, c := range []struct{ answer, want string }{{"rubbish", "no JSON"}, {strings.Repeat(" ", maxAnswer) + "{}", "more than"}} {
		if answer = c.answer; !strings.Contains(ask()[1].Error, c.want) {
			t.Errorf("%.20q: %+v", c.answer, ask()[1].Error)
		}
	}
}

// What an operator is told is what the admin port says, with its status.
func TestActions(t *testing.T) {
	t.Parallel()
	owner := "n10"
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		switch {
		case strings.HasSuffix(q.URL.Path, "/move"):
			owner = q.URL.Query().Get("to")
			_, _ = io.WriteString(w, `{"owner": "n2", "epoch": 1, "version": 8}`)
		case strings.HasPrefix(q.URL.Path, "/objects/"):
			fmt.Fprintf(w, `{"owner": %q, "epoch": 2, "version": 7}`, owner)
		case strings.HasPrefix(q.URL.Path, "/users/nobody"):
			http.Error(w, "who is nobody?", http.StatusNotFound)
		case strings.HasPrefix(q.URL.Path, "/call/chat.Who"):
			b, _ := io.ReadAll(q.Body)
			w.Header().Set("Zgame-Message", "chat.Members")
			fmt.Fprintf(w, `{"got": %s, "query": %q}`, b, q.URL.RawQuery)
		case strings.HasPrefix(q.URL.Path, "/call/chat.Say"):
			http.Error(w, "not_found (code 4, not_executed): no", http.StatusBadGateway)
		case strings.HasPrefix(q.URL.Path, "/call/chat.Off"):
			http.Error(w, "calls are off at this node: set admin.call", http.StatusForbidden)
		default:
			writeJSON(w, http.StatusAccepted, map[string]string{"step": "announcing"})
		}
	})
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/api/move?type=1&id=a%2Fb&to=n2", "", 200, `"to":{"owner":"n2","epoch":1,"version":8}`},
		{"/api/move?type=1&id=a&to=", "", 400, "expected ?to=NODE"},
		{"/api/move?type=x&id=a&to=n2", "", 400, "the key x/0/a: expected TYPE/ZONE/ID"},
		{"/api/move?type=1&to=n2", "", 400, "expected ?type=NUMBER"},
		{"/api/kick?user=nobody", "", 404, `"who is nobody?"`},
		{"/api/kick", "", 400, "expected ?user=USER"},
		{"/api/drain?node=n9", "", 404, "not in the cluster"},
		{"/api/drain?node=n2", "", 404, "no admin port"},
		{"/api/drain?node=n10", "", 200, "announcing"},
		{"/api/call?message=chat.Who&user=a%20b&type=1&zone=2&id=c", `{"room":"x"}`, 200, `"message":"chat.Members","answer":{"got":{"room":"x"},"query":"id=c\u0026type=1\u0026user=a+b\u0026zone=2"}`},
		{"/api/call?message=chat.Say", "", 200, `"error":"not_found (code 4, not_executed): no"`},
		{"/api/call?message=chat.Off", "", 403, "set admin.call"},
	} {
		if status, text := r.do(http.MethodPost, c.path, operateToken, c.body); status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s; want %d %s", c.path, status, text, c.status, c.want)
		}
	}
}

// So many may follow at once; Close ends them, and who goes makes room.
func TestTrace(t *testing.T) {
	t.Parallel()
	span := ztrace.Span{Trace: zmsg.TraceID{1}, ID: 1, User: "ann", Name: "<b>", Start: time.Now(), Result: "ok"}
	other := ztrace.Span{Trace: zmsg.TraceID{2}, ID: 1, User: "bob", Start: time.Now()}
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		e := json.NewEncoder(w)
		_, _ = e.Encode(&other), e.Encode(&span)
		_ = http.NewResponseController(w).Flush()
		<-q.Context().Done()
	})
	follow := func(token string) (*http.Response, context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		q, _ := http.NewRequestWithContext(ctx, http.MethodGet, r.http.URL+"/api/trace?user=ann", http.NoBody)
		q.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		return res, func() { cancel(); res.Body.Close() }
	}
	first, end := follow(readToken)
	defer end()
	d := json.NewDecoder(first.Body)
	var begun, told traceLine
	for _, l := range []*traceLine{&begun, &told} {
		if err := d.Decode(l); err != nil {
			t.Fatal(err)
		}
	}
	if begun.Ports != 1 || len(told.Spans) != 1 || told.Spans[0].Name != "<b>" {
		t.Errorf("got %+v, then %+v", begun, told)
	}
	ends := []context.CancelFunc{}
	for i := range maxStreams - 1 {
		res, end := follow(readToken)
		if ends = append(ends, end); res.StatusCode != http.StatusOK {
			t.Errorf("follower %d: %s", i+2, res.Status)
		}
	}
	if status, text := r.do(http.MethodGet, "/api/trace?user=ann", readToken, ""); status != http.StatusTooManyRequests || !strings.Contains(text, "at once") {
		t.Errorf("one more: %d %s", status, text)
	}
	for _, end := range ends {
		end()
	}
	deadline := time.Now().Add(time.Minute)
	for { // somebody has made room
		res, end := follow(readToken)
		end()
		if res.StatusCode == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("who has gone makes no room")
		}
	}
	r.c.Close()
	var last traceLine
	for {
		if err := d.Decode(&last); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break
		}
	}
	if !strings.Contains(last.Over, "this node stops") {
		t.Errorf("the last line is %+v", last)
	}
}

// Of too many traces in a second some are left out, and counted.
func TestSampler(t *testing.T) {
	t.Parallel()
	var told, skipped int
	s := sampler{tell: func(l traceLine) { skipped += l.Skipped; told += len(l.Spans) }}
	now := time.Unix(1000, 0)
	for i := range 3 * 50 {
		s.take(make([]ztrace.Span, 1), now.Add(time.Duration(i)*20*time.Millisecond))
	}
	s.end()
	if told != 3*traceRate || skipped != 150-told {
		t.Errorf("%d told, %d skipped", told, skipped)
	}
}

// What the console does at once is bounded.
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	hold, held := make(chan struct{}), make(chan struct{}, maxRequests)
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
		held <- struct{}{}
		<-hold
		writeJSON(w, http.StatusOK, map[string]any{})
	})
	var asking sync.WaitGroup
	for range maxRequests {
		asking.Go(func() { r.do(http.MethodGet, "/api/each/node", readToken, "") })
	}
	for range maxRequests {
		<-held
	}
	if status, _ := r.do(http.MethodGet, "/api/me", readToken, ""); status != http.StatusTooManyRequests {
		t.Errorf("one more: %d", status)
	}
	close(hold)
	asking.Wait()
	if status, _ := r.do(http.MethodGet, "/api/me", readToken, ""); status != http.StatusOK {
		t.Errorf("afterwards: %d", status)
	}
}

// A node that hangs takes nothing from the others; one whose address is another node's is not taken for it; readers take no place of operators.
func TestNodesThatHang(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	hung := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hold }))
	defer hung.Close()
	defer close(hold)
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(adminport.NodeHeader, "n10")
		writeJSON(w, http.StatusOK, map[string]any{})
	})
	good, at := r.c.cfg.Nodes()[0], strings.TrimPrefix(hung.URL, "http://")
	nodes := []zdiscovery.Node{
		{Ref: zmsg.NodeRef{ID: "n1", Epoch: 1}, State: zdiscovery.Ready, Admin: at},
		good,
		{Ref: zmsg.NodeRef{ID: "n3", Epoch: 1}, State: zdiscovery.Ready, Admin: good.Admin},
	}
	r.c.cfg.Nodes = func() []zdiscovery.Node { return nodes }
	for range 12 { // more of them than are asked at once
		for range 6 {
			nodes = append(nodes, zdiscovery.Node{Ref: zmsg.NodeRef{ID: fmt.Sprint("h", len(nodes)), Epoch: 1}, State: zdiscovery.Draining, Admin: at})
		}
	}
	nodes = append(nodes, good) // asked behind all that hang
	var acting sync.WaitGroup
	for range maxRequests { // who looks waits for those that hang
		acting.Go(func() { r.do(http.MethodGet, "/api/each/node", readToken, "") })
	}
	if status, text := r.do(http.MethodPost, "/api/kick?user=ann", operateToken, ""); status != http.StatusOK {
		t.Errorf("an action beside readers, and a node that hangs: %d %s", status, text)
	}
	acting.Wait()
	status, text := r.do(http.MethodGet, "/api/each/node", readToken, "")
	var list []NodeAnswer
	if err := json.Unmarshal([]byte(text), &list); err != nil || status != http.StatusOK {
		t.Fatal(status, text, err)
	}
	answered := 0
	for _, a := range list {
		switch {
		case a.ID == "n10" && a.Error == "":
			answered++
		case a.ID == "n3" && !strings.Contains(a.Error, "set admin.url at n3"), a.ID != "n10" && a.Error == "":
			t.Errorf("%s: %s, %q", a.ID, a.Data, a.Error)
		}
	}
	if answered != 2 {
		t.Errorf("%d answers of the node that answers, want both", answered)
	}
}

// So many requests in a second; what was spent comes back.
func TestRate(t *testing.T) {
	t.Parallel()
	var r rate
	now, n := time.Unix(1000, 0), 0
	for range 500 {
		if r.take(now) {
			n++
		}
	}
	if n != 300 || !r.take(now.Add(time.Second/50)) || !r.take(now.Add(time.Second/50)) || r.take(now.Add(time.Second/50)) {
		t.Errorf("%d at once", n)
	}
	if r.take(now.Add(-time.Hour)) || !r.take(now.Add(time.Hour)) {
		t.Error("a clock that is set back, or that went on")
	}
}

// Tokens that are too short, or the same, or none, are refused.
func TestTokens(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ read, operate, want string }{
		{"", "", "without them nobody could look"},
		{"short", "", "console.read_token: expected at least 16"},
		{"", "short", "console.operator_token: expected at least 16"},
		{readToken, readToken, "two different ones"},
		{readToken, "", ""},
		{"", operateToken, ""},
	} {
		_, err := New(Config{ReadToken: c.read, OperatorToken: c.operate})
		if got := fmt.Sprint(err); c.want == "" && err != nil || !strings.Contains(got, c.want) {
			t.Errorf("%q, %q: %v, want %q", c.read, c.operate, err, c.want)
		}
		if err != nil && c.read != "" && strings.Contains(err.Error(), c.read+" ") {
			t.Errorf("the token is in the error: %v", err)
		}
	}
	c, err := New(Config{OperatorToken: operateToken})
	if err != nil || c.roleFor("") != nobody || c.roleFor(operateToken) != operator {
		t.Errorf("with one token alone: %v, %v, %v", c.roleFor(""), c.roleFor(operateToken), err)
	}
}

// A form says what there is to fill in, of messages within too; those that hold themselves come to an end.
func TestForm(t *testing.T) {
	t.Parallel()
	messages, err := zmsg.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := messages.ByName("chat.Say")
	m, _ := messages.New(id)
	f := formOf(messages, id, m.ProtoReflect().Descriptor())
	if f.Name != "chat.Say" || f.ID != id || len(f.Fields) < 2 || f.Fields[0].Name != "room" || f.Fields[0].Kind != "string" || !f.Fields[0].Key {
		t.Errorf("got %+v", f)
	}
	n := 0
	messages.IDs(func(id uint32, name string) {
		m, _ := messages.New(id)
		if f := formOf(messages, id, m.ProtoReflect().Descriptor()); f.Name != name || len(f.Fields) != m.ProtoReflect().Descriptor().Fields().Len() {
			t.Errorf("%s: %+v", name, f)
		}
		n++
	})
	if n < 10 {
		t.Errorf("%d messages", n)
	}
}
