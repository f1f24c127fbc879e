// Package adminport asks nodes at their admin ports, for the commands of operators and for the web console.
package adminport

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"zgame/zdiscovery"
	"zgame/zmsg"
)

const (
	// maxAnswer bounds what Fetch reads of an answer, in bytes.
	maxAnswer = 4 << 20
	// dialTime is for how long a port is tried to be reached.
	dialTime = 2 * time.Second
	// answerTime is for how long a port is waited for that is one of several that would do, or whose answer is a stream, which begins at once.
	answerTime = 3 * time.Second
)

// NodeHeader is a header of what admin ports answer: the id of the node.
const NodeHeader = "Zgame-Node"

// StatusError is an answer that is no success.
type StatusError struct {
	Status int
	Text   string // what it says
}

// Error says both.
func (e *StatusError) Error() string { return fmt.Sprintf("%d %s", e.Status, e.Text) }

// Ask asks the admin port at address; the caller closes the answer's body. An answer that is no success is a *StatusError; a redirect is none, for who
// answers at a node's address is not to say where this one asks.
func Ask(ctx context.Context, address, method, path string, body io.Reader) (*http.Response, error) {
	return ask(ctx, address, method, path, body, 0)
}

// Stream is Ask for an answer that begins at once, and goes on: a node that hangs is not waited for.
func Stream(ctx context.Context, address, path string) (*http.Response, error) {
	return ask(ctx, address, http.MethodGet, path, http.NoBody, answerTime)
}

// ask waits for the begin of the answer for so long; 0: as long as ctx.
func ask(ctx context.Context, address, method, path string, body io.Reader, begins time.Duration) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, body)
	if err != nil {
		return nil, err
	}
	client := http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true, // a kept connection would hold the node's end up
			DialContext:       (&net.Dialer{Timeout: dialTime}).DialContext, ResponseHeaderTimeout: begins,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if err != nil || res.StatusCode/100 == 2 {
		return res, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<16))
	return nil, errors.Join(&StatusError{res.StatusCode, strings.TrimSpace(string(text))}, err)
}

// Fetch asks an admin port, and decodes what it answers into v, unless that is nil.
func Fetch(ctx context.Context, address, method, path string, v any) error {
	res, err := Ask(ctx, address, method, path, http.NoBody)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if v == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(v); err != nil {
		return fmt.Errorf("%s of http://%s%s is not what this program expects (is it an admin port of its version?): %w", method, address, path, err)
	}
	return nil
}

// Segment is text as a part of a path, also where it is one that a path would be cleaned of.
func Segment(text string) string {
	if text == "." || text == ".." {
		return strings.ReplaceAll(text, ".", "%2E")
	}
	return url.PathEscape(text)
}

// ObjectPath is the path of an object.
func ObjectPath(k zmsg.Key) string {
	return fmt.Sprintf("/objects/%d/%d/%s", k.Type, k.Zone, Segment(k.ID))
}

// Answers returns an error where an answer is not of the node called id. One of a program that does not say is taken for it.
func Answers(res *http.Response, id string) error {
	if is := res.Header.Get(NodeHeader); is != "" && id != "" && is != id {
		return fmt.Errorf("the admin port that the node %s says is its own (%s) is that of %s: set admin.url at %s to host:port by which the others reach it", id, res.Request.URL.Host, is, id)
	}
	return nil
}

// ObjectQuery names an object in a query.
func ObjectQuery(k zmsg.Key) url.Values {
	return url.Values{"type": {fmt.Sprint(k.Type)}, "zone": {fmt.Sprint(k.Zone)}, "id": {k.ID}}
}

// ParseKey makes a key of what a path says of it.
func ParseKey(typ, zone, id string) (zmsg.Key, error) {
	t, typErr := strconv.ParseUint(typ, 10, 32)
	z, zoneErr := strconv.ParseUint(zone, 10, 32)
	if typErr != nil || zoneErr != nil {
		return zmsg.Key{}, fmt.Errorf("the key %s/%s/%s: expected TYPE/ZONE/ID, where type (the number of the kind) and zone are numbers, such as 2/0/lobby", typ, zone, id)
	}
	return zmsg.Key{Type: uint32(t), Zone: uint32(z), ID: id}, nil
}

// KeyIn reads what ObjectQuery writes. Numbers that are not there are 0.
func KeyIn(q url.Values) (zmsg.Key, error) {
	return ParseKey(cmp.Or(q.Get("type"), "0"), cmp.Or(q.Get("zone"), "0"), q.Get("id"))
}

// Cluster is whom to ask.
type Cluster struct {
	Nodes []zdiscovery.Node
	// Only is host:port of the one admin port that is asked, whatever the nodes are; "": theirs.
	Only string
}

// Ports returns the admin ports that can be asked.
func (c *Cluster) Ports() (all []string) {
	if c.Only != "" {
		return []string{c.Only}
	}
	for i := range c.Nodes {
		if n := &c.Nodes[i]; n.Admin != "" && n.State != zdiscovery.Starting {
			all = append(all, n.Admin)
		}
	}
	return all
}

// Any returns an admin port that answers; every node says the same of users and routes. Those that drain are not asked.
func (c *Cluster) Any(ctx context.Context) (address string, err error) {
	if c.Only != "" {
		return c.Only, nil
	}
	faults := []error{errors.New("no node's admin port can be asked (admin.address, admin.url; --admin says where one is)")}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.Admin == "" || n.State != zdiscovery.Ready {
			continue
		}
		within, cancel := context.WithTimeout(ctx, answerTime/3) // one that hangs is not to take the others' time
		err = Fetch(within, n.Admin, http.MethodGet, "/node", nil)
		cancel()
		if err == nil {
			return n.Admin, nil
		}
		faults = append(faults, fmt.Errorf("  %s at %s: %w", n.Ref, n.Admin, err))
	}
	return "", errors.Join(faults...)
}

// Of returns the admin port of the node called id.
func (c *Cluster) Of(id string) (address string, err error) {
	for i := range c.Nodes {
		if n := &c.Nodes[i]; n.Ref.ID == id {
			if n.Admin == "" {
				return "", fmt.Errorf("the node %s has no admin port: admin.address is empty", n.Ref)
			}
			return n.Admin, nil
		}
	}
	if c.Only != "" {
		return c.Only, nil
	}
	return "", fmt.Errorf("the node %q is not in the cluster", id)
}
