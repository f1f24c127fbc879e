// Package otlp gives the spans of ztrace to an OpenTelemetry collector.
//
// Where it is and how it is spoken to is said by the standard environment variables: OTEL_EXPORTER_OTLP_ENDPOINT (or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT), OTEL_EXPORTER_OTLP_PROTOCOL (http/protobuf, the default, or grpc), OTEL_EXPORTER_OTLP_HEADERS,
// OTEL_EXPORTER_OTLP_CERTIFICATE, OTEL_BSP_* for the batches, OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES; OTEL_TRACES_EXPORTER=none and
// OTEL_SDK_DISABLED=true turn it off. What is recorded is not said by them, but by the Tracer.
//
// # Goroutines
//
// One, of the library's batches, until Shutdown.
//
// # Failure
//
// A collector that does not answer costs spans, never requests: at most OTEL_BSP_MAX_QUEUE_SIZE (2,048) wait, the library drops the others and logs
// its errors by otel.SetErrorHandler.
package otlp
