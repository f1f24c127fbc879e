package zactor

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"zgame/zmsg"
)

// Status is how an actor looks from outside.
type Status struct {
	ID     uint64 `json:"id"`
	Name   string `json:"name,omitempty"`
	Type   string `json:"type"`
	Queued int    `json:"queued"` // messages that wait
	Limit  int    `json:"limit"`  // how many may
	State  string `json:"state"`  // idle, working, or ending
}

// Failure is a handler that failed, by an error without a code or a panic.
type Failure struct {
	At      time.Time    `json:"at"`
	Actor   uint64       `json:"actor"`
	Name    string       `json:"name,omitempty"`
	Message uint32       `json:"message"` // id; 0: none, or it is not known
	Trace   zmsg.TraceID `json:"trace"`
	Text    string       `json:"text"`
}

// Actors returns how the group's actors are whose name or type has match in it, at most n, those with the fullest mailboxes first, and how many
// there are of them. It looks at each actor, and holds none up.
func (g *Group) Actors(match string, n int) (list []Status, all int) {
	for _, c := range g.table.all() {
		s := c.status()
		if !strings.Contains(s.Name, match) && !strings.Contains(s.Type, match) {
			continue
		}
		all++
		list = append(list, s)
		if len(list) > 4*n+64 {
			list = fullest(list, n)
		}
	}
	return fullest(list, n), all
}

func fullest(list []Status, n int) []Status {
	slices.SortFunc(list, func(a, b Status) int { return cmp.Or(cmp.Compare(b.Queued, a.Queued), cmp.Compare(a.ID, b.ID)) })
	return list[:min(len(list), max(n, 0))]
}

func (c *cell) status() Status {
	s := Status{ID: c.id, Name: c.name, State: "idle"}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.actor != nil {
		s.Type = c.typ(c.actor)
	}
	s.Queued, s.Limit = c.waitingLocked(), c.bound()
	switch {
	case c.closed || c.dead:
		s.State = "ending"
	case c.running:
		s.State = "working"
	}
	return s
}

// Failures returns the last handlers of the group that failed, at most 64, the newest first.
func (g *Group) Failures() []Failure {
	f := &g.failures
	f.mu.Lock()
	defer f.mu.Unlock()
	list := slices.Concat(f.ring[f.next:], f.ring[:f.next])
	slices.Reverse(list)
	return list
}

const (
	keptFailures   = 64
	maxFailureText = 512
)

// failures is a ring of the last ones.
type failures struct {
	mu   sync.Mutex
	ring []Failure // guarded by mu
	next int       // guarded by mu; 0 until the ring is full
}

func (f *failures) add(c *Context, id uint32, text string) {
	if len(text) > maxFailureText {
		text = text[:maxFailureText]
	}
	x := Failure{At: time.Now(), Actor: c.cell.id, Name: c.cell.name, Message: id, Trace: c.Trace(), Text: strings.ToValidUTF8(text, "\uFFFD")}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ring) < keptFailures {
		f.ring = append(f.ring, x)
		return
	}
	f.ring[f.next] = x
	f.next = (f.next + 1) % keptFailures
}
