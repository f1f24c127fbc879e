package znode

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/server/v3/embed"

	"zgame/internal/embedded"
	"zgame/zbus"
	"zgame/zstore"
)

// issue writes a certificate for this machine, signed by itself, and its key.
func issue(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// An etcd that speaks TLS, and wants to know who comes, is used by settings alone; what is wrong with them is said at the start.
func TestEtcdTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serverCert, serverKey := issue(t, dir, "server")
	nodeCert, nodeKey := issue(t, dir, "node")
	otherCert, _ := issue(t, dir, "other")
	members, err := embedded.StartEtcdCluster(t.TempDir(), 1, func(c *embed.Config) {
		c.ListenClientUrls[0].Scheme, c.AdvertiseClientUrls[0].Scheme = "https", "https"
		c.ClientTLSInfo.CertFile, c.ClientTLSInfo.KeyFile = serverCert, serverKey
		c.ClientTLSInfo.TrustedCAFile, c.ClientTLSInfo.ClientCertAuth = nodeCert, true
	})
	if err != nil {
		t.Fatal(err)
	}
	defer members[0].Stop()
	good := DefaultSettings()
	good.Etcd.Endpoints = []string{"https://" + members[0].Endpoint()}
	good.Etcd.TLS.CA, good.Etcd.TLS.Cert, good.Etcd.TLS.Key = serverCert, nodeCert, nodeKey
	others := Backends{Bus: struct{ zbus.Bus }{}, Store: struct{ zstore.Store }{}}
	try := func(limit time.Duration, change func(*etcdSettings)) error {
		s := good
		change(&s.Etcd)
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		b, err := connect(ctx, &s, others, nil, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		if err == nil {
			b.Bus, b.Store = nil, nil
			err = b.close(ctx)
		}
		return err
	}
	if err := try(30*time.Second, func(*etcdSettings) {}); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*etcdSettings){
		"look at etcd.endpoints, etcd.tls.ca": func(e *etcdSettings) { e.TLS.CA = otherCert },
		"etcd.tls.ca: expected a file":        func(e *etcdSettings) { e.TLS.CA = "/no/such/file" },
		"look at etcd.endpoints, etcd.tls":    func(e *etcdSettings) { e.TLS.Cert, e.TLS.Key = "", "" },
		"has no certificate":                  func(e *etcdSettings) { e.TLS.CA = nodeKey },
		"etcd.tls.cert and etcd.tls.key":      func(e *etcdSettings) { e.TLS.Key = serverKey },
	} {
		if err := try(2*time.Second, change); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "cannot be used") {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// Settings of etcd that do not fit each other.
func TestEtcdFaults(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*etcdSettings){
		"etcd.password without etcd.user": func(e *etcdSettings) { e.Password = "x" },
		"cert and key belong together":    func(e *etcdSettings) { e.Endpoints, e.TLS.Cert = []string{"https://a:1"}, "x" },
		"expected https://":               func(e *etcdSettings) { e.Endpoints, e.TLS.CA = []string{"https://a:1", "http://b:1"}, "x" },
	} {
		s := DefaultSettings()
		change(&s.Etcd)
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
