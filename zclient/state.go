package zclient

import (
	"context"
	"time"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// Phase is where a client is in its life.
type Phase uint8

// The phases. Connecting -> Online -> Waiting -> Connecting -> ... -> Closed.
const (
	Idle       Phase = iota // Connect has not been called
	Connecting              // opening a connection and logging in
	Online                  // logged in: requests may be made
	Waiting                 // no connection; the next try comes after State.Delay
	Closed                  // the end: Close was called, or the server does not want this client back
)

// String returns the phase's name in small letters.
func (p Phase) String() string {
	switch p {
	case Idle:
		return "idle"
	case Connecting:
		return "connecting"
	case Online:
		return "online"
	case Waiting:
		return "waiting"
	default:
		return "closed"
	}
}

// State is what a client is doing now.
type State struct {
	Phase   Phase
	Reason  *Reason       // Waiting, Closed: why; nil otherwise
	Delay   time.Duration // Waiting: how long
	Attempt int           // tries in a row that failed
	Session Session       // what the gate said at the last login
}

// Session is what the gate said at login.
type Session struct {
	Ref         zmsg.SessionRef // the session, at which node of the cluster
	User        string
	Resumed     bool
	MaxMessage  int // bytes; larger requests are refused
	MaxInFlight int // requests
	Heartbeat   time.Duration
	Timeout     time.Duration
}

// Defaults for a Welcome that does not say.
const (
	defaultHeartbeat   = 20 * time.Second
	defaultInFlight    = 64
	defaultMaxOutgoing = 64 << 10
)

func sessionOf(w *wirepb.Welcome) Session {
	s := Session{
		Ref: zmsg.SessionRef{
			Gate: zmsg.NodeRef{ID: w.GetNode(), Epoch: w.GetEpoch()}, ID: w.GetSession(), Gen: w.GetGeneration(),
		},
		User: w.GetUser(), Resumed: w.GetResumed(), MaxMessage: int(w.GetMaxMessage()), MaxInFlight: int(w.GetMaxInFlight()),
		Heartbeat: time.Duration(w.GetHeartbeatMs()) * time.Millisecond,
		Timeout:   time.Duration(w.GetTimeoutMs()) * time.Millisecond,
	}
	set(&s.Heartbeat, defaultHeartbeat)
	set(&s.Timeout, 2*s.Heartbeat)
	set(&s.MaxMessage, defaultMaxOutgoing)
	set(&s.MaxInFlight, defaultInFlight)
	return s
}

// State returns what the client is doing now.
func (c *Client) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// OnState calls h at each change of state from now on, in order with each other and with pushes. A handler that does
// not return misses states in the middle, never the newest. The function that OnState returns ends that.
func (c *Client) OnState(h func(State)) (cancel func()) { return c.handlers.onState(h) }

// WaitOnline waits until the client is online. It returns the Reason when the client is closed, or ctx's error.
func (c *Client) WaitOnline(ctx context.Context) error {
	for {
		c.mu.Lock()
		s, changed := c.state, c.changed
		c.mu.Unlock()
		switch s.Phase {
		case Online:
			return nil
		case Closed:
			return s.Reason
		default:
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// setState tells everybody about s.
func (c *Client) setState(s State) {
	c.mu.Lock()
	c.state = s
	close(c.changed)
	c.changed = make(chan struct{})
	c.mu.Unlock()
	c.handlers.state(s)
}
