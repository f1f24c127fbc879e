package otlp

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"zgame/zmsg"
	"zgame/ztrace"
)

// Exporter sends spans on. Its methods may be called from any goroutine.
type Exporter struct {
	exporter sdk.SpanExporter
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// Wanted reports whether the environment names a collector, or asks for one.
func Wanted() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return os.Getenv("OTEL_TRACES_EXPORTER") != "" || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// New returns the Exporter of a node of the service, which OTEL_SERVICE_NAME may name otherwise. It does not wait for the collector. Errors: what is
// wrong with the environment.
func New(ctx context.Context, service, version string, node zmsg.NodeRef) (*Exporter, error) {
	if kind := os.Getenv("OTEL_TRACES_EXPORTER"); kind != "" && kind != "otlp" {
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER is %q: expected otlp or none", kind)
	}
	var exporter sdk.SpanExporter
	var err error
	switch protocol := firstOf("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); protocol {
	case "grpc":
		exporter, err = otlptracegrpc.New(ctx)
	case "", "http/protobuf":
		exporter, err = otlptracehttp.New(ctx)
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q: expected http/protobuf or grpc", protocol)
	}
	if err != nil {
		return nil, fmt.Errorf("the exporter of traces: %w", err)
	}
	return with(ctx, exporter, service, version, node)
}

// with is New for any exporter of the library.
func with(ctx context.Context, exporter sdk.SpanExporter, service, version string, node zmsg.NodeRef) (*Exporter, error) {
	res, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", service), attribute.String("service.version", version), attribute.String("service.instance.id", node.String()),
	), resource.WithTelemetrySDK(), resource.WithFromEnv()) // the environment has the last word
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	p := sdk.NewTracerProvider(
		sdk.WithBatcher(exporter), sdk.WithResource(res), sdk.WithIDGenerator(ids{}), sdk.WithSampler(sdk.AlwaysSample()), // they have been chosen
	)
	return &Exporter{exporter: exporter, provider: p, tracer: p.Tracer("zgame")}, nil
}

// Shutdown sends what waits, until ctx ends, and ends the Exporter.
func (e *Exporter) Shutdown(ctx context.Context) error {
	err := e.provider.Shutdown(ctx)
	if ctx.Err() != nil { // the provider leaves what it sends to itself then, for ten seconds and more
		_ = e.exporter.Shutdown(ctx) // ctx is over: it ends that
	}
	return err
}

type spanKey struct{}

// Export sends s on. It does not block, and does not keep s.
func (e *Exporter) Export(s *ztrace.Span) {
	ctx := context.WithValue(context.Background(), spanKey{}, s)
	if s.Parent != 0 {
		ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID(s.Trace), SpanID: spanID(s.Parent), TraceFlags: trace.FlagsSampled, Remote: true,
		}))
	}
	_, x := e.tracer.Start(ctx, s.Kind.String()+" "+s.Name, trace.WithTimestamp(s.Start), trace.WithSpanKind(kinds[s.Kind]), trace.WithAttributes(attributes(s)...))
	if s.Result != "ok" && s.Result != "deferred" {
		x.SetStatus(codes.Error, s.Result)
	}
	x.End(trace.WithTimestamp(s.Start.Add(s.Duration)))
}

var kinds = [...]trace.SpanKind{
	ztrace.Request: trace.SpanKindServer, ztrace.Handler: trace.SpanKindInternal, ztrace.Save: trace.SpanKindClient, ztrace.Push: trace.SpanKindProducer,
}

func attributes(s *ztrace.Span) []attribute.KeyValue {
	all := []attribute.KeyValue{
		attribute.String("zgame.message", s.Name), attribute.String("zgame.node", s.Node.ID), attribute.String("zgame.result", s.Result),
	}
	text := func(key, value string) {
		if value != "" {
			all = append(all, attribute.String(key, value))
		}
	}
	number := func(key string, value int64) {
		if value != 0 {
			all = append(all, attribute.Int64(key, value))
		}
	}
	text("enduser.id", s.User)
	if s.Session.ID != 0 {
		text("zgame.session", fmt.Sprint(s.Session.ID))
	}
	text("zgame.actor", s.ActorName)
	number("zgame.actor.id", int64(s.Actor))
	if s.Key != (zmsg.Key{}) {
		text("zgame.object", s.Key.String())
		number("zgame.route_version", int64(s.Version))
	}
	number("zgame.mailbox_wait_us", s.Wait.Microseconds())
	number("zgame.sessions", int64(s.Sessions))
	return all
}

// ids has the library take the ids that spans have.
type ids struct{}

func spanID(n uint64) (id trace.SpanID) {
	binary.BigEndian.PutUint64(id[:], n)
	return id
}

// NewIDs implements sdktrace.IDGenerator.
func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	s := ctx.Value(spanKey{}).(*ztrace.Span) // Export alone starts spans
	return trace.TraceID(s.Trace), spanID(s.ID)
}

// NewSpanID implements sdktrace.IDGenerator.
func (i ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	_, id := i.NewIDs(ctx)
	return id
}

func firstOf(names ...string) string {
	for _, n := range names {
		if v := os.Getenv(n); v != "" {
			return v
		}
	}
	return ""
}
