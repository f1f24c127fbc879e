package zgate

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"zgame/zmsg/wirepb"
)

// L5: of X-Forwarded-For, the rightmost address that is no proxy of ours is the client; what a client wrote to its left does not count.
func TestForwarded(t *testing.T) {
	g := newRig(t, func(c *Config) { c.TrustedProxies = prefixes("10.0.0.0/8", "2001:db8::/32", "192.0.2.1/32") }).Gate
	from := netip.MustParseAddrPort("10.0.0.1:99")
	for _, c := range []struct {
		lists []string
		want  string // "": broken
	}{
		{nil, "10.0.0.1:99"},
		{[]string{"1.2.3.4"}, "1.2.3.4:0"},
		{[]string{"6.6.6.6, 1.2.3.4"}, "1.2.3.4:0"},
		{[]string{"6.6.6.6, 1.2.3.4, 10.9.9.9"}, "1.2.3.4:0"},
		{[]string{"6.6.6.6", "1.2.3.4", "10.9.9.9 , 10.8.8.8"}, "1.2.3.4:0"},
		{[]string{"nonsense, 1.2.3.4,10.0.0.2"}, "1.2.3.4:0"}, // the client's own nonsense
		{[]string{"10.0.0.7, 10.0.0.8"}, "10.0.0.7:0"},
		{[]string{"1.2.3.4:567"}, "1.2.3.4:567"},
		{[]string{"[2a00::1]:567, 2001:db8::9"}, "[2a00::1]:567"},
		{[]string{"2a00::1%eth0"}, "[2a00::1]:0"},
		{[]string{"::ffff:1.2.3.4"}, "1.2.3.4:0"},
		{[]string{"::ffff:10.0.0.3"}, "10.0.0.3:0"},
		{[]string{"1.2.3.4, nonsense"}, ""},
		{[]string{"1.2.3.4, nonsense, 10.0.0.2"}, ""},
		{[]string{"1.2.3.4,"}, ""},
		{[]string{""}, ""},
	} {
		got, ok := g.forwarded(from, c.lists)
		if ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("%q: %v %v, want %q", c.lists, got, ok, c.want)
		}
	}
}

func prefixes(list ...string) (p []netip.Prefix) {
	for _, s := range list {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

// remote returns the address that the session of a raw client has.
func (r *rig) remoteOf(c raw) netip.AddrPort {
	r.t.Helper()
	s, err := r.Session(c.hello("ann"))
	if err != nil {
		r.t.Fatal(err)
	}
	return s.RemoteAddr()
}

// L5: only listed proxies are believed, and their clients, not they, count against the limit of an address.
func TestTrustedProxies(t *testing.T) {
	for _, trusted := range []bool{true, false} {
		r := newRig(t, func(c *Config) {
			c.MaxPerIP = 2
			if trusted {
				c.TrustedProxies = prefixes("127.0.0.0/8")
			}
		})
		seen, refused := map[string]int{}, 0
		var clients []*client
		for _, client := range []string{"1.1.1.1", "1.1.1.1", "2.2.2.2", "1.1.1.1", "2.2.2.2"} {
			d := dialing{head: http.Header{"X-Forwarded-For": {"6.6.6.6, " + client}}}
			c, err := r.tryDial(d)
			if err != nil {
				refused++
				continue
			}
			c.hello("ann")
			clients = append(clients, c)
			s, err := r.Session(c.ref())
			if err != nil {
				t.Fatal(err)
			}
			seen[s.RemoteAddr().Addr().String()]++
		}
		switch {
		case trusted && (seen["1.1.1.1"] != 2 || seen["2.2.2.2"] != 2 || refused != 1):
			t.Errorf("behind a proxy: %v, %d refused", seen, refused)
		case !trusted && (seen["127.0.0.1"] != 2 || refused != 3):
			t.Errorf("spoofed: %v, %d refused", seen, refused)
		}
		if r.counter("refused_total", "address") == 0 {
			t.Error("not counted")
		}
		// All places are free again in the end.
		for _, c := range clients {
			c.ws.end()
		}
		eventually(t, "nobody is counted any more", func() bool {
			r.addresses.mu.Lock()
			defer r.addresses.mu.Unlock()
			return len(r.addresses.conns) == 0
		})
	}
}

func v2(command, family byte, rest ...byte) string {
	return string(proxyV2) + string([]byte{0x20 | command, family, byte(len(rest) >> 8), byte(len(rest))}) + string(rest)
}

var (
	v4 = []byte{1, 2, 3, 4, 9, 9, 9, 9, 0x12, 0x34, 0, 80}
	v6 = append(append(netip.MustParseAddr("2a00::1").AsSlice(), make([]byte, 16)...), 0x12, 0x34, 0, 80)
)

// L5: the PROXY header of a listed proxy, with and without TLS. A broken one closes, so does none.
func TestProxyHeader(t *testing.T) {
	for name, c := range map[string]struct {
		header string
		want   string // "": closed; "own": the connection's address
	}{
		"v1":               {"PROXY TCP4 1.2.3.4 9.9.9.9 4660 80\r\n", "1.2.3.4:4660"},
		"v1, IPv6":         {"PROXY TCP6 2a00::1 2a00::2 4660 80\r\n", "[2a00::1]:4660"},
		"v1 unknown":       {"PROXY UNKNOWN\r\n", "own"},
		"v1 unknown, more": {"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", "own"},
		"v2":               {v2(1, 0x11, v4...), "1.2.3.4:4660"},
		"v2, IPv6":         {v2(1, 0x21, v6...), "[2a00::1]:4660"},
		"v2, extensions":   {v2(1, 0x11, append(bytes.Clone(v4), 3, 0, 1, 7)...), "1.2.3.4:4660"},
		"v2 local":         {v2(0, 0x00), "own"},
		"v2 unix":          {v2(1, 0x31, make([]byte, 216)...), "own"},

		"none":                {"", ""},
		"v1, one word":        {"PROXY\r\nxxxxxxx", ""},
		"v1, family":          {"PROXY TCP5 1.2.3.4 9.9.9.9 4660 80\r\n", ""},
		"v1, not its family":  {"PROXY TCP4 2a00::1 2a00::2 4660 80\r\n", ""},
		"v1, port":            {"PROXY TCP4 1.2.3.4 9.9.9.9 99999 80\r\n", ""},
		"v1, address":         {"PROXY TCP4 1.2.3.999 9.9.9.9 4660 80\r\n", ""},
		"v1, no carriage":     {"PROXY TCP4 1.2.3.4 9.9.9.9 4660 80\n", ""},
		"v1 without an end":   {"PROXY " + strings.Repeat("x", 200), ""},
		"v2, short":           {v2(1, 0x11, v4[:11]...), ""},
		"v2, IPv6 short":      {v2(1, 0x21, v6[:35]...), ""},
		"v2, datagram":        {v2(1, 0x12, v4...), ""},
		"v2, command":         {v2(2, 0x11, v4...), ""},
		"v2, version":         {string(proxyV2) + "\x11\x11\x00\x0c" + string(v4), ""},
		"v2, huge":            {string(proxyV2) + "\x21\x11\xff\xff", ""},
		"almost a v2 opening": {string(proxyV2[:11]) + "x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, secure := range []bool{false, true} {
				r := newRig(t, func(c *Config) {
					c.TrustedProxies, c.ProxyProtocol = prefixes("127.0.0.0/8"), true
					if secure {
						withTLS(c)
					}
				})
				r.before = []byte(c.header)
				if c.want == "" {
					d := r.dialRaw(false)
					if !secure {
						go func() { _, _ = io.WriteString(d, "GET /ws HTTP/1.1\r\nHost: x\r\n\r\n") }()
					} else {
						go func() { _, _ = d.Write([]byte("x")) }()
					}
					if resp, err := http.ReadResponse(bufio.NewReader(d), nil); err == nil {
						t.Errorf("answered: %v", resp.Status)
					}
					eventually(t, "counted", func() bool { return r.counter("refused_total", "proxy_header") == 1 })
					continue
				}
				got := r.remoteOf(r.dialRaw(true))
				if own := got.Addr() == netip.MustParseAddr("127.0.0.1"); c.want == "own" && !own || c.want != "own" && got.String() != c.want {
					t.Errorf("TLS %v: %v, want %s", secure, got, c.want)
				}
			}
		})
	}
}

// A header from somebody who is no proxy is no header.
func TestProxyHeaderOfOthers(t *testing.T) {
	r := newRig(t, func(c *Config) { c.TrustedProxies, c.ProxyProtocol = prefixes("10.0.0.0/8"), true })
	if got := r.remoteOf(r.dialRaw(true)); got.Addr().String() != "127.0.0.1" {
		t.Errorf("without a header: %v", got)
	}
	c := r.dialRaw(false)
	c.http("PROXY TCP4 1.2.3.4 9.9.9.9 4660 80\r\nGET /ws HTTP/1.1\r\nHost: x\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != 400 {
		t.Errorf("%v %v", resp, err)
	}
}

// Proxies do not use up the limit of an address before their clients are known; a client that is silent there ends by time.
func TestProxyIsSilent(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.TrustedProxies, c.ProxyProtocol, c.MaxPerIP = prefixes("127.0.0.0/8"), true, 1
		c.HandshakeTimeout = patience / 100
	})
	var silent []raw
	for range 5 {
		silent = append(silent, r.dialRaw(false))
	}
	r.before = []byte("PROXY TCP4 1.2.3.4 9.9.9.9 4660 80\r\n")
	d := r.dial(dialing{})
	d.control(&wirepb.Control{Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{Token: "ann"}}})
	d.next()
	for _, c := range silent {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("an answer to nothing")
		}
	}
	eventually(t, "counted", func() bool { return r.counter("refused_total", "handshake_timeout") == 5 })
}

// Whatever a proxy sends, what is read is its header and nothing else.
func FuzzProxyHeader(f *testing.F) {
	f.Add([]byte("PROXY TCP4 1.2.3.4 9.9.9.9 4660 80\r\nGET"))
	f.Add([]byte(v2(1, 0x21, v6...) + "GET"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		client, err := readProxyHeader(r)
		read := b[:len(b)-r.Len()]
		switch {
		case err != nil && client.IsValid():
			t.Errorf("%v with %v", client, err)
		case err == nil && bytes.HasPrefix(b, []byte("PROXY ")) && !bytes.HasSuffix(read, []byte("\r\n")):
			t.Errorf("read up to %q", read)
		case errors.Is(err, errProxyHeader) && len(read) > 16:
			if bytes.HasPrefix(b, proxyV2) && len(read) > 16+maxProxyHeader || !bytes.HasPrefix(b, proxyV2) && len(read) > 107 {
				t.Errorf("%d bytes read of a broken header", len(read))
			}
		}
	})
}
