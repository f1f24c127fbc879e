package otlp

import (
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	pb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/ztrace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A collector gets spans with the ids that they have here, under the parents that other nodes have sent, with what the environment says of the service.
func TestCollectorGetsSpans(t *testing.T) {
	var mu sync.Mutex
	var got []*pb.ResourceSpans
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		var req collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(b, &req)
		}
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("x-key") != "secret" {
			t.Errorf("%s with %v: %v", r.URL, r.Header, err)
		}
		mu.Lock()
		got = append(got, req.GetResourceSpans()...)
		mu.Unlock()
		w.WriteHeader(http.StatusOK)
	}))
	defer server.Close()
	if Wanted() {
		t.Fatal("the environment of this test names a collector")
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=secret")
	t.Setenv("OTEL_SERVICE_NAME", "renamed")
	if !Wanted() {
		t.Fatal("a collector is named")
	}
	e, err := New(t.Context(), "game", "v1", zmsg.NodeRef{ID: "n1", Epoch: 9})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Unix(1_700_000_000, 5)
	trace := zmsg.TraceID{1, 15: 2}
	for _, s := range []ztrace.Span{
		{Trace: trace, ID: 7, Kind: ztrace.Request, Name: "chat.Say", User: "ann", Start: start, Duration: time.Second, Result: "ok", Session: zmsg.SessionRef{ID: 1 << 63}},
		{Trace: trace, ID: 8, Parent: 7, Kind: ztrace.Handler, Name: "chat.Say", Start: start, Duration: 5, Result: "busy", Key: zmsg.Key{Type: 1, ID: "go"}, Version: 3, Wait: time.Millisecond},
		{Trace: trace, ID: 9, Parent: 8, Kind: ztrace.Push, Name: "chat.Line", Start: start, Result: "ok", Sessions: 4},
	} {
		e.Export(&s)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := e.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()

	spans := map[string]*pb.Span{}
	for _, r := range got {
		resource := ""
		for _, a := range r.GetResource().GetAttributes() {
			resource += a.GetKey() + "=" + a.GetValue().GetStringValue() + " "
		}
		for _, want := range []string{"service.name=renamed ", "service.version=v1 ", "service.instance.id=n1@9 "} {
			if !strings.Contains(resource, want) {
				t.Errorf("the resource is %s: expected %s", resource, want)
			}
		}
		for _, scope := range r.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				spans[s.GetName()] = s
			}
		}
	}
	for _, want := range []struct {
		name, id, parent string
		kind             pb.Span_SpanKind
		status           pb.Status_StatusCode
		attribute, value string
	}{
		{"request chat.Say", "0000000000000007", "", pb.Span_SPAN_KIND_SERVER, pb.Status_STATUS_CODE_UNSET, "enduser.id", "ann"},
		{"handler chat.Say", "0000000000000008", "0000000000000007", pb.Span_SPAN_KIND_INTERNAL, pb.Status_STATUS_CODE_ERROR, "zgame.object", "1/0/go"},
		{"push chat.Line", "0000000000000009", "0000000000000008", pb.Span_SPAN_KIND_PRODUCER, pb.Status_STATUS_CODE_UNSET, "zgame.result", "ok"},
	} {
		s := spans[want.name]
		if s == nil {
			t.Errorf("%s did not come", want.name)
			continue
		}
		if id := hex.EncodeToString(s.GetSpanId()); id != want.id || hex.EncodeToString(s.GetParentSpanId()) != want.parent ||
			zmsg.TraceID(s.GetTraceId()) != trace || s.GetKind() != want.kind || s.GetStatus().GetCode() != want.status || s.GetStartTimeUnixNano() != uint64(start.UnixNano()) {
			t.Errorf("%s came as %v", want.name, s)
		}
		found := false
		for _, a := range s.GetAttributes() {
			found = found || a.GetKey() == want.attribute && a.GetValue().GetStringValue() == want.value
		}
		if !found {
			t.Errorf("%s has no %s=%s: %v", want.name, want.attribute, want.value, s.GetAttributes())
		}
	}
	if s := spans["request chat.Say"]; s != nil && s.GetEndTimeUnixNano()-s.GetStartTimeUnixNano() != uint64(time.Second) {
		t.Errorf("it took %d ns: expected a second", s.GetEndTimeUnixNano()-s.GetStartTimeUnixNano())
	}
}

// What the environment says wrong is named; a collector that is not there holds nobody up.
func TestEnvironment(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	for name, value := range map[string]string{"OTEL_TRACES_EXPORTER": "jaeger", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if _, err := New(t.Context(), "game", "v1", zmsg.NodeRef{ID: "n1"}); err == nil || !strings.Contains(err.Error(), value) || !strings.Contains(err.Error(), name) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("off", func(t *testing.T) {
		t.Setenv("OTEL_TRACES_EXPORTER", "none")
		if Wanted() {
			t.Error("it is off")
		}
	})
	t.Run("disabled", func(t *testing.T) {
		t.Setenv("OTEL_SDK_DISABLED", "TRUE")
		if Wanted() {
			t.Error("it is off")
		}
	})
	t.Run("away", func(t *testing.T) {
		t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
		e, err := New(t.Context(), "game", "v1", zmsg.NodeRef{ID: "n1"})
		if err != nil {
			t.Fatal(err)
		}
		e.Export(&ztrace.Span{Trace: zmsg.TraceID{1}, ID: 1, Start: time.Now()})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if e.Shutdown(ctx) == nil {
			t.Error("the span was lost without a word")
		}
	})
}
