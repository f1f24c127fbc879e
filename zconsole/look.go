package zconsole

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"zgame/internal/adminport"
	"zgame/zdiscovery"
)

// What each node may be asked for by a reader.
var (
	eachOf = []string{"node", "actors", "sessions", "objects", "history", "handlers", "charts"}
	oneOf  = []string{"history"}
)

// NodeAnswer is what one node says.
type NodeAnswer struct {
	ID      string           `json:"id"`
	Ref     string           `json:"ref"` // with its epoch, as logs have it
	State   zdiscovery.State `json:"state"`
	Zone    string           `json:"zone,omitempty"`
	Version string           `json:"version,omitempty"`
	Error   string           `json:"error,omitempty"` // why there is no Data
	Data    json.RawMessage  `json:"data,omitempty"`
}

// serveEach asks all nodes for one thing, and answers what each says. That one does not answer takes nothing from the others.
func (c *Console) serveEach(w http.ResponseWriter, r *http.Request) {
	what := r.PathValue("what")
	if !slices.Contains(eachOf, what) {
		writeError(w, &apiError{http.StatusNotFound, fmt.Sprintf("nodes are not asked for %q: expected one of %v", what, eachOf)})
		return
	}
	path := "/" + what + "?" + r.URL.Query().Encode()
	nodes := c.cluster().Nodes
	answers := make([]NodeAnswer, len(nodes))
	room := make(chan struct{}, maxFanOut)
	var asked sync.WaitGroup
	for i := range nodes {
		n, a := &nodes[i], &answers[i]
		*a = NodeAnswer{ID: n.Ref.ID, Ref: n.Ref.String(), State: n.State, Zone: n.Zone, Version: n.Version}
		if n.Admin == "" {
			a.Error = "it has no admin port (admin.address, admin.url)"
			continue
		}
		room <- struct{}{}
		asked.Go(func() { // ends with askTime
			defer func() { <-room }()
			ctx, cancel := context.WithTimeout(r.Context(), askTime) // of its own: nodes that hang take no other's time
			defer cancel()
			var err error
			if a.Data, err = get(ctx, n.Admin, path, n.Ref.ID); err != nil {
				a.Error = err.Error()
			}
		})
	}
	asked.Wait()
	slices.SortFunc(answers, func(a, b NodeAnswer) int { return compareIDs(a.ID, b.ID) })
	writeJSON(w, http.StatusOK, answers)
}

// compareIDs has n2 before n10.
func compareIDs(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// get asks an admin port for JSON: that of the node, where it is not "".
func get(ctx context.Context, address, path, node string) (json.RawMessage, error) {
	res, err := adminport.Ask(ctx, address, http.MethodGet, path, http.NoBody)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if err := adminport.Answers(res, node); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > maxAnswer:
		return nil, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	case !json.Valid(b):
		return nil, fmt.Errorf("the answer is no JSON: is it an admin port of this program's version?")
	}
	return b, nil
}

// relay answers what an admin port does: that of the node, where it is not "".
func relay(w http.ResponseWriter, r *http.Request, address, path, node string) {
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	b, err := get(ctx, address, path, node)
	if err != nil {
		writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b) // a reader that is gone needs no answer
}

// serveNode asks one node.
func (c *Console) serveNode(w http.ResponseWriter, r *http.Request) {
	what := r.PathValue("what")
	if !slices.Contains(oneOf, what) {
		writeError(w, &apiError{http.StatusNotFound, fmt.Sprintf("a node is not asked for %q: expected one of %v", what, oneOf)})
		return
	}
	address, err := c.cluster().Of(r.PathValue("node"))
	if err != nil {
		writeError(w, &apiError{http.StatusNotFound, err.Error()})
		return
	}
	relay(w, r, address, "/"+what+"?"+r.URL.Query().Encode(), r.PathValue("node"))
}

// drainEvery is how often who watches a drain is told how far it is.
const drainEvery = "250ms"

// serveDrain tells how far the drain of a node is, and which objects went, a JSON value in each line, also before it begins, until they are elsewhere, the reader goes, or drainTime is over. Who
// watches before it begins misses nothing: the node has the last word in before it stops.
func (c *Console) serveDrain(w http.ResponseWriter, r *http.Request) {
	address, err := c.cluster().Of(r.PathValue("node"))
	if err != nil {
		writeError(w, &apiError{http.StatusNotFound, err.Error()})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), drainTime)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	q := url.Values{"follow": {drainEvery}, "since": {cmp.Or(r.URL.Query().Get("since"), "0")}}
	res, err := adminport.Stream(ctx, address, "/drain?"+q.Encode())
	if err != nil {
		writeError(w, err)
		return
	}
	defer res.Body.Close()
	if err := adminport.Answers(res, r.PathValue("node")); err != nil {
		writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	flush := http.NewResponseController(w)
	for b := make([]byte, 32<<10); ; {
		n, err := res.Body.Read(b)
		_ = flush.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, failed := w.Write(b[:n]); failed != nil || flush.Flush() != nil || err != nil {
			return // one of the two is gone
		}
	}
}

// serveObject says where the object of ?type=, ?zone= and ?id= lives.
func (c *Console) serveObject(w http.ResponseWriter, r *http.Request) {
	k, err := keyIn(r.URL.Query())
	if err != nil {
		writeError(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	address, err := c.cluster().Any(ctx)
	if err != nil {
		writeError(w, err)
		return
	}
	relay(w, r, address, adminport.ObjectPath(k), "")
}
