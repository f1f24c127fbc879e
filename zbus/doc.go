// Package zbus carries messages between nodes. Bus is the contract of a driver (natsbus, membus): publish and
// subscribe by subject. Link is what a node makes of it: an inbox, ordered lanes to other nodes, requests with exactly
// one outcome each, groups of sessions, and topics of actors.
//
//	link, err := zbus.NewLink(zbus.LinkConfig{Self: ref, Bus: bus, Handlers: zbus.Handlers{Actor: deliver}})
//	...
//	err = link.Start(ctx)
//	err = link.Send(address, message, replier, token) // replier gets the one outcome
//
// # Promises
//
//   - Order: what one node sends by Send, SendSession, SendControl, SendQueue, replies, PublishGroup and PublishTopic arrives at
//     another in that order, over all of these together. Batches carry numbers for each subject, so a loss, a double and a swap are
//     seen and counted; what comes late or twice is not delivered.
//   - One-way envelopes: at most once.
//   - Requests: exactly one outcome. NotExecuted is said only where it is certain.
//   - Nothing waits to be joined with something else: an idle link sends at once, a lone request or reply even from its sender's
//     goroutine, as far as the socket has room; a busy one packs what is waiting anyway into one bus message.
//   - Bounds: what waits to be sent (number and bytes) and the requests in flight. Full is zmsg.ErrBusy, at once.
//   - While the bus is down nothing is accepted but replies. What was accepted and not sent is sent when the bus is back:
//     replies unless their request's deadline has passed, one-way envelopes unless LinkConfig.DefaultTimeout has; requests
//     are not sent, they end at once.
//
// # Subjects
//
//	<prefix>.n.<node>.<epoch>                               the inbox of a node: batches of envelopes
//	<prefix>.r.<node>.<epoch>.<lane>-<first>-<last>-<oneway> where "no responders" comes back for such a batch
//	<prefix>.r.<node>.<epoch>.lost-<lane>                   from the node to itself: see Lost
//	<prefix>.g.<group>                                      a group: batches of pushes
//	<prefix>.t.<topic>                                      a topic: batches of messages for actors
//
// Node ids and names of groups and topics are made into tokens by Token. A batch is a wirepb.Batch; bytes that are not one are
// counted by reason, logged at a bounded rate, and dropped.
//
// # Goroutines
//
// A Link has three: the outbox, which publishes; the sweeper, which sleeps until the next deadline of a request; and
// the receiver's, where the handlers run one at a time. Repliers are called from the receiver's (replies), the
// sweeper's (deadlines), the outbox's (what could not be sent) and the driver's (connection lost). All end with Close.
//
// # Failure
//
//	nobody has the inbox (node dead)       requests of that batch: Unavailable, NotExecuted, within a round trip
//	bus refuses to publish                 Unavailable (down), Busy (full) or TooLarge; NotExecuted
//	connection lost                        requests on the way: Unavailable, Unknown; at once
//	batch lost on the way, or dropped by   the receiver tells when it has seen that something is missing: at the next
//	a receiver that is too slow            batch, when its connection is back, or, as the node of a request that waits
//	                                       for half a second is probed, at the probe: Unavailable, NotExecuted.
//	                                       Replies in it are sent again
//	discovery says the node is gone (Lost) NodeLost, Unknown, once what the bus has from it is here
//	reply above the bus's limit            TooLarge, Executed
//	replier's bus is down                  the reply is kept, within the bounds of the outbox, doubled
//	none of these, and no reply            Timeout, Unknown, at the deadline
//
// # See also
//
// zbustest holds drivers to the contract; internal/embedded runs a NATS server for them.
package zbus
