package zbus

import (
	"errors"
	"slices"
)

// directBytes is the largest envelope, in bytes, that is published from its sender's goroutine.
const directBytes = 8 << 10

// errWaits says that publishing would wait for the socket.
var errWaits = errors.New("zbus: the socket is full")

// directOf returns how to publish on bus without waiting, nil where it cannot tell.
func directOf(bus Bus) func(subject, reply string, data []byte) error {
	try, ok := bus.(Direct)
	if !ok {
		return nil
	}
	return func(subject, reply string, data []byte) error {
		published, err := try.TryPublish(subject, reply, data)
		if err == nil && !published {
			return errWaits
		}
		return err
	}
}

// openReceiver opens the link's receiver.
func (l *Link) openReceiver() (Receiver, error) {
	if d, ok := l.cfg.Bus.(Direct); ok && l.cfg.Direct {
		return d.ReceiveDirect(l.receive)
	}
	return l.cfg.Bus.Receive(l.receive)
}

// pushedLocked has the envelope published that was just put into the queue: by the outbox, which packs what comes meanwhile into
// the same batch, or, where it reports true, by the caller, who calls publishDirect when he has let go of Link.mu. That saves the
// wake of a goroutine, which is most of what an idle link adds to the time of a request. lone says that nothing is to be
// expected that could be joined: it is the only request, or reply, that is on its way. A busy link goes by the outbox.
func (l *Link) pushedLocked(lone bool) (direct bool) {
	if lone && l.direct != nil && !l.woken && l.takeDirectLocked() {
		return true
	}
	l.wakeLocked()
	return false
}

// wakeLocked tells the outbox that something waits.
func (l *Link) wakeLocked() {
	if l.woken {
		return
	}
	l.woken = true
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// takeDirectLocked takes the only envelope of the queue and the outbox with it, if that is idle and nothing is in the way.
func (l *Link) takeDirectLocked() bool {
	if len(l.queue) != 1 || l.queue[0].n != 1 || len(l.queue[0].buf) > directBytes {
		return false
	}
	o := &l.outbox
	if !o.owner.TryLock() {
		return false
	}
	if o.chunk != nil || o.kept.any() || o.kept.pausing(l) {
		o.owner.Unlock()
		return false
	}
	o.chunk = l.queue[0]
	l.queue = slices.Delete(l.queue, 0, 1)
	if o.takeLocked(o.chunk); o.chunk.items[0].skip { // too late for it: the outbox ends it
		o.owner.Unlock()
		return false
	}
	return true
}

// publishDirect publishes what takeDirectLocked took. When the bus refuses it, or would wait, the outbox goes on: it tries again,
// and tells whoever has to be told, from its own goroutine.
func (l *Link) publishDirect() {
	o := &l.outbox
	o.add(0)
	b := o.open[0]
	err := o.send(b, l.direct)
	o.close(b)
	o.open = o.open[:0]

	l.mu.Lock()
	if err == nil {
		o.doneLocked(o.chunk)
	} else {
		l.wakeLocked()
	}
	l.mu.Unlock()
	o.owner.Unlock()
	l.poke()
}
