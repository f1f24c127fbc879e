package znode

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// madeCert writes a certificate of name with its key, and returns the two files.
func madeCert(t *testing.T, name string, from, until time.Time) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: until, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(file, kind string, b []byte) string {
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write(name+".crt", "CERTIFICATE", der), write(name+".key", "PRIVATE KEY", private)
}

// What is wrong with a file is said by the setting that names it.
func TestCheckFiles(t *testing.T) {
	t.Parallel()
	now := time.Now()
	day := 24 * time.Hour
	good, goodKey := madeCert(t, "good", now.Add(-day), now.Add(day))
	old, oldKey := madeCert(t, "old", now.Add(-2*day), now.Add(-day))
	early, earlyKey := madeCert(t, "early", now.Add(day), now.Add(2*day))
	text := func(name string, parts ...string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(strings.Join(parts, "")), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	words := text("words", "not a certificate")
	broken := text("broken", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	bundle := text("bundle", read(old), read(good))
	for name, tt := range map[string]struct {
		set  func(s *Settings)
		want []string
	}{
		"none": {func(*Settings) {}, nil},
		"all good": {func(s *Settings) {
			s.Gate.TLS.Cert, s.Gate.TLS.Key = good, goodKey
			s.NATS.TLS = clientTLS{CA: bundle, Cert: good, Key: goodKey}
			s.Etcd.TLS = clientTLS{CA: good}
		}, nil},
		"missing": {func(s *Settings) {
			s.Gate.TLS.Cert, s.Gate.TLS.Key = "/no/cert", "/no/key"
			s.NATS.TLS.CA, s.NATS.Credentials, s.Gate.Auth.JWKSFile = "/no/ca", "/no/creds", "/no/set"
		}, []string{
			"gate.tls.cert: open /no/cert", "gate.tls.key: open /no/key", "nats.tls.ca: open /no/ca", "nats.credentials: open /no/creds", "gate.auth.jwks_file: open /no/set",
		}},
		"no gate":    {func(s *Settings) { s.Gate.Enabled, s.Gate.TLS.Cert, s.Gate.TLS.Key = false, "/no/cert", "/no/key" }, nil},
		"not PEM":    {func(s *Settings) { s.Gate.TLS.Cert, s.Gate.TLS.Key = words, words }, []string{"gate.tls.cert: " + words + " is not PEM", "gate.tls.key: " + words + " is not PEM"}},
		"broken":     {func(s *Settings) { s.Etcd.TLS.CA = broken }, []string{"etcd.tls.ca: certificate 1 of " + broken + " is broken"}},
		"swapped":    {func(s *Settings) { s.Gate.TLS.Cert, s.Gate.TLS.Key = goodKey, good }, []string{"gate.tls.cert: " + goodKey + " has a PRIVATE KEY: expected a certificate"}},
		"others key": {func(s *Settings) { s.NATS.TLS.Cert, s.NATS.TLS.Key = good, oldKey }, []string{"nats.tls.key: " + oldKey + " does not go with the certificate in " + good}},
		"expired":    {func(s *Settings) { s.Gate.TLS.Cert, s.Gate.TLS.Key = old, oldKey }, []string{`gate.tls.cert: the certificate of "old" in ` + old + " has expired at "}},
		"early":      {func(s *Settings) { s.Etcd.TLS.Cert, s.Etcd.TLS.Key = early, earlyKey }, []string{`etcd.tls.cert: the certificate of "early" in ` + early + " is not valid before "}},
		"in a chain": {func(s *Settings) { s.Gate.TLS.Cert, s.Gate.TLS.Key = text("chain", read(good), read(old)), goodKey }, []string{`the certificate of "old"`}},
		"old CA":     {func(s *Settings) { s.NATS.TLS.CA = old }, []string{`nats.tls.ca: the certificate of "old"`}},
	} {
		t.Run(name, func(t *testing.T) {
			s := DefaultSettings()
			tt.set(&s)
			err := s.CheckFiles(now)
			if len(tt.want) == 0 && err != nil {
				t.Fatal(err)
			}
			lines := 0
			if err != nil {
				lines = len(strings.Split(err.Error(), "\n"))
			}
			if lines != len(tt.want) {
				t.Errorf("%d faults: %v", lines, err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in %v", want, err)
				}
			}
		})
	}
}
