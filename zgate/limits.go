package zgate

import (
	"net"
	"net/netip"
	"sync"
)

// bucket is a token bucket. Not safe for concurrent use.
type bucket struct {
	tokens  float64
	last    int64 // wheel time
	strikes int   // tokens refused since the bucket was last half full
}

// take takes one token; rate is per second.
func (b *bucket) take(now int64, rate, burst int) bool { return b.takeN(now, 1, rate, burst) }

// takeN takes n tokens, or none.
func (b *bucket) takeN(now int64, n, rate, burst int) bool {
	b.tokens = min(float64(burst), b.tokens+float64(now-b.last)*float64(rate)/1e9)
	b.last = now
	if b.tokens >= float64(burst)/2 {
		b.strikes = 0
	}
	if b.tokens < float64(n) {
		b.strikes += n
		return false
	}
	b.tokens -= float64(n)
	return true
}

// addresses counts connections per address; IPv6 addresses count by their /64, which is what one subscriber has.
type addresses struct {
	mu    sync.Mutex
	conns map[netip.Addr]int
}

// add counts one more of a; it reports false, and does not, when there are limit already. Limit -1 is none.
func (t *addresses) add(a netip.Addr, limit int) bool {
	if limit < 0 || !a.IsValid() {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conns[a] >= limit {
		return false
	}
	t.conns[a]++
	return true
}

func (t *addresses) remove(a netip.Addr, limit int) {
	if limit < 0 || !a.IsValid() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conns[a]--; t.conns[a] <= 0 {
		delete(t.conns, a)
	}
}

// addrPort returns the address of the other end; zero where it has none (pipes, unix sockets).
func addrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		ap := t.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
	}
	if a == nil {
		return netip.AddrPort{}
	}
	ap, _ := netip.ParseAddrPort(a.String())
	return ap
}

// subscriber is what addresses counts by.
func subscriber(a netip.Addr) netip.Addr {
	if a.Is6() {
		p, _ := a.Prefix(64)
		return p.Addr()
	}
	return a
}
