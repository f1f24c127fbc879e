package zrouter

import (
	"time"

	"zgame/zrouter/internal/entry"
	"zgame/ztrace"
)

// record records a save that has ended, where it is of a handler that was recorded.
func (s *ManagerSet) record(w *write, how entry.Kind) {
	if w.trace == nil || s.tracer == nil {
		return
	}
	result := "ok"
	switch how { //nolint:exhaustive // the ends of a write
	case entry.Conflicted:
		result = "conflict"
	case entry.Failed:
		result = "failed"
	}
	s.tracer.End(&ztrace.Span{
		Trace: w.trace.ID, Parent: w.trace.Span, Kind: ztrace.Save, Name: w.o.name(), Start: w.begun, Duration: time.Since(w.begun),
		Key: w.o.key, Version: w.change.Own.Version, Result: result,
	})
}
