package zclient

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// gates are where a client connects, one at a time, in an order of its own, so that those who share a list spread over it. Owned by the goroutine of Client.loop.
type gates struct {
	list []string
	at   int
	left int // how many have not been tried since a connection was there
}

func newGates(list []string, r func() float64) gates {
	list = slices.Clone(list)
	for i := len(list) - 1; i > 0; i-- {
		j := min(int(r()*float64(i+1)), i)
		list[i], list[j] = list[j], list[i]
	}
	return gates{list: list, left: len(list)}
}

func (g *gates) url() string { return g.list[g.at] }

// ended takes note of how a try at url ended. The next one is the same gate where the session was lost without a word: it is most likely there; another one where the
// gate goes or has no room, and where there was no session.
func (g *gates) ended(e *ending) {
	if e.online > 0 {
		g.left = len(g.list)
	}
	if e.online == 0 || elsewhere(e.reason) {
		g.at = (g.at + 1) % len(g.list)
		g.left = max(0, g.left-1)
	}
}

// elsewhere reports whether a gate that closed for r is one to leave for another: shutdown, overloaded, unavailable.
func elsewhere(r *Reason) bool { return r.Code == 3001 || r.Code == 3005 || r.Code == 3007 }

// urlFaults says what is wrong with where to connect.
func (c *Config) urlFaults() (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("zclient: "+format, args...)) }
	list, name := c.URLs, "URLs has"
	if c.URL != "" || len(list) == 0 {
		list, name = []string{c.URL}, "URL is"
	}
	if c.URL != "" && len(c.URLs) > 0 {
		fault("URL and URLs are both set: expected one of them")
	}
	for _, s := range list {
		if u, err := url.Parse(s); err != nil || !slices.Contains([]string{"ws", "wss", "tcp", "tcps"}, u.Scheme) || u.Host == "" {
			fault("%s %q: expected ws://host:port/path or wss://host/path, tcp://host:port or tcps://host:port", name, s)
		} else if strings.HasPrefix(u.Scheme, "tcp") && u.Port() == "" {
			fault("%s %q: expected a port", name, s)
		}
	}
	return faults
}

// where returns the list, whichever field has it.
func (c *Config) where() []string {
	if len(c.URLs) > 0 {
		return c.URLs
	}
	return []string{c.URL}
}
