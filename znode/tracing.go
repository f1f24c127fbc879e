package znode

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"zgame/internal/adminport"
	"zgame/zmetrics"
	"zgame/zmsg"
	"zgame/zstore"
	"zgame/ztrace"
	"zgame/ztrace/otlp"
)

// tracing is what a node does where trace.enabled is set. Its methods may be called with nil: then it is off.
type tracing struct {
	tracer    *ztrace.Tracer
	exporter  *otlp.Exporter // nil: no collector is named
	followers atomic.Int32
	ended     chan struct{}
}

// maxFollowers is how many may follow at one node at once; each has all that the node records copied.
const maxFollowers = 16

// followQueue is how many spans may wait for a follower.
const followQueue = 1024

func newTracing(ctx context.Context, n *Node) (*tracing, error) {
	s := &n.cfg.Settings.Trace
	if !s.Enabled {
		return nil, nil //nolint:nilnil // that it is off is no error
	}
	t := &tracing{ended: make(chan struct{})}
	cfg := ztrace.Config{Self: &n.self, Share: s.Share, Metrics: zmetrics.NewTrace(n.registry)}
	if otlp.Wanted() {
		var err error
		if t.exporter, err = otlp.New(ctx, n.cfg.App.Name, Version(), n.Self()); err != nil {
			return nil, err
		}
		cfg.Export = t.exporter.Export
	}
	t.tracer = ztrace.New(cfg)
	return t, nil
}

// Tracer returns what decides what is recorded, nil where tracing is off.
func (t *tracing) Tracer() *ztrace.Tracer {
	if t == nil {
		return nil
	}
	return t.tracer
}

// close ends those who follow, and sends what waits for the collector.
func (t *tracing) close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	close(t.ended)
	if t.exporter == nil {
		return nil
	}
	return t.exporter.Shutdown(ctx)
}

// serveFollow sends spans as they end, one JSON value in a line: ?user= records what the user's clients ask this node's gate for, ?type=, ?zone= and ?id= what
// the object handles here. All that is recorded here meanwhile is sent: see ztrace.Tracer.Follow.
func (n *Node) serveFollow(w http.ResponseWriter, r *http.Request) {
	if n.tracing == nil {
		writeText(w, http.StatusNotFound, "tracing is off at this node: set trace.enabled\n")
		return
	}
	q := r.URL.Query()
	user := q.Get("user")
	key, err := adminport.KeyIn(q)
	if err != nil {
		writeText(w, http.StatusBadRequest, err.Error()+"\n")
		return
	}
	if user == "" && (key == zmsg.Key{} || zstore.CheckKey(key) != nil) {
		writeText(w, http.StatusBadRequest, "expected ?user=USER, or ?type=NUMBER&zone=NUMBER&id=ID\n")
		return
	}
	if n.tracing.followers.Add(1) > maxFollowers {
		n.tracing.followers.Add(-1)
		writeText(w, http.StatusTooManyRequests, "too many follow at this node: at most "+strconv.Itoa(maxFollowers)+"\n")
		return
	}
	defer n.tracing.followers.Add(-1)
	spans, stop := n.tracing.tracer.Follow(user, key, followQueue)
	defer stop()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	flush, encoder := http.NewResponseController(w), json.NewEncoder(w)
	if flush.Flush() != nil { // the follower knows that it follows
		return
	}
	for {
		select {
		case s := <-spans:
			_ = flush.SetWriteDeadline(time.Now().Add(stopStep))
			if encoder.Encode(&s) != nil || len(spans) == 0 && flush.Flush() != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-n.tracing.ended:
			return
		}
	}
}

// Tracer returns what decides which requests are recorded, nil where trace.enabled is not set.
func (n *Node) Tracer() *ztrace.Tracer { return n.tracing.Tracer() }
