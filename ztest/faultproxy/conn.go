package faultproxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Conn is one connection through a proxy. Its methods may be called from any goroutine; those that change it do nothing once
// it has ended.
type Conn struct {
	// Set at construction.
	proxy *Proxy
	ends  [2]*net.TCPConn  // who dialed, the target
	poke  [2]chan struct{} // tells the writer of a lane that something changed
	room  [2]chan struct{} // tells the reader of a lane
	done  chan struct{}    // closed by end

	mu    sync.Mutex // guards all below
	lanes [2]lane    // up, down: lane i reads ends[i] and writes ends[1-i]
	ended bool
}

// indexes of lanes that d names.
func (d Dir) each(f func(i int)) {
	for i := range 2 {
		if d&(Up<<i) != 0 {
			f(i)
		}
	}
}

func newConn(p *Proxy, client, target *net.TCPConn, faults [2]Fault) *Conn {
	c := &Conn{proxy: p, ends: [2]*net.TCPConn{client, target}, done: make(chan struct{})}
	for i := range 2 {
		c.poke[i], c.room[i] = make(chan struct{}, 1), make(chan struct{}, 1)
		c.lanes[i].set(faults[i])
	}
	return c
}

// run starts the goroutines: owned by the proxy, they end when the connection does; Close waits for them.
func (c *Conn) run() {
	for i := range 2 {
		c.proxy.wg.Go(func() { c.read(i) })
		c.proxy.wg.Go(func() { c.write(i) })
	}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // one waits to be seen already
	}
}

// Set changes what is wrong with the directions d of this connection.
func (c *Conn) Set(d Dir, f Fault) {
	c.mu.Lock()
	broken := false
	d.each(func(i int) {
		c.lanes[i].set(f)
		broken = broken || c.lanes[i].broken()
		signal(c.poke[i])
	})
	c.mu.Unlock()
	if broken {
		c.end(true)
	}
}

// Reset ends the connection: both ends see it reset.
func (c *Conn) Reset() { c.end(true) }

// HalfClose tells the receivers of d that the stream has ended, now. The senders do not learn of it: what they send vanishes.
func (c *Conn) HalfClose(d Dir) {
	c.mu.Lock()
	d.each(func(i int) {
		if c.lanes[i].shut || c.ended {
			return
		}
		c.lanes[i].close()
		_ = c.ends[1-i].CloseWrite() // one that has gone needs no end
		signal(c.room[i])
	})
	over := c.over()
	c.mu.Unlock()
	if over {
		c.end(false)
	}
}

// Bytes counts those of the directions d, together.
func (c *Conn) Bytes(d Dir) (sum Bytes) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d.each(func(i int) { sum.add(c.lanes[i].bytes) })
	return sum
}

// over reports whether nothing can come any more: each direction's end has come and was told, or it has vanished in both. The caller holds mu.
func (c *Conn) over() bool {
	a, b := &c.lanes[0], &c.lanes[1]
	return a.lastIn && b.lastIn && (a.shut || a.lost) && (b.shut || b.lost)
}

// end closes both sockets.
func (c *Conn) end(withReset bool) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return
	}
	c.ended = true
	for i := range 2 {
		c.lanes[i].close()
	}
	close(c.done)
	for _, s := range c.ends {
		if withReset {
			reset(s)
		} else {
			_ = s.Close()
		}
	}
	c.mu.Unlock()
	c.proxy.forget(c)
}

// read takes what end i sends into its lane.
func (c *Conn) read(i int) {
	buf := make([]byte, 32<<10)
	for {
		n, err := c.ends[i].Read(buf)
		at := time.Now()
		c.mu.Lock()
		l := &c.lanes[i]
		if n > 0 {
			l.put(item{at: at, data: append([]byte(nil), buf[:n]...)})
		}
		if err != nil {
			k := kindReset
			if errors.Is(err, io.EOF) {
				k = kindEnd
			}
			l.put(item{at: at, kind: k})
		}
		over := c.over()
		signal(c.poke[i])
		for l.full() {
			c.mu.Unlock()
			select {
			case <-c.room[i]:
			case <-c.done:
				return
			}
			c.mu.Lock()
		}
		c.mu.Unlock()
		if over {
			c.end(false)
		}
		if err != nil {
			return
		}
	}
}

// write does what lane i says.
func (c *Conn) write(i int) {
	to := c.ends[1-i]
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		c.mu.Lock()
		s := c.lanes[i].next(time.Now())
		over := c.over()
		signal(c.room[i])
		c.mu.Unlock()
		var err error
		switch s.do {
		case doWait:
			if over {
				c.end(false)
			}
			var due <-chan time.Time
			if s.pause > 0 {
				timer.Reset(s.pause)
				due = timer.C
			}
			select {
			case <-c.poke[i]:
			case <-due:
			case <-c.done:
				return
			}
		case doWrite:
			_, err = to.Write(s.data)
		case doWriteAndCut:
			_, err = to.Write(s.data)
			c.cut(i)
		case doShut:
			err = to.CloseWrite()
			if over {
				c.end(false)
			}
		case doReset:
			c.end(true)
		}
		if err != nil {
			c.failed(i)
		}
	}
}

// cut ends the connection after the last byte of lane i was written: its receiver sees the end of the stream, its sender a reset.
// What the receiver still sends vanishes until it closes: closing the socket before could take the last bytes from it.
func (c *Conn) cut(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.lanes[1-i].close()
	_ = c.ends[1-i].CloseWrite() // one that has gone needs no end
	reset(c.ends[i])
	signal(c.room[1-i])
}

// failed tells the sender of lane i, by the way back, that its receiver is gone.
func (c *Conn) failed(i int) {
	c.mu.Lock()
	back := &c.lanes[1-i]
	both := false
	if !c.lanes[i].shut {
		c.lanes[i].close()
		if both = back.shut; !both {
			back.put(item{at: time.Now(), kind: kindReset})
			signal(c.poke[1-i])
		}
	}
	c.mu.Unlock()
	if both {
		c.end(true)
	}
}
