package zbus

import (
	"sync"
	"time"

	"zgame/internal/lograte"
	"zgame/zmetrics"
)

// counters are the metrics that messages touch, resolved once.
type counters struct {
	m                    *zmetrics.Bus
	in, out              [len(kindNames)]zmetrics.Counter
	group, groupOut      zmetrics.Counter
	topic, topicOut      zmetrics.Counter
	replies              zmetrics.Counter
	batchesIn, bytesIn   zmetrics.Counter
	batchesOut, bytesOut zmetrics.Counter
}

func newCounters(m *zmetrics.Bus) counters {
	c := counters{
		m:     m,
		group: m.Received.With("group"), groupOut: m.Sent.With("group"),
		topic: m.Received.With("topic"), topicOut: m.Sent.With("topic"),
		replies:   m.Requests.With("reply"),
		batchesIn: m.Batches.With("received"), bytesIn: m.Bytes.With("received"),
		batchesOut: m.Batches.With("sent"), bytesOut: m.Bytes.With("sent"),
	}
	for kind, name := range kindNames {
		if name != "" {
			c.in[kind], c.out[kind] = m.Received.With(name), m.Sent.With(name)
		}
	}
	return c
}

func (c *counters) received(bytes int) {
	c.batchesIn.Inc()
	c.bytesIn.Add(float64(bytes))
}

func (c *counters) sent(b *batch) {
	c.batchesOut.Inc()
	c.bytesOut.Add(float64(len(b.buf)))
	switch ln := b.lane; {
	case ln.topic:
		c.topicOut.Add(float64(b.count()))
		return
	case ln.id == 0:
		c.groupOut.Add(float64(b.count()))
		return
	}
	for kind, n := range b.envelopes {
		if n > 0 {
			c.out[kind].Add(float64(n))
		}
	}
}

func (c *counters) request(outcome string, n int) {
	if n > 0 {
		c.m.Requests.With(outcome).Add(float64(n))
	}
}

func (c *counters) drop(reason string, n int) {
	if n > 0 {
		c.m.Dropped.With(reason).Add(float64(n))
	}
}

func (c *counters) gap(kind string, n uint64) { c.m.Gaps.With(kind).Add(float64(n)) }

// logEvery is how often a warning of one kind is logged at most.
const logEvery = 10 * time.Second

// logLimiter lets one warning of each key through in logEvery. Keys are few and fixed.
type logLimiter struct {
	mu   sync.Mutex
	keys map[string]*lograte.Limiter // guarded by mu
}

// allow reports whether to log now, and how many were kept back since the last.
func (l *logLimiter) allow(key string) (suppressed uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keys == nil {
		l.keys = make(map[string]*lograte.Limiter)
	}
	k := l.keys[key]
	if k == nil {
		k = &lograte.Limiter{Every: logEvery}
		l.keys[key] = k
	}
	return k.Allow(time.Now())
}
