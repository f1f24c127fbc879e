package zdiscovery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"zgame/zmsg"
)

// ErrCampaigning is what Campaign returns for a name that this member campaigns for, or leads, already.
var ErrCampaigning = errors.New("zdiscovery: this member campaigns for the name or leads it already")

// Leadership is one time of one member as the leader of a name. Its methods may be called from any goroutine.
type Leadership interface {
	// Term is the fencing token: greater than that of every leader the name had before. Writes that carry it, to a store that
	// refuses a smaller one than it has seen, cannot come from a leader of the past.
	Term() uint64
	// Until is when to stop acting as the leader at the latest, as this process's clock sees it. It moves on with each renewal
	// of the member's lease (Member.ServeUntil), and is in the past when the leadership is over. Nobody else leads before it.
	Until() time.Time
	// Lost is closed when the leadership is over: the service said so, the membership is over, Resign was called. While the
	// service is away nobody knows, and Until passes.
	Lost() <-chan struct{}
	// Resign ends the leadership: the next in line leads at once, so whoever acts as the leader has stopped before. It may be
	// called more than once. Where the service does not answer within ctx it returns ErrUnavailable, and is tried again until the
	// service has heard of it, or the lease has ended. Errors: ErrUnavailable, ctx's.
	Resign(ctx context.Context) error
}

// Leader says who leads a name. The zero Leader is nobody.
type Leader struct {
	Node zmsg.NodeRef
	Term uint64
}

// CheckName returns an error when nothing can be led under the name; drivers ask it.
func CheckName(name string) error {
	if name == "" || strings.Contains(name, "/") {
		return fmt.Errorf("zdiscovery: name to lead %q: expected at least one character, and no slash", name)
	}
	return nil
}
