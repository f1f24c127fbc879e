package faultproxy

import "time"

// lane is what waits in one direction of a connection, and the rule by which it goes on. It is plain data: the time comes
// from outside, reading and writing are the connection's.
type lane struct {
	fault  Fault
	cutAt  int64     // Passed at which CutAfter is reached
	freeAt time.Time // when Rate lets the next bytes go
	queue  []item
	bytes  Bytes
	hole   bool // something vanished
	lastIn bool // the sender's end of the stream, or its reset, has come
	lost   bool // and has vanished
	shut   bool // the receiver was told the end: what comes vanishes
}

// item is a piece of a stream, or its end.
type item struct {
	at   time.Time // when it came
	kind kind
	data []byte
}

type kind uint8

const (
	kindData  kind = iota
	kindEnd        // the sender has closed its direction
	kindReset      // the sender, or a write to the receiver, found the connection reset
)

// step is what the writer does next.
type step struct {
	do    action
	data  []byte        // to write
	pause time.Duration // longest wait; 0 is until something changes
}

type action uint8

const (
	doWait action = iota
	doWrite
	doWriteAndCut
	doShut  // tell the receiver the end of the stream
	doReset // reset both ends
)

func (l *lane) set(f Fault) {
	l.fault, l.freeAt, l.cutAt = f, time.Time{}, l.bytes.Passed+f.CutAfter
}

// broken reports whether bytes would pass behind a hole.
func (l *lane) broken() bool { return l.hole && !l.shut && !l.fault.Swallow && !l.fault.Stall }

// full reports whether the reader must wait.
func (l *lane) full() bool { return !l.shut && l.bytes.Waiting >= Buffer }

func (l *lane) put(i item) {
	if i.kind != kindData {
		l.lastIn = true
	}
	if l.shut {
		l.bytes.Vanished += int64(len(i.data))
		return
	}
	l.queue = append(l.queue, i)
	l.bytes.Waiting += int64(len(i.data))
}

// close says that the receiver was told the end: what waits vanishes, and what comes.
func (l *lane) close() {
	l.shut = true
	l.bytes.Vanished += l.bytes.Waiting
	l.bytes.Waiting, l.queue = 0, nil
}

// next decides at the time now. What it returns to be written counts as passed.
func (l *lane) next(now time.Time) step {
	for len(l.queue) > 0 && !l.fault.Stall {
		first := &l.queue[0]
		if pause := first.at.Add(l.fault.Delay).Sub(now); pause > 0 {
			return step{pause: pause}
		}
		switch {
		case l.fault.Swallow:
			l.hole = true
			l.lost = l.lost || first.kind != kindData
			l.bytes.Vanished += int64(len(first.data))
			l.bytes.Waiting -= int64(len(first.data))
			l.pop()
			continue
		case first.kind == kindEnd:
			l.close()
			return step{do: doShut}
		case first.kind == kindReset:
			l.pop()
			return step{do: doReset}
		}
		return l.pass(now, first)
	}
	return step{}
}

// pass takes from the first item, which is data, what may go now.
func (l *lane) pass(now time.Time, first *item) step {
	data, do := first.data, doWrite
	if l.fault.Rate > 0 {
		if pause := l.freeAt.Sub(now); pause > 0 {
			return step{pause: pause}
		}
		data = data[:min(len(data), max(1, l.fault.Rate/50))] // in even pieces, not in one a second
		// From now, not from when the last piece was due: never faster than asked for.
		l.freeAt = now.Add(time.Duration(len(data)) * time.Second / time.Duration(l.fault.Rate))
	}
	if l.fault.CutAfter > 0 && l.bytes.Passed+int64(len(data)) >= l.cutAt {
		data, do = data[:l.cutAt-l.bytes.Passed], doWriteAndCut
	}
	if first.data = first.data[len(data):]; len(first.data) == 0 {
		l.pop()
	}
	l.bytes.Waiting -= int64(len(data))
	l.bytes.Passed += int64(len(data))
	if do == doWriteAndCut {
		l.close()
	}
	return step{do: do, data: data}
}

func (l *lane) pop() {
	l.queue[0] = item{}
	l.queue = l.queue[1:]
}
