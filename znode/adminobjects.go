package znode

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"zgame/internal/adminport"
	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/zrouter"
)

// What the admin port has of objects, and of the node's drain; see the table in docs/guide/operations.md.

// keyOf returns the key that a path names. Where it names none it has answered, and reports false.
func keyOf(w http.ResponseWriter, r *http.Request) (zmsg.Key, bool) {
	k, err := adminport.ParseKey(r.PathValue("type"), r.PathValue("zone"), r.PathValue("id"))
	if err != nil {
		writeText(w, http.StatusBadRequest, err.Error()+"\n")
	}
	return k, err == nil
}

// serveObject says where an object lives, as this node finds it.
func (n *Node) serveObject(w http.ResponseWriter, r *http.Request) {
	k, ok := keyOf(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), stopStep)
	defer cancel()
	route, err := n.objects.set.Lookup(ctx, k)
	switch {
	case errors.Is(err, zrouter.ErrNotFound), errors.Is(err, zrouter.ErrNoNode), errors.Is(err, zmsg.ErrBadRequest):
		writeText(w, http.StatusNotFound, err.Error()+"\n")
	case err != nil && !errors.Is(err, zrouter.ErrNotInServer):
		writeText(w, http.StatusServiceUnavailable, err.Error()+"\n")
	default:
		writeJSON(w, http.StatusOK, adminport.ObjectRoute{Owner: route.Owner.ID, Epoch: route.Owner.Epoch, Version: route.Version})
	}
}

// moveLimit bounds a move that somebody asks for here; each of its steps has a limit of its own.
const moveLimit = 30 * time.Second

// serveMove moves an object of this node to the node of ?to=ID; to nobody where that is empty. It answers where the object lives then.
func (n *Node) serveMove(w http.ResponseWriter, r *http.Request) {
	k, ok := keyOf(w, r)
	if !ok {
		return
	}
	q := r.URL.Query()
	if !q.Has("to") {
		writeText(w, http.StatusBadRequest, "expected ?to=NODE, the id of the node that is to have the object, or ?to= to have it given up\n")
		return
	}
	var to zmsg.NodeRef
	if id := q.Get("to"); id != "" {
		var err error
		if to, err = n.nodeNamed(id); err != nil {
			writeText(w, http.StatusNotFound, err.Error()+"\n")
			return
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), moveLimit)
	defer cancel()
	before, _ := n.objects.set.Lookup(ctx, k) // for the log alone
	route, err := n.objects.set.Transfer(ctx, k, to)
	if err != nil {
		writeText(w, moveStatus(err), moveAdvice(route, err)+"\n")
		return
	}
	if route.Version != before.Version {
		n.log.Info("an object was moved by request at the admin port", "key", k.String(), "to", route.Owner.String(), "version", route.Version)
	}
	writeJSON(w, http.StatusOK, adminport.ObjectRoute{Owner: route.Owner.ID, Epoch: route.Owner.Epoch, Version: route.Version})
}

func moveStatus(err error) int {
	switch {
	case errors.Is(err, zmsg.ErrBadRequest):
		return http.StatusBadRequest
	case errors.Is(err, zrouter.ErrNotFound), errors.Is(err, zrouter.ErrNotInServer), errors.Is(err, zrouter.ErrNoNode):
		return http.StatusNotFound
	case errors.Is(err, zrouter.ErrMoved), errors.Is(err, zrouter.ErrRefused), errors.Is(err, zrouter.ErrHandoff):
		return http.StatusConflict
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	default:
		return http.StatusServiceUnavailable
	}
}

// moveAdvice is what went wrong, and, where another node has the object, whom to ask.
func moveAdvice(route zrouter.Route, err error) string {
	if errors.Is(err, zrouter.ErrMoved) && !route.Owner.IsZero() {
		return fmt.Sprintf("%v\n  ask the node %s, which has it", err, route.Owner.ID)
	}
	return err.Error()
}

// nodeNamed returns the node of the list that is called id.
func (n *Node) nodeNamed(id string) (zmsg.NodeRef, error) {
	var ids []string
	for _, x := range n.Nodes() {
		if x.Ref.ID == id {
			return x.Ref, nil
		}
		if x.State == zdiscovery.Ready {
			ids = append(ids, x.Ref.ID)
		}
	}
	slices.Sort(ids)
	return zmsg.NodeRef{}, fmt.Errorf("there is no node %q; those that serve: %s", id, strings.Join(ids, " "))
}

// serveDrain says how far the node's drain is.
func (n *Node) serveDrain(w http.ResponseWriter, r *http.Request) { n.answerDrain(w, r, http.StatusOK) }

// startDrain has the node drain and stop, and says how far that is. With ?node=ID it does so only where that is this node: who found the
// address somewhere may have another node's.
func (n *Node) startDrain(w http.ResponseWriter, r *http.Request) {
	if id := r.URL.Query().Get("node"); id != "" && id != n.Self().ID {
		writeText(w, http.StatusMisdirectedRequest, fmt.Sprintf("this is node %q, not %q: nothing was done\n", n.Self().ID, id))
		return
	}
	if _, err := followed(r); err != nil {
		writeText(w, http.StatusBadRequest, err.Error()+"\n")
		return
	}
	n.log.Info("somebody asks at the admin port that the node drains", "from", r.RemoteAddr)
	n.AskDrain()
	n.answerDrain(w, r, http.StatusAccepted)
}

// followed returns how often ?follow=D asks to be told; 0: once.
func followed(r *http.Request) (time.Duration, error) {
	text := r.URL.Query().Get("follow")
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 10*time.Millisecond {
		return 0, fmt.Errorf("follow=%q: expected a span of time of at least 10ms, such as 1s", text)
	}
	return d, nil
}

// DrainLine is the status, and, with ?since= of the request, which objects came and went behind that number and behind the line before.
type DrainLine struct {
	DrainStatus

	Passages []zrouter.Passage `json:"passages,omitempty"`
}

// drainLines returns what makes the next line.
func (n *Node) drainLines(q url.Values) (next func() DrainLine, err error) {
	if !q.Has("since") {
		return func() DrainLine { return DrainLine{DrainStatus: n.DrainStatus()} }, nil
	}
	since, err := strconv.ParseUint(q.Get("since"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("since=%s: expected the number of a line of /history, or 0", q.Get("since"))
	}
	return func() DrainLine {
		l := DrainLine{DrainStatus: n.DrainStatus()} // first: what it counts is among the passages
		if n.objects.set != nil {
			l.Passages = n.objects.set.History(since, zmsg.Key{}, maxListed*4)
		}
		if k := len(l.Passages); k > 0 {
			since = l.Passages[k-1].Number
		}
		return l
	}, nil
}

// answerDrain answers the status. With ?follow=D it goes on to do so each D, a line of JSON each time, until the objects are elsewhere, or
// their time is over: so that who follows has the last word, though the node stops soon afterwards.
func (n *Node) answerDrain(w http.ResponseWriter, r *http.Request, status int) {
	every, err := followed(r)
	next, sinceErr := n.drainLines(r.URL.Query())
	switch {
	case err != nil || sinceErr != nil:
		writeText(w, http.StatusBadRequest, cmp.Or(err, sinceErr).Error()+"\n")
		return
	case every == 0:
		writeJSON(w, status, next())
		return
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	lines := json.NewEncoder(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(status)
	for over := false; ; {
		if lines.Encode(next()) != nil || over || http.NewResponseController(w).Flush() != nil {
			return // a reader that is gone needs no answer
		}
		select {
		case <-n.drain.moved:
			over = true
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}
