package zgate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// X7: a gate is ready at once, and serves, with TLS and without.
func TestReady(t *testing.T) {
	for _, change := range []func(*Config){func(*Config) {}, withTLS} {
		r := newRig(t, change)
		if !r.Serving() {
			t.Error("not ready behind Start")
		}
		r.login("ann").echo("x")
	}
}

func writePair(t *testing.T, dir string, pair tls.Certificate) (cert, key string) {
	t.Helper()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	b, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: b}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// A certificate that is replaced is shown to new connections; those that are there go on. While the two files do not fit, the last
// pair that did is kept.
func TestCertificateReload(t *testing.T) {
	dir := t.TempDir()
	first, firstPool := makeCert()
	second, secondPool := makeCert()
	cert, key := writePair(t, dir, first)
	files, err := NewCertFiles(cert, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(c *Config) { c.TLS = files.TLS() })
	shown := func(pool *x509.CertPool) bool {
		// The files are looked at once a second.
		files.mu.Lock()
		files.looked = time.Time{}
		files.mu.Unlock()
		c, err := tls.Dial("tcp", r.Addr().String(), &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"})
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	}
	if !shown(firstPool) || shown(secondPool) {
		t.Fatal("not the first certificate")
	}
	old := tls.Client(got(net.Dial("tcp", r.Addr().String())), &tls.Config{RootCAs: firstPool, ServerName: "127.0.0.1"})
	defer func() { _ = old.Close() }()
	if err := old.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, []byte("half a"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !shown(firstPool) {
		t.Error("a broken key file: the first certificate is gone")
	}
	writePair(t, dir, second)
	if !shown(secondPool) || shown(firstPool) {
		t.Error("not the second certificate")
	}
	if _, err := io.WriteString(old, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 12)
	if _, err := io.ReadFull(old, b); err != nil || string(b) != "HTTP/1.1 404" {
		t.Errorf("the old connection: %q %v", b, err)
	}
	if _, err := NewCertFiles(cert, "/no/such/key", nil); err == nil || !strings.Contains(err.Error(), "/no/such/key") {
		t.Errorf("a key that is not there: %v", err)
	}
}

func got[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Plain text is never spoken by accident.
func TestPlaintextIsRefused(t *testing.T) {
	everywhere := got(net.Listen("tcp", ":0"))
	defer func() { _ = everywhere.Close() }()
	here := got(net.Listen("tcp", "127.0.0.1:0"))
	defer func() { _ = here.Close() }()
	for name, c := range map[string]struct {
		cfg Config
		ok  bool
	}{
		"all addresses":             {Config{Addr: ":7000"}, false},
		"another address":           {Config{Addr: "10.0.0.1:7000"}, false},
		"a name":                    {Config{Addr: "game.example:7000"}, false},
		"IPv6":                      {Config{Addr: "[::]:7000"}, false},
		"a socket for all":          {Config{Listener: everywhere}, false},
		"all addresses, by setting": {Config{Addr: ":7000", InsecurePlaintext: true}, true},
		"all addresses, TLS":        {Config{Addr: ":7000", TLS: &tls.Config{Certificates: []tls.Certificate{testCert().pair}}}, true},
		"TLS without a certificate": {Config{Addr: ":7000", TLS: &tls.Config{}}, false},
		"loopback":                  {Config{Addr: "127.8.8.8:7000"}, true},
		"loopback, IPv6":            {Config{Addr: "[::1]:0"}, true},
		"loopback, with a zone":     {Config{Addr: "[::1%lo]:0"}, true},
		"localhost":                 {Config{Addr: "localhost:7000"}, true},
		"a socket for this machine": {Config{Listener: here}, true},
		"in memory":                 {Config{Listener: &pipeListener{}}, true},
	} {
		c.cfg.Node, c.cfg.Auth = testNode, DevAuth{}
		_, err := New(c.cfg)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is no TLS ends in the handshake, without a word in the log that clients could fill a disk with.
func TestPlaintextAtTLS(t *testing.T) {
	r := newRig(t, withTLS)
	for b, want := range map[string]string{
		"GET /ws HTTP/1.1\r\nHost: x\r\n\r\n": "this gate speaks TLS", strings.Repeat("\x00", 1000): "", "\x16\x03\x01\xff\xff": "",
	} {
		c := got(new(net.Dialer).DialContext(context.Background(), "tcp", r.Addr().String()))
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(c, b)
		_ = c.(*net.TCPConn).CloseWrite()
		answer, _ := io.ReadAll(c) // to the end
		_ = c.Close()
		if isHTTP := strings.HasPrefix(string(answer), "HTTP/1.1 400 "); isHTTP != (want != "") || !strings.Contains(string(answer), want) {
			t.Errorf("%.20q is answered %q", b, answer)
		}
	}
	eventually(t, "counted", func() bool {
		return r.counter("refused_total", "tls")+r.counter("refused_total", "lost") == 3
	})
	r.login("ann").echo("x")
}

// Which hosts are this machine alone, whatever the setting that asks.
func TestLoopback(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST": true, "127.0.0.1": true, "127.255.0.9": true, "::1": true, "::1%lo": true, "::ffff:127.0.0.1": true,
		"": false, "localhost.example": false, "10.0.0.1": false, "::": false, "0.0.0.0": false, "fe80::1%eth0": false, "[::1]": false,
	} {
		if got := Loopback(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}
