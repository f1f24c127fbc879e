package zgate

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Who a client behind a proxy is. A connection's own address is believed always, what it says about others only when it is one of
// Config.TrustedProxies: then by its PROXY header (Config.ProxyProtocol), and by X-Forwarded-For. Of that list, which each proxy
// appends to, the rightmost address that is no proxy of ours is the client: what stands to its left is what the client sent.

// errProxyHeader is why a connection of a proxy is closed that does not begin with a PROXY header.
var errProxyHeader = errors.New("no PROXY header, or a broken one")

const maxProxyHeader = 2048 // bytes of a version 2 header behind its first 16

// trusted reports whether a is a proxy that is believed.
func (g *Gate) trusted(a netip.Addr) bool {
	return a.IsValid() && slices.ContainsFunc(g.cfg.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(a.Unmap()) })
}

// behindProxy reads the PROXY header of a connection that must have one. It returns why the connection is refused, "" if it is not.
func (g *Gate) behindProxy(c *conn) (refused string) {
	if !g.cfg.ProxyProtocol || !g.trusted(c.remote.Addr()) {
		return ""
	}
	client, err := readProxyHeader(c.nc)
	switch {
	case err != nil && !errors.Is(err, errProxyHeader):
		return c.refusedBy("proxy_header", err)
	case err != nil:
		return "proxy_header"
	case client.IsValid():
		c.remote = client
	}
	return ""
}

// knowClient finds out the client's address, and counts the connection to it where its own was a proxy's.
func (g *Gate) knowClient(c *conn, r *http.Request) (refused string) {
	if g.trusted(c.remote.Addr()) {
		client, ok := g.forwarded(c.remote, r.Header.Values("X-Forwarded-For"))
		if !ok {
			c.refuse(http.StatusBadRequest, "X-Forwarded-For is malformed")
			return "forwarded"
		}
		c.remote = client
	}
	if !g.countAddress(c, true) {
		c.refuse(http.StatusTooManyRequests, "too many connections of one address")
		return "address"
	}
	return ""
}

// forwarded returns the client's address of a request that the proxy at from passed on. ok is false when the list is broken where one of our
// proxies wrote it.
func (g *Gate) forwarded(from netip.AddrPort, lists []string) (client netip.AddrPort, ok bool) {
	client = from
	for _, list := range slices.Backward(lists) {
		for {
			rest, last, more := cutLast(list)
			a, ok := parseForwarded(strings.TrimSpace(last))
			if !ok {
				return client, false
			}
			if client = a; !g.trusted(a.Addr()) {
				return client, true
			}
			if !more {
				break
			}
			list = rest
		}
	}
	return client, true
}

func cutLast(list string) (before, last string, more bool) {
	if i := strings.LastIndexByte(list, ','); i >= 0 {
		return list[:i], list[i+1:], true
	}
	return "", list, false
}

// parseForwarded reads an address of the list, with or without a port.
func parseForwarded(s string) (netip.AddrPort, bool) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port()), true
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return netip.AddrPortFrom(a.Unmap().WithZone(""), 0), err == nil
}

// countAddress counts c against MaxPerIP, unless it is counted, or is a proxy's that we do not know the client of yet (known is false).
// It reports false when the address has as many as it may have.
func (g *Gate) countAddress(c *conn, known bool) bool {
	if c.counted || !known && g.trusted(c.remote.Addr()) {
		return true
	}
	c.counted = g.addresses.add(subscriber(c.remote.Addr()), g.cfg.MaxPerIP)
	return c.counted
}

func (g *Gate) uncountAddress(c *conn) {
	if c.counted {
		c.counted = false
		g.addresses.remove(subscriber(c.remote.Addr()), g.cfg.MaxPerIP)
	}
}

// proxyV2 opens a header of version 2.
var proxyV2 = []byte("\r\n\r\n\x00\r\nQUIT\n")

// readProxyHeader reads a header of the PROXY protocol, version 1 or 2, and not a byte more. The address is invalid where the proxy speaks
// for itself (LOCAL, UNKNOWN) or for something without one. Errors: errProxyHeader, or what reading says.
func readProxyHeader(r io.Reader) (client netip.AddrPort, err error) {
	var b [16 + maxProxyHeader]byte
	if _, err := io.ReadFull(r, b[:12]); err != nil {
		return client, err
	}
	if !bytes.Equal(b[:12], proxyV2) {
		// At most 107 bytes, and nothing says how many: one at a time.
		n := 12
		for b[n-1] != '\n' {
			if n == 107 || !bytes.HasPrefix(b[:n], []byte("PROXY ")) {
				return client, errProxyHeader
			}
			if _, err := io.ReadFull(r, b[n:n+1]); err != nil {
				return client, err
			}
			n++
		}
		return parseProxyV1(string(b[:n]))
	}
	if _, err := io.ReadFull(r, b[12:16]); err != nil {
		return client, err
	}
	n := int(binary.BigEndian.Uint16(b[14:]))
	if b[12]>>4 != 2 || n > maxProxyHeader {
		return client, errProxyHeader
	}
	if _, err := io.ReadFull(r, b[16:16+n]); err != nil {
		return client, err
	}
	return parseProxyV2(b[12]&0xf, b[13], b[16:16+n])
}

func parseProxyV1(line string) (client netip.AddrPort, err error) {
	line, ok := strings.CutSuffix(line, "\r\n")
	w := strings.Split(line, " ")
	switch {
	case !ok || len(w) < 2 || w[0] != "PROXY":
		return client, errProxyHeader
	case w[1] == "UNKNOWN":
		return client, nil
	case len(w) != 6 || w[1] != "TCP4" && w[1] != "TCP6":
		return client, errProxyHeader
	}
	a, err := netip.ParseAddr(w[2])
	port, err2 := strconv.ParseUint(w[4], 10, 16)
	if err != nil || err2 != nil || a.Is4() != (w[1] == "TCP4") || a.Zone() != "" {
		return client, errProxyHeader
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(port)), nil
}

func parseProxyV2(command, family byte, b []byte) (client netip.AddrPort, err error) {
	switch {
	case command == 0: // LOCAL
		return client, nil
	case command != 1:
		return client, errProxyHeader
	case family == 0x11 && len(b) >= 12: // TCP over IPv4
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[:4])), binary.BigEndian.Uint16(b[8:])), nil
	case family == 0x21 && len(b) >= 36: // TCP over IPv6
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[:16])).Unmap(), binary.BigEndian.Uint16(b[32:])), nil
	case family == 0x00 || family>>4 == 3: // unspecified, or a unix socket
		return client, nil
	default:
		return client, errProxyHeader
	}
}
