package ztest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"zgame/examples/chat"
	"zgame/examples/chat/chatpb"
	"zgame/zclient"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/ztest"
	"zgame/ztrace"
)

// spanList is what followers of several nodes have got.
type spanList struct {
	mu    sync.Mutex
	spans []ztrace.Span
}

func (l *spanList) add(s ztrace.Span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spans = append(l.spans, s)
}

// of returns the spans of a kind and a name.
func (l *spanList) of(k ztrace.Kind, name string) (all []ztrace.Span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.spans {
		if s.Kind == k && s.Name == name {
			all = append(all, s)
		}
	}
	return all
}

func (l *spanList) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.spans)
}

// follow follows at all nodes, by their admin ports, until stop.
func follow(t *testing.T, c *ztest.Nodes, query url.Values) (l *spanList, stop func()) {
	t.Helper()
	l = &spanList{}
	ctx, cancel := context.WithCancel(context.Background())
	var readers sync.WaitGroup
	for k := range c.Len() {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.Node(k).AdminAddr()+"/follow?"+query.Encode(), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != http.StatusOK {
			b, _ := io.ReadAll(res.Body)
			t.Fatalf("%s: %s", res.Status, b)
		}
		readers.Go(func() {
			defer res.Body.Close()
			d := json.NewDecoder(res.Body)
			for {
				var s ztrace.Span
				if d.Decode(&s) != nil {
					return
				}
				l.add(s)
			}
		})
	}
	stop = sync.OnceFunc(func() { cancel(); readers.Wait() })
	t.Cleanup(stop)
	return l, stop
}

// A request of who is followed is seen at each place that it leads to: its gate, the object at another node, the save, the pushes at both gates; nobody
// else's is. The line that others get has not waited for any of that.
func TestFollowAUser(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 2, chat.App(), ztest.Settings(func(_ int, s *znode.Settings) { s.Trace.Enabled = true }))
	ann, bob := c.Client("ann", 0), c.Client("bob", 1)
	room := ""
	for i := 0; room == ""; i++ { // at ann's other node
		name := "room-" + strconv.Itoa(i)
		if j := ztest.Call[chatpb.Joined](t, ann, &chatpb.Join{Room: name}); j.GetNode() == c.Node(1).Self().ID {
			room = name
		}
	}
	ztest.Call[chatpb.Joined](t, bob, &chatpb.Join{Room: room})

	spans, stop := follow(t, c, url.Values{"user": {"ann"}})
	told := make(chan struct{}, 1)
	zclient.On(ann, func(l *chatpb.Line) {
		if l.GetText() == "not followed" {
			told <- struct{}{}
		}
	})
	ztest.Call[chatpb.Said](t, bob, &chatpb.Say{Room: room, Text: "not followed"})
	<-told // else one turn may tell both lines, which then is not of ann's request
	ztest.Call[chatpb.Said](t, ann, &chatpb.Say{Room: room, Text: "hello"})
	name := "chat.Say"
	ztest.Eventually(t, "all of ann's request is seen", func() bool {
		n := 0
		for _, s := range spans.of(ztrace.Push, "chat.Line") {
			n += s.Sessions
		}
		return n == 2 && len(spans.of(ztrace.Request, name)) == 1
	})
	request, handler, save := spans.of(ztrace.Request, name), spans.of(ztrace.Handler, name), spans.of(ztrace.Save, "rooms")
	if len(request) != 1 || len(handler) != 1 || len(save) != 1 {
		t.Fatalf("requests %+v, handlers %+v, saves %+v: expected one each", request, handler, save)
	}
	r, h, s := request[0], handler[0], save[0]
	if r.Parent != 0 || r.User != "ann" || r.Node != c.Node(0).Self() || r.Result != "ok" || r.Duration <= 0 || r.Session.IsZero() {
		t.Errorf("the request is %+v", r)
	}
	if h.Parent != r.ID || h.Node != c.Node(1).Self() || h.Key.ID != room || h.Version == 0 || h.Result != "ok" || h.User != "ann" || h.Wait <= 0 {
		t.Errorf("the handler is %+v", h)
	}
	if s.Parent != h.ID || s.Node != c.Node(1).Self() || s.Key != h.Key || s.Result != "ok" {
		t.Errorf("the save is %+v", s)
	}
	gates := map[zmsg.NodeRef]bool{}
	for _, p := range spans.of(ztrace.Push, "chat.Line") {
		gates[p.Node] = true
		if p.Parent != h.ID || p.Key != h.Key || p.Result != "ok" || p.Start.Before(s.Start) {
			t.Errorf("a push is %+v", p)
		}
	}
	if len(gates) != 2 {
		t.Errorf("pushes are seen at the gates %v: expected both", gates)
	}
	for _, x := range slices.Concat(request, handler, save) {
		if x.Trace != r.Trace {
			t.Errorf("%+v is of another trace", x)
		}
	}

	stop()
	seen := spans.len()
	ztest.Eventually(t, "nobody follows any more", func() bool { // the nodes see that the connection is gone
		return !c.Node(0).Tracer().Sample(zmsg.TraceID{}, "ann")
	})
	ztest.Call[chatpb.Said](t, ann, &chatpb.Say{Room: room, Text: "alone again"})
	if spans.len() != seen {
		t.Error("spans came after the end")
	}
}

// What an object handles is seen, whoever asks; of the others nothing.
func TestFollowAnObject(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 2, chat.App(), ztest.Settings(func(_ int, s *znode.Settings) { s.Trace.Enabled = true }))
	ann, bob := c.Client("ann", 0), c.Client("bob", 1)
	key := zmsg.Key{Type: chat.Type, ID: "a"}
	spans, _ := follow(t, c, url.Values{"type": {strconv.Itoa(int(key.Type))}, "id": {"a"}})
	for _, room := range []string{"a", "b"} {
		ztest.Call[chatpb.Joined](t, ann, &chatpb.Join{Room: room})
		ztest.Call[chatpb.Joined](t, bob, &chatpb.Join{Room: room})
	}
	ztest.Eventually(t, "both joins are seen", func() bool { return len(spans.of(ztrace.Handler, "chat.Join")) == 2 })
	for _, s := range spans.of(ztrace.Handler, "chat.Join") {
		if s.Key != key || s.Trace.IsZero() {
			t.Errorf("%+v", s)
		}
	}
}

// With a share of 1 every request is recorded, each by one trace; metrics count it.
func TestTraceShare(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 1, chat.App(), ztest.Settings(func(_ int, s *znode.Settings) { s.Trace.Enabled, s.Trace.Share = true, 1 }))
	ann := c.Client("ann", 0)
	spans, _ := follow(t, c, url.Values{"user": {"nobody"}})
	ztest.Call[chatpb.Joined](t, ann, &chatpb.Join{Room: "a"})
	const n = 20
	for range n {
		ztest.Call[chatpb.Members](t, ann, &chatpb.Who{Room: "a"})
	}
	ztest.Eventually(t, "all are seen", func() bool { return len(spans.of(ztrace.Request, "chat.Who")) == n })
	traces := map[zmsg.TraceID]bool{}
	for _, s := range spans.of(ztrace.Request, "chat.Who") {
		traces[s.Trace] = true
	}
	if len(traces) != n {
		t.Errorf("%d requests have %d traces", n, len(traces))
	}
	res, err := http.Get("http://" + c.Node(0).AdminAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || !bytes.Contains(b, []byte(`zgame_trace_spans_total{kind="request"} `+strconv.Itoa(n+1))) {
		t.Errorf("the metrics say %s (%v)", b, err)
	}
}

// Bad queries are named; a node where tracing is off says so; a node that stops lets go of who follows.
func TestFollowIsRefused(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 2, chat.App(), ztest.Settings(func(k int, s *znode.Settings) { s.Trace.Enabled = k == 0 }))
	for _, x := range []struct {
		node   int
		query  string
		status int
		text   string
	}{
		{0, "", http.StatusBadRequest, "expected ?user="},
		{0, "type=x&id=a", http.StatusBadRequest, "where type (the number of the kind) and zone are numbers"},
		{0, "type=1", http.StatusBadRequest, "expected ?user="},
		{1, "user=ann", http.StatusNotFound, "trace.enabled"},
	} {
		res, err := http.Get("http://" + c.Node(x.node).AdminAddr() + "/follow?" + x.query)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != x.status || !strings.Contains(string(b), x.text) {
			t.Errorf("%q: %s %s", x.query, res.Status, b)
		}
	}
	res, err := (&http.Client{Timeout: time.Minute}).Get("http://" + c.Node(0).AdminAddr() + "/follow?user=ann")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	c.Stop(0)
	if b, err := io.ReadAll(res.Body); err != nil || len(b) != 0 {
		t.Errorf("the stream ended with %q, %v", b, err)
	}
}
