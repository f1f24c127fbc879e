package zactor

import (
	"zgame/zmetrics"
	"zgame/zmsg"
)

// codeCounters counts by code, with the counters resolved once.
type codeCounters struct {
	asks, errors         [zmsg.NumCodes]zmetrics.Counter
	otherAsk, otherError zmetrics.Counter // of codes of applications
}

func newCodeCounters(m *zmetrics.Actor) codeCounters {
	other := zmsg.CodeApplication.String()
	k := codeCounters{otherAsk: m.Asks.With(other), otherError: m.Errors.With(other)}
	for c := range k.asks {
		k.asks[c] = m.Asks.With(zmsg.Code(c).String())
		k.errors[c] = m.Errors.With(zmsg.Code(c).String())
	}
	return k
}

// ended counts the outcome of a request that was made here.
func (k *codeCounters) ended(c zmsg.Code) {
	if int(c) < len(k.asks) {
		k.asks[c].Inc()
		return
	}
	k.otherAsk.Inc()
}

// failed counts an error of a handler.
func (k *codeCounters) failed(c zmsg.Code) {
	if int(c) < len(k.errors) {
		k.errors[c].Inc()
		return
	}
	k.otherError.Inc()
}
