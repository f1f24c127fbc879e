package zactor

import (
	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
)

// DeadLetter tells of a message that no handler ran for. Who asked has been answered, or is being.
type DeadLetter struct {
	Actor  zmsg.Address
	Name   string // of the actor, "" if none
	ID     uint32 // message id
	Reason string // stopped, no_handler, client_mark, expired, cancelled, stale, dropped_oldest, dropped_newest, topic_full, topic_draining
}

type deadReason uint8

const (
	deadStopped       deadReason = iota // the actor ended first
	deadNoHandler                       // the actor does not handle the id
	deadClientMark                      // clients may not call the handler
	deadExpired                         // the deadline was over
	deadCancelled                       // the one who asked has given up
	deadStale                           // a continuation of an instance that failed
	deadDroppedOldest                   // the mailbox was full; see DropOldest
	deadDroppedNewest                   // the same; see DropNewest
	deadTopicFull                       // of a topic: the mailbox was full
	deadTopicDraining                   // of a topic, from another node: the group drains
	deadReasons       = iota
)

var deadNames = [deadReasons]string{
	"stopped", "no_handler", "client_mark", "expired", "cancelled", "stale", "dropped_oldest", "dropped_newest",
	"topic_full", "topic_draining",
}

func (r deadReason) String() string { return deadNames[r] }

func (g *Group) deadLetter(c *cell, it *item, why deadReason) {
	g.dead[why].Inc()
	if g.cfg.OnDeadLetter == nil {
		return
	}
	if it.id == 0 {
		if m, ok := it.value.(proto.Message); ok {
			it.id, _ = zmsg.IDOf(m)
		}
	}
	d := DeadLetter{Actor: c.address(), Name: c.name, ID: it.id, Reason: why.String()}
	c.guard("Config.OnDeadLetter", func() { g.cfg.OnDeadLetter(d) })
}
