package natsbus

import (
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
)

// nats.go's reader puts messages into a channel and drops what finds it full: a bound by count, where a message may be of some
// bytes or of a megabyte. The queue bounds both. It has no goroutine: the reader itself moves messages from the channel into
// the queue, each time it has read relieveEvery bytes from the socket and comes back for more (see tap), and only while the
// handler is busy.
const (
	relieveEvery = 128 << 10
	// channelSize holds what a reader can put between two moves: relieveEvery bytes and a read, in messages of no bytes.
	channelSize = 1 << 13
	// msgOverhead is what a message takes beside its data and subjects, in bytes, about.
	msgOverhead = 200
)

// queue is what waits for a receiver's handler, in order of arrival: first what was moved, then the channel.
type queue struct {
	// Set at construction.
	ch              chan *nats.Msg
	limit, maxBytes int

	mu    sync.Mutex  // guards all below
	out   []*nats.Msg // from at on
	at    int
	in    []*nats.Msg // behind out
	bytes int         // of both
	drops int         // by the queue, not by nats.go

	// losing is set while drops may go uncounted. nats.go tells of a slow consumer once for a run of drops of one
	// subscription, which is early but not complete. It drops only while the channel is full, and whoever takes the next
	// message then leaves at most one place free: that is looked for, and drops are counted from there on until nothing waits.
	losing atomic.Bool
}

func newQueue(limit, maxBytes int) *queue {
	return &queue{ch: make(chan *nats.Msg, min(limit, channelSize)), limit: limit, maxBytes: maxBytes}
}

func size(m *nats.Msg) int { return len(m.Data) + len(m.Subject) + len(m.Reply) + msgOverhead }

// next returns the next message, nil if none waits.
func (q *queue) next() *nats.Msg {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.at == len(q.out) && len(q.in) > 0 {
		q.out, q.in, q.at = q.in, q.out[:0], 0
	}
	if q.at < len(q.out) {
		m := q.out[q.at]
		q.out[q.at] = nil
		q.at++
		q.bytes -= size(m)
		return m
	}
	q.lookLocked()
	select {
	case m := <-q.ch:
		return m
	default:
		return nil
	}
}

// relieve moves what is in the channel into the queue, as far as there is room. It is called by the reader.
func (q *queue) relieve() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lookLocked()
	for {
		select {
		case m := <-q.ch:
			n := len(q.out) - q.at + len(q.in)
			if n >= q.limit || q.bytes+size(m) > q.maxBytes && n > 0 {
				q.drops++
				q.losing.Store(true)
				continue
			}
			q.in = append(q.in, m)
			q.bytes += size(m)
		default:
			return
		}
	}
}

// lookLocked notes a channel that may have been full.
func (q *queue) lookLocked() {
	if len(q.ch) >= cap(q.ch)-1 {
		q.losing.Store(true)
	}
}

// dropped returns how many messages the queue has dropped so far.
func (q *queue) dropped() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.drops
}
