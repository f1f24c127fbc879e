package zconsole

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"zgame/internal/adminport"
	"zgame/zmsg"
)

// action answers what f does, for an operator, and logs it whatever came of it.
func (c *Console) action(name string, f func(ctx context.Context, r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actTime) // what has begun is heard to its end, for the log
		defer cancel()
		began := time.Now()
		answer, err := f(ctx, r)
		attrs := []any{"action", name, "what", r.URL.RawQuery, "role", roleOf(r).String(), "from", r.RemoteAddr, "took", time.Since(began)}
		if err != nil {
			c.log.Warn("console: an operator's action failed, or its end is not known: look before it is repeated", append(attrs, "err", err)...)
			writeError(w, err)
			return
		}
		c.log.Info("console: an operator's action", attrs...)
		writeJSON(w, http.StatusOK, answer)
	}
}

// keyIn reads ?type=, ?zone= and ?id=.
func keyIn(q url.Values) (zmsg.Key, error) {
	if q.Get("type") == "" || q.Get("id") == "" {
		return zmsg.Key{}, badRequest("expected ?type=NUMBER&zone=NUMBER&id=ID of an object")
	}
	k, err := adminport.KeyIn(q)
	if err != nil {
		err = badRequest("%v", err)
	}
	return k, err
}

// move moves the object of ?type=, ?zone= and ?id= to the node ?to=.
func (c *Console) move(ctx context.Context, r *http.Request) (any, error) {
	q := r.URL.Query()
	k, err := keyIn(q)
	if err != nil {
		return nil, err
	}
	if q.Get("to") == "" {
		return nil, badRequest("expected ?to=NODE, the id of the node that is to have the object")
	}
	return c.cluster().Move(ctx, k, q.Get("to"))
}

// kick closes the sessions of ?user=, with ?code= and ?text=.
func (c *Console) kick(ctx context.Context, r *http.Request) (any, error) {
	q := r.URL.Query()
	user := q.Get("user")
	if user == "" {
		return nil, badRequest("expected ?user=USER")
	}
	address, err := c.cluster().Any(ctx)
	if err != nil {
		return nil, err
	}
	return post(ctx, address, "/users/"+adminport.Segment(user)+"/kick?"+url.Values{"code": {cmp.Or(q.Get("code"), "4000")}, "text": {q.Get("text")}}.Encode(), http.NoBody)
}

// drain has the node ?node= drain and stop.
func (c *Console) drain(ctx context.Context, r *http.Request) (any, error) {
	node := r.URL.Query().Get("node")
	address, err := c.cluster().Of(node)
	if err != nil {
		return nil, &apiError{http.StatusNotFound, err.Error()}
	}
	return post(ctx, address, "/drain?node="+url.QueryEscape(node), http.NoBody)
}

// called is the answer to a message, and what type it has; or how it failed.
type called struct {
	Message string          `json:"message,omitempty"`
	Answer  json.RawMessage `json:"answer,omitempty"`
	Error   string          `json:"error,omitempty"`
	Took    time.Duration   `json:"took"`
}

// call sends the message ?message=, made of the JSON in the body, on behalf of ?user=, to the object of ?type=, ?zone= and ?id= where there is an id.
// That its handler fails is an answer too.
func (c *Console) call(ctx context.Context, r *http.Request) (any, error) {
	q := r.URL.Query()
	to := url.Values{}
	if q.Get("id") != "" {
		k, err := keyIn(q)
		if err != nil {
			return nil, err
		}
		to = adminport.ObjectQuery(k)
	}
	if u := q.Get("user"); u != "" {
		to.Set("user", u)
	}
	address, err := c.cluster().Any(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	res, err := adminport.Ask(ctx, address, http.MethodPost, "/call/"+adminport.Segment(q.Get("message"))+"?"+to.Encode(), io.LimitReader(r.Body, maxBody))
	took := time.Since(began)
	if s, ok := errors.AsType[*adminport.StatusError](err); ok && (s.Status == http.StatusBadGateway || s.Status == http.StatusNotFound) {
		return called{Error: s.Text, Took: took}, nil
	}
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err == nil && !json.Valid(b) {
		err = badRequest("the answer is no JSON, or has more than %d bytes", maxAnswer)
	}
	return called{Message: res.Header.Get("Zgame-Message"), Answer: b, Took: took}, err
}

// post asks an admin port to do something.
func post(ctx context.Context, address, path string, body io.Reader) (answer json.RawMessage, err error) {
	res, err := adminport.Ask(ctx, address, http.MethodPost, path, body)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	return answer, json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(&answer)
}
