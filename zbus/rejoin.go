package zbus

import (
	"context"
	"fmt"
	"strconv"

	"zgame/zmsg"
)

// subjects are those of a node under one epoch.
type subjects struct {
	self    zmsg.NodeRef
	inbox   string
	notices string // prefix of the subjects for "no responders"
	before  string // the inbox under the epoch before, "" if there was none
	series  uint64 // of what is sent under this name by lanes that were there before; see seriesShift
}

// nodeID reports whether a node may have the id (zdiscovery.MaxID): one that comes over the network is not to make a subject that is too long for the bus.
// NATS ends the connection of whoever publishes to such a one.
func nodeID(s string) bool { return s != "" && len(s) <= 256 }

func (l *Link) subjectsOf(self zmsg.NodeRef) *subjects {
	return &subjects{
		self: self, inbox: l.inboxOf(self),
		notices: l.cfg.Prefix + ".r." + Token(self.ID) + "." + strconv.FormatUint(self.Epoch, 10) + ".",
	}
}

func (s *subjects) subscribe(ctx context.Context, r Receiver) error {
	for _, subject := range []string{s.notices + "*", s.inbox} {
		if err := r.Subscribe(ctx, subject); err != nil {
			return err
		}
	}
	return nil
}

func (s *subjects) unsubscribe(r Receiver) error {
	for _, subject := range []string{s.inbox, s.notices + "*"} {
		if err := r.Unsubscribe(subject); err != nil {
			return err
		}
	}
	return nil
}

// Rejoin makes the link that of self, whose epoch is greater than the one before: the node lost its place in the cluster
// and joined again. When it returns, other nodes reach this one under its new name, and no more under the old one; what
// it sends comes from the new one. What waits to be sent is sent. Requests to other nodes that were sent before end with
// zmsg.CodeUnavailable, Unknown, as the others' answers go to the old name. Groups that were joined go on. With an error
// (those of Receiver.Subscribe) nothing has changed. It is not called while another Rejoin, Start or Close runs.
func (l *Link) Rejoin(ctx context.Context, self zmsg.NodeRef) error {
	l.life.Lock()
	defer l.life.Unlock()
	l.mu.Lock()
	receiver, running := l.receiver, l.state == linkRunning
	l.mu.Unlock()
	if !running {
		return ErrClosed
	}
	old, now := l.me.Load(), l.subjectsOf(self)
	now.before = old.inbox
	l.mu.Lock()
	l.series++
	now.series = l.series
	l.mu.Unlock()
	if err := now.subscribe(ctx, receiver); err != nil {
		_ = now.unsubscribe(receiver)
		return fmt.Errorf("zbus: rejoin as %s: %w", self, err)
	}
	l.self.Set(self)
	l.me.Store(now)
	// Others number what they send to a new name anew.
	l.in.forgetAll()
	err := old.unsubscribe(receiver)
	if err == nil {
		err = l.cfg.Bus.Flush(ctx)
	}
	if err != nil { // it ends with the connection at the latest
		l.warn("rejoin", "the old inbox may still be subscribed", "err", err)
	}
	l.endSent("rejoined", "this node lost its place in the cluster and joined again")
	return nil
}
