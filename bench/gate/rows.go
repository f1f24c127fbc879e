//go:build linux

package gate

import (
	"fmt"
	"time"

	"zgame/zmsg"
)

// Row is one line of the table.
type Row struct {
	Key  string // names it on the command line and in JSON
	Work string // what is done
	Unit string // of the values
	// TCP: the figure is the gate's value by that of the bare echo.
	TCP bool
	// Also: the bare echo is measured as well, for comparison.
	Also bool
	// Most: the figure is to be at least Must and Aim; else at most.
	Most      bool
	Must, Aim float64 // both 0: there are none
	// Once: it takes long, and is measured in the first round alone.
	Once bool

	measure func(b *Bench, h *host) (float64, error)
}

// Rows returns the table.
func Rows() []Row {
	const us, ms = "us", "ms"
	echo := func(key, work string, clients, flight int, must, aim float64) Row {
		return Row{
			Key: key, Work: work, Unit: us, TCP: true, Must: must, Aim: aim,
			measure: func(b *Bench, h *host) (float64, error) {
				r, err := h.echo(b.n(clients), flight, b.cfg.Time, h.plain())
				return micros(r.cpu) / float64(r.messages), err
			},
		}
	}
	return []Row{
		echo("echo-100", "echo, CPU of a message, 100 connections", 100, 1, 1.5, 1.3),
		echo("echo-1000", "the same, 1,000", 1000, 1, 1.8, 1.55),
		echo("echo-5000", "the same, 5,000", 5000, 1, 1.6, 1.35),
		{
			Key: "rtt", Work: "1 connection, p50", Unit: us, TCP: true, Must: 1.15, Aim: 1.1,
			measure: func(b *Bench, h *host) (float64, error) {
				r, err := h.echo(1, 1, b.cfg.Time, h.plain())
				return micros(median(r.rtt)), err
			},
		},
		echo("flight-16", "echo, CPU of a message, 100 x 16 in flight", 100, 16, 2.2, 1.6),
		{
			Key: "kept-100", Work: "echo, CPU of a message, 100, sessions that outlive their connections", Unit: us, TCP: true,
			measure: func(b *Bench, h *host) (float64, error) {
				r, err := h.echo(b.n(100), 1, b.cfg.Time, h.staying())
				return micros(r.cpu) / float64(r.messages), err
			},
		},
		{
			Key: "kept-16", Work: "the same, 100 x 16 in flight", Unit: us, TCP: true,
			measure: func(b *Bench, h *host) (float64, error) {
				r, err := h.echo(b.n(100), 16, b.cfg.Time, h.staying())
				return micros(r.cpu) / float64(r.messages), err
			},
		},
		{
			Key: "typed-100", Work: "echo, CPU of a message, 100, body decoded and encoded by the actor", Unit: us, TCP: true,
			measure: func(b *Bench, h *host) (float64, error) {
				id, body := parcel()
				r, err := h.echo(b.n(100), 1, b.cfg.Time, h.wire(id, body, 0))
				return micros(r.cpu) / float64(r.messages), err
			},
		},
		{
			Key: "accept", Work: "accept, upgrade, login: CPU", Unit: us, Must: 70, Aim: 50, Also: true,
			measure: measureAccept,
		},
		{
			Key: "idle-bytes", Work: "idle authenticated connection, bytes, at 10,000", Unit: "B", Must: 10_000, Aim: 8_500, Once: true, Also: true,
			measure: func(b *Bench, h *host) (float64, error) { return measureIdleBytes(b, h, (*host).plain) },
		},
		{
			Key: "kept-bytes", Work: "the same, of a session that outlives its connection", Unit: "B", Once: true,
			measure: func(b *Bench, h *host) (float64, error) { return measureIdleBytes(b, h, (*host).staying) },
		},
		{
			Key: "idle-cpu", Work: "10,000 idle with heartbeats, CPU of a core", Unit: "%", Must: 1, Aim: 0.5, Once: true, Also: true,
			measure: measureIdleCPU,
		},
		{
			Key: "publish", Work: "one message to 5,000, until the last client has it", Unit: ms, TCP: true, Must: 1, Aim: 0.85,
			measure: func(b *Bench, h *host) (float64, error) {
				r, err := b.published(h, 1)
				return millis(r.took), err
			},
		},
		{
			Key: "burst", Work: "burst of 10 to 5,000, deliveries a second", Unit: "k/s", TCP: true, Most: true, Must: 3.5, Aim: 5,
			measure: func(b *Bench, h *host) (float64, error) {
				r, err := b.published(h, 10)
				return float64(10*b.n(5000)) / r.took.Seconds() / 1000, err
			},
		},
		{
			Key: "slow-p99", Work: "5 % slow clients: p99 of the others, with / without", Must: 1.5, Aim: 1.2, Once: true,
			measure: (*Bench).measureSlow,
		},
		{
			Key: "slow-delivered", Work: "5 % slow clients: delivered to the others", Unit: "%", Most: true, Must: 100, Aim: 100, Once: true,
			measure: (*Bench).measureDelivered,
		},
		{
			Key: "slow-closed", Work: "a slow client is closed after its queue fills", Unit: "s", Must: 3, Aim: 1.5, Once: true,
			measure: measureSlowClosed,
		},
		{
			Key: "deaf-memory", Work: "200 that never read beside 200 that do, 1 KB at 50 Hz: memory for them, of cap x 200", Must: 1, Aim: 1, Once: true,
			measure: (*Bench).measureDeaf,
		},
		{
			Key: "deaf-p99", Work: "the same: p99 of those that read, with / without", Must: 1.5, Aim: 1.2, Once: true,
			measure: func(b *Bench, h *host) (float64, error) {
				if b.deaf == 0 {
					if _, err := b.measureDeaf(h); err != nil {
						return 0, err
					}
				}
				return b.deaf, nil
			},
		},
		{
			Key: "storm", Work: "5,000 clients whose gate is drained, until 99 % are logged in at another", Unit: "s", Must: 10, Aim: 5, Once: true,
			measure: measureStorm,
		},
		{
			Key: "allocs", Work: "allocations of a message, decode -> mailbox -> encode -> write", Unit: allocations, Must: 1, Aim: 0,
			measure: func(b *Bench, h *host) (float64, error) {
				r, err := h.echo(b.n(100), 1, b.cfg.Time, h.plain())
				return float64(r.mallocs) / float64(r.messages), err
			},
		},
		{
			Key: "typed-allocs", Work: "the same, body decoded and encoded by the actor", Unit: allocations,
			measure: func(b *Bench, h *host) (float64, error) {
				id, body := parcel()
				r, err := h.echo(b.n(100), 1, b.cfg.Time, h.wire(id, body, 0))
				return float64(r.mallocs) / float64(r.messages), err
			},
		},
		{
			Key: "envelope", Work: "frame of 64 B, encode + decode", Unit: "ns", Must: 40, Aim: 25,
			measure: func(b *Bench, _ *host) (float64, error) { return measureFrame(b.cfg.Time / 10) },
		},
	}
}

// allocations is the unit of counted allocations: what the runtime allocates now and then is nobody's.
const allocations = "allocs"

// heartbeat is a gate's default interval, at which clients say that they are there.
const heartbeat = 20 * time.Second

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// measureAccept is the server's CPU time for one connection, from its accept to the Welcome.
func measureAccept(b *Bench, h *host) (float64, error) {
	n := b.n(2000)
	before, err := h.number("cpu")
	if err != nil {
		return 0, err
	}
	used := time.Duration(0)
	err = h.with(n, how{wire: h.plain()}, func(*load) error {
		after, err := h.number("cpu")
		used = time.Duration(after - before)
		return err
	})
	return micros(used) / float64(n), err
}

// fresh lets use work with a server that has just been started.
func (b *Bench) fresh(role string, use func(h *host) error) error {
	h, err := start(role, "", "", b.server)
	if err != nil {
		return err
	}
	if err := use(h); err != nil {
		_ = h.proc.Stop()
		return err
	}
	return h.proc.Stop()
}

// measureIdleBytes is heap and stacks of a server for one connection.
func measureIdleBytes(b *Bench, of *host, kind func(h *host) func() wire) (per float64, err error) {
	n := b.n(10_000)
	err = b.fresh(of.role, func(h *host) error {
		before, err := h.number("memory")
		if err != nil {
			return err
		}
		return h.with(n, how{wire: kind(h)}, func(*load) error {
			after, err := h.number("memory")
			per = float64(after-before) / float64(n)
			return err
		})
	})
	return per, err
}

// measureIdleCPU is the server's CPU time while clients send nothing but heartbeats, in per cent of a core.
func measureIdleCPU(b *Bench, h *host) (per float64, err error) {
	err = h.with(b.n(10_000), how{wire: h.plain()}, func(l *load) error {
		used, err := l.beat(heartbeat, b.cfg.Idle)
		per = 100 * float64(used) / float64(b.cfg.Idle)
		return err
	})
	return per, err
}

// published measures bursts of k messages to 5,000 clients.
func (b *Bench) published(h *host, k int) (r published, err error) {
	err = h.with(b.n(5000), how{wire: h.wire(echoID, rawBody(), messageBytes), joins: joins(joinID)}, func(l *load) error {
		if _, err := l.burst(k, messageBytes, 2); err != nil { // warm
			return err
		}
		r, err = l.burst(k, messageBytes, 7)
		return err
	})
	return r, err
}

// The stream of the rows with slow clients.
const (
	streamSize = 1024
	streamRate = 50
)

// streamed measures a stream to clients of which slow do not read.
func (b *Bench) streamed(h *host, clients, slow, messages int) (r streamed, err error) {
	w := how{wire: h.wire(echoID, rawBody(), streamSize), joins: joins(joinID)}
	if slow > 0 {
		w.buffer = 4096
	}
	err = h.with(slow, w, func(l *load) error {
		for _, s := range l.all {
			if err := l.deafen(s); err != nil {
				return err
			}
		}
		w.buffer = 0
		if err := l.dial(clients-slow, w); err != nil {
			return err
		}
		r, err = l.stream(messages, streamSize, streamRate)
		return err
	})
	return r, err
}

// queueBytes is the cap: how much may wait for a client by default.
const queueBytes = 1 << 20

// measureDeaf is how much more memory a server takes for 200 clients that do not read, by what may wait for so many.
func (b *Bench) measureDeaf(of *host) (share float64, err error) {
	n := b.n(200)
	messages := 3 * b.cfg.Stream
	var without, with streamed
	err = b.fresh(of.role, func(h *host) (err error) {
		without, err = b.streamed(h, n, 0, messages)
		return err
	})
	if err != nil {
		return 0, err
	}
	err = b.fresh(of.role, func(h *host) (err error) {
		with, err = b.streamed(h, 2*n, n, messages)
		return err
	})
	if err == nil && with.missing > 0 {
		err = fmt.Errorf("bench: %d deliveries to clients that read are missing", with.missing)
	}
	b.deaf = float64(quantile(with.late, 0.99)) / float64(quantile(without.late, 0.99))
	return float64(max(0, with.memory-without.memory)) / float64(n*queueBytes), err
}

// measureStorm is the time until nearly all clients of a gate that drains have come back.
func measureStorm(b *Bench, of *host) (seconds float64, err error) {
	err = b.fresh(of.role, func(h *host) error {
		w := how{wire: h.plain()}
		return h.with(b.n(5000), w, func(l *load) error {
			r, err := l.storm(w)
			seconds = r.most.Seconds()
			return err
		})
	})
	return seconds, err
}

func (b *Bench) measureSlow(h *host) (float64, error) {
	n := b.n(1000)
	slow := max(1, n/20)
	without, err := b.streamed(h, n-slow, 0, b.cfg.Stream)
	if err != nil {
		return 0, err
	}
	with, err := b.streamed(h, n, slow, b.cfg.Stream)
	if err != nil {
		return 0, err
	}
	b.delivered = 100 * (1 - float64(with.missing)/float64(b.cfg.Stream*(n-slow)))
	return float64(quantile(with.late, 0.99)) / float64(quantile(without.late, 0.99)), nil
}

func (b *Bench) measureDelivered(h *host) (float64, error) {
	if b.delivered == 0 {
		if _, err := b.measureSlow(h); err != nil {
			return 0, err
		}
	}
	return b.delivered, nil
}

// measureSlowClosed is the time from when a client that reads nothing has a full queue to the end of its connection.
func measureSlowClosed(_ *Bench, h *host) (seconds float64, err error) {
	w := how{wire: h.wire(echoID, rawBody(), streamSize), joins: joins(joinSlow), buffer: 4096}
	err = h.with(1, w, func(l *load) error {
		if err := l.deafen(l.all[0]); err != nil {
			return err
		}
		took, err := h.number(fmt.Sprintf("fill %d", 16<<10))
		seconds = time.Duration(took).Seconds()
		return err
	})
	return seconds, err
}

// measureFrame is one request frame, encoded and decoded, in nanoseconds.
func measureFrame(d time.Duration) (float64, error) {
	f := zmsg.Frame{Kind: 1, ID: echoID, Seq: firstSeq, Body: rawBody()}
	var got zmsg.Frame
	buf := make([]byte, 0, 256)
	n := 0
	began := time.Now()
	for time.Since(began) < d {
		for range 1000 {
			buf = zmsg.AppendPacketFrame(buf[:0], &f)
			if _, err := zmsg.NextFrame(buf, &got); err != nil {
				return 0, err
			}
		}
		n += 1000
	}
	return float64(time.Since(began)) / float64(n), nil
}
