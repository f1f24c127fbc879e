package zmetrics

// Trace is what ztrace counts.
type Trace struct {
	Spans CounterVec // recorded, by kind: request, handler, save, push
	Drops CounterVec // spans that were recorded and did not get to whom they were for: follower (it is too slow)
}

// NewTrace makes the set; reg may be nil.
func NewTrace(reg Registerer) *Trace {
	m := maker{reg, "trace"}
	return &Trace{
		Spans: m.counterVec("spans_total", "Spans recorded, by kind.", "kind"),
		Drops: m.counterVec("drops_total", "Spans that did not get to whom they were for, by who is too slow.", "to"),
	}
}
