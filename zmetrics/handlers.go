package zmetrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Handlers is what zactor.Measure counts, for each message that a handler handles. Labels are full names of messages: as
// many as the program has.
type Handlers struct {
	// Handled counts messages by message and result: ok, deferred (answered later), or the code.
	Handled CounterVec
	// Seconds is how long handlers ran, by message: of every request, and of one in 32 one-way messages of each actor.
	Seconds HistogramVec

	of sync.Map // message -> *Handler
}

// Handler is what Handlers counts for one message.
type Handler struct {
	Seconds Histogram

	ok      Counter
	handled *prometheus.CounterVec // of the message
}

// NewHandlers makes the set; reg may be nil.
func NewHandlers(reg Registerer) *Handlers {
	m := maker{reg, "handler"}
	return &Handlers{
		Handled: m.counterVec("handled_total", "Messages handled, by message and result.", "msg", "result"),
		Seconds: m.durationVec("seconds", "Duration of handlers, by message.", "msg"),
	}
}

// Of returns what counts for a message, always the same.
func (s *Handlers) Of(message string) *Handler {
	if h, ok := s.of.Load(message); ok {
		return h.(*Handler)
	}
	h := &Handler{
		Seconds: s.Seconds.With(message),
		ok:      s.Handled.With(message, "ok"),
		handled: s.Handled.v.MustCurryWith(prometheus.Labels{"msg": message}),
	}
	actual, _ := s.of.LoadOrStore(message, h)
	return actual.(*Handler)
}

// OK counts a message whose handler went well.
func (h *Handler) OK() { h.ok.Inc() }

// Result counts a message by how its handler ended.
func (h *Handler) Result(result string) { h.handled.WithLabelValues(result).Inc() }
