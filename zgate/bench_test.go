//go:build unix

package zgate

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"zgame/zmsg"
	"zgame/zroute"
)

const payload = 64

// cpu is the time that this process has used of processors: a busy machine changes it less than the clock.
func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// tcpEcho is the unit: an echo of the same payload over bare TCP, a goroutine per connection.
func tcpEcho(b *testing.B) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				buf := make([]byte, 4096)
				for {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					if _, err := c.Write(buf[:n]); err != nil {
						return
					}
				}
			})
		}
	})
	b.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return l.Addr().String()
}

// pinger is a client that sends what and reads as much as one answer has, flight times at once.
type pinger struct {
	net.Conn
	r      *bufio.Reader
	what   []byte
	flight int
	ws     bool
}

func (p *pinger) ping() error {
	if _, err := p.Write(p.what); err != nil {
		return err
	}
	for range p.flight {
		n := payload
		if p.ws {
			h, err := p.r.Peek(2)
			if err != nil {
				return err
			}
			n = 2 + int(h[1])
			if h[1] == 126 {
				h, _ = p.r.Peek(4)
				n = 4 + int(binary.BigEndian.Uint16(h[2:]))
			}
		}
		if _, err := p.r.Discard(n); err != nil {
			return err
		}
	}
	return nil
}

func gatePinger(b *testing.B, r *rig, id uint32, flight int) *pinger {
	b.Helper()
	c := r.dialRaw(true)
	_ = c.SetDeadline(time.Time{})
	c.hello("ann")
	var what []byte
	for i := range flight {
		what = append(what, maskedFrame(0x82, zmsg.AppendPacketFrame(nil,
			&zmsg.Frame{Kind: 1, ID: id, Seq: uint64(i + 1), Body: make([]byte, payload)}))...)
	}
	return &pinger{c, bufio.NewReader(c), what, flight, true}
}

// hop is a Dispatcher whose actor is one goroutine behind a queue.
func hop(b *testing.B) Dispatcher {
	b.Helper()
	ch := make(chan *zmsg.Message, 4096)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for m := range ch {
			m.Reply(&zmsg.Reply{ID: m.ID + 1, Body: m.Body()})
			m.Release()
		}
	}()
	b.Cleanup(func() { close(ch); <-done })
	return dispatch(func(m *zmsg.Message) (zroute.Result, int, error) {
		ch <- m
		return zroute.OnLocal, 0, nil
	})
}

// BenchmarkEcho compares round trips with bare TCP of the same run, clients included: x-tcp-cpu is the ratio of what
// both use of processors.
func BenchmarkEcho(b *testing.B) {
	unit := map[string]float64{}
	for _, load := range []struct{ conns, flight int }{{1, 1}, {100, 1}, {100, 16}} {
		name := fmt.Sprintf("conns=%d/flight=%d", load.conns, load.flight)
		for _, kind := range []string{"tcp", "handler", "hop"} {
			b.Run(kind+"/"+name, func(b *testing.B) {
				pingers := make([]*pinger, load.conns)
				var r *rig
				addr := ""
				switch kind {
				case "tcp":
					addr = tcpEcho(b)
				default:
					d := hop(b)
					r = newRig(b, func(c *Config) { c.Logger, c.Rate, c.ByteRate, c.Dispatcher = nil, -1, -1, d })
				}
				for i := range pingers {
					if kind == "tcp" {
						c, err := net.Dial("tcp", addr)
						if err != nil {
							b.Fatal(err)
						}
						b.Cleanup(func() { _ = c.Close() })
						pingers[i] = &pinger{c, bufio.NewReader(c), make([]byte, payload*load.flight), load.flight, false}
						continue
					}
					pingers[i] = gatePinger(b, r, map[string]uint32{"handler": idEcho, "hop": 200}[kind], load.flight)
				}
				b.ReportAllocs()
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				used := cpu()
				b.ResetTimer()
				for _, p := range pingers {
					wg.Go(func() {
						for left.Add(-int64(p.flight)) > -int64(p.flight) {
							if err := p.ping(); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				ns := float64((cpu() - used).Nanoseconds()) / float64(b.N)
				b.ReportMetric(ns, "cpu-ns/op")
				if kind == "tcp" {
					unit[name] = ns
				} else if unit[name] > 0 {
					b.ReportMetric(ns/unit[name], "x-tcp-cpu")
				}
			})
		}
	}
}

// BenchmarkBroadcast is one push to 1,000 sessions, until the last client has it, and bursts of ten; the unit is a loop
// of writes to as many bare TCP connections.
func BenchmarkBroadcast(b *testing.B) {
	const sessions = 1000
	unit := map[int]float64{}
	for _, burst := range []int{1, 10} {
		for _, kind := range []string{"tcp", "gate"} {
			b.Run(fmt.Sprintf("%s/sessions=%d/burst=%d", kind, sessions, burst), func(b *testing.B) {
				var got sync.WaitGroup
				var readers sync.WaitGroup
				push := &zmsg.Push{ID: 1, Body: make([]byte, payload)}
				size := 0 // of one delivery on the wire
				reader := func(c net.Conn) {
					b.Cleanup(func() { _ = c.Close() })
					readers.Go(func() {
						buf := make([]byte, 8192)
						have := 0
						for {
							n, err := c.Read(buf)
							if err != nil {
								return
							}
							for have += n; have >= size; have -= size {
								got.Done()
							}
						}
					})
				}
				b.Cleanup(readers.Wait)
				var publish func()
				if kind == "tcp" {
					size = payload + 12
					l, err := net.Listen("tcp", "127.0.0.1:0")
					if err != nil {
						b.Fatal(err)
					}
					defer l.Close()
					var conns []net.Conn
					for range sessions {
						c, err := net.Dial("tcp", l.Addr().String())
						if err != nil {
							b.Fatal(err)
						}
						s, err := l.Accept()
						if err != nil {
							b.Fatal(err)
						}
						conns = append(conns, s)
						b.Cleanup(func() { _ = s.Close() })
						reader(c)
					}
					frame := make([]byte, size)
					publish = func() {
						for _, c := range conns {
							_, _ = c.Write(frame)
						}
					}
				} else {
					r := newRig(b, func(c *Config) { c.Logger = nil })
					var socks []raw
					for range sessions {
						c := r.dialRaw(true)
						_ = c.SetDeadline(time.Time{})
						ref := c.hello("ann")
						s, err := r.Session(ref)
						if err != nil {
							b.Fatal(err)
						}
						s.pushes = 1 << 40 // numbers of one size
						if err := r.Join(ref, "g"); err != nil {
							b.Fatal(err)
						}
						socks = append(socks, c)
					}
					publish = func() { r.PublishLocal("g", push) }
					publish()
					for _, c := range socks {
						_, p, err := c.wsRead()
						if err != nil {
							b.Fatal(err)
						}
						size = len(p) + 2
					}
					for _, c := range socks {
						reader(c.Conn)
					}
				}
				b.ReportAllocs()
				used := cpu()
				for b.Loop() {
					got.Add(sessions * burst)
					for range burst {
						publish()
					}
					got.Wait()
				}
				ns := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
				b.ReportMetric(float64(sessions*burst)/ns*1e9, "deliveries/s")
				ns = float64((cpu() - used).Nanoseconds()) / float64(b.N)
				b.ReportMetric(ns/float64(sessions*burst), "cpu-ns/delivery")
				if kind == "tcp" {
					unit[burst] = ns
				} else if unit[burst] > 0 {
					b.ReportMetric(ns/unit[burst], "x-tcp-cpu")
				}
			})
		}
	}
}

// BenchmarkIdle reports the memory of an idle session, the client's bare socket included: of one that ends with its connection, and of one that is kept
// for a client that has acknowledged everything.
func BenchmarkIdle(b *testing.B) {
	const n = 2000
	memory := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapInuse + m.StackInuse)
	}
	for _, kind := range []string{"plain", "kept"} {
		b.Run(kind, func(b *testing.B) {
			r := newRig(b, func(c *Config) { c.Logger, c.MaxPerIP = nil, -1 })
			before := memory()
			conns := make([]raw, n)
			for i := range conns {
				conns[i] = r.dialRaw(true)
				ref := conns[i].hello("ann")
				if kind == "plain" {
					continue
				}
				s, err := r.Session(ref)
				if err != nil {
					b.Fatal(err)
				}
				s.resume = &resumption{window: time.Minute, shown: true}
				if err := s.Push(&zmsg.Push{ID: 1, Body: make([]byte, 100)}); err != nil {
					b.Fatal(err)
				}
				s.ack(s.c.Load(), 1, 0)
			}
			per := (memory() - before) / n
			for b.Loop() {
				_ = r.Sessions()
			}
			b.ReportMetric(per, "B/session")
			for _, c := range conns {
				_ = c.Close()
			}
		})
	}
}

// BenchmarkConnect is a connection from accept to Welcome, client included.
func BenchmarkConnect(b *testing.B) {
	r := newRig(b, func(c *Config) { c.Logger, c.MaxPerIP = nil, -1 })
	b.ReportAllocs()
	for b.Loop() {
		c := r.dialRaw(true)
		c.hello("ann")
		_ = c.tcp.SetLinger(0)
		_ = c.Close()
	}
}
