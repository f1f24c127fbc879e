package ztrace

import (
	"fmt"
	"slices"
	"time"

	"zgame/zmsg"
)

// Kind says what a Span is about.
type Kind uint8

// The kinds.
const (
	Request Kind = iota // a client's, at its gate: from its frame to its response; of a one-way message: until it is on its way
	Handler             // an actor's, or an object's, without what it has left to Then, Async and timers
	Save                // of an object's state, which the span before has changed: one save may be of several handlers, it stands under the last
	Push                // given to the connections of one gate
)

var kindNames = [...]string{"request", "handler", "save", "push"}

// String returns request, handler, save or push.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// MarshalText implements encoding.TextMarshaler.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Kind) UnmarshalText(b []byte) error {
	i := slices.Index(kindNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("span of kind %q: expected one of %v", b, kindNames)
	}
	*k = Kind(i)
	return nil
}

// Span is a piece of work that has ended. Fields that mean nothing for its kind are zero.
type Span struct {
	Trace  zmsg.TraceID `json:"trace"`
	ID     uint64       `json:"id,string"`
	Parent uint64       `json:"parent,string"` // 0: it is the first of its trace that is recorded
	Kind   Kind         `json:"kind"`
	Name   string       `json:"name"` // of a message type, where it is known; else "message ID"

	Node     zmsg.NodeRef  `json:"node"` // where
	Start    time.Time     `json:"start"`
	Duration time.Duration `json:"duration"`
	Wait     time.Duration `json:"wait"` // before Start, in a mailbox

	Session   zmsg.SessionRef   `json:"session"`
	User      string            `json:"user,omitempty"`
	Actor     uint64            `json:"actor,string"`         // 0: none
	ActorName string            `json:"actor_name,omitempty"` // the name, or else the type
	Key       zmsg.Key          `json:"key"`
	Version   zmsg.RouteVersion `json:"version"`
	Sessions  int               `json:"sessions,omitempty"` // of a push: how many have got it
	Result    string            `json:"result"`             // "ok", "deferred", or a code
}
