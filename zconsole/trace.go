package zconsole

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"zgame/internal/adminport"
	"zgame/ztrace"
)

// traceLine is a line of what is followed: one of these.
type traceLine struct {
	Ports   int           `json:"ports,omitempty"`   // it has begun, at so many nodes
	Spans   []ztrace.Span `json:"spans,omitempty"`   // a trace
	Skipped int           `json:"skipped,omitempty"` // so many traces were left out, since there were too many
	Fault   string        `json:"fault,omitempty"`
	Over    string        `json:"over,omitempty"` // it ends, why
}

// serveTrace follows what ?user= asks for, or what the object of ?type=, ?zone= and ?id= handles, at all nodes: a JSON value in each line for each trace, at most
// traceRate in a second, until the reader goes or traceTime is over.
func (c *Console) serveTrace(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	var query url.Values
	var of func(s *ztrace.Span) bool
	switch user := q.Get("user"); {
	case user != "":
		query = url.Values{"user": {user}}
		of = func(s *ztrace.Span) bool { return s.User == user && s.Kind == ztrace.Request }
	default:
		k, err := keyIn(q)
		if err != nil {
			writeError(w, badRequest("expected ?user=USER, or ?type=NUMBER&zone=NUMBER&id=ID"))
			return
		}
		query = adminport.ObjectQuery(k)
		of = func(s *ztrace.Span) bool { return s.Key == k }
	}
	ctx, cancel := context.WithTimeout(r.Context(), traceTime)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	c.log.Info("console: somebody follows", "what", query.Encode(), "role", roleOf(r).String(), "from", r.RemoteAddr)
	flush, lines := http.NewResponseController(w), json.NewEncoder(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	tell := func(l traceLine) {
		_ = flush.SetWriteDeadline(time.Now().Add(writeTimeout))
		if lines.Encode(&l) != nil || flush.Flush() != nil {
			cancel() // the reader is gone
		}
	}
	s := sampler{tell: tell}
	err := c.cluster().Follow(ctx, query.Encode(), adminport.Followed{
		Of:    of,
		Told:  func(spans []ztrace.Span) { s.take(spans, time.Now()) },
		Fault: func(address string, err error) { tell(traceLine{Fault: address + " is not followed: " + err.Error()}) },
		Begun: func(ports int) { tell(traceLine{Ports: ports}) },
	})
	s.end()
	switch {
	case err != nil:
		tell(traceLine{Over: err.Error()})
	case r.Context().Err() == nil:
		tell(traceLine{Over: "it was followed for " + traceTime.String() + ", or this node stops"})
	}
}

// sampler tells so many traces in a second, and how many it has left out.
type sampler struct {
	tell    func(traceLine)
	second  int64
	told    int
	skipped int
}

func (s *sampler) take(spans []ztrace.Span, now time.Time) {
	if sec := now.Unix(); sec != s.second {
		s.end()
		s.second, s.told = sec, 0
	}
	if s.told >= traceRate {
		s.skipped++
		return
	}
	s.told++
	s.tell(traceLine{Spans: spans})
}

func (s *sampler) end() {
	if s.skipped > 0 {
		s.tell(traceLine{Skipped: s.skipped})
		s.skipped = 0
	}
}
