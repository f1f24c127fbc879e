package znode

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"time"
)

// CheckFiles looks at the files that the settings name, without starting anything: certificates, keys, and who may have signed them. The error joins what is
// wrong with each at the time now: it cannot be read, is not PEM, is not valid yet or any more, does not fit the other.
func (s *Settings) CheckFiles(now time.Time) error {
	var faults []error
	if s.Gate.Enabled {
		faults = append(faults, pairFaults("gate.tls.cert", s.Gate.TLS.Cert, "gate.tls.key", s.Gate.TLS.Key, now)...)
		faults = append(faults, readable("gate.auth.key_file", s.Gate.Auth.KeyFile), readable("gate.auth.jwks_file", s.Gate.Auth.JWKSFile))
	}
	faults = append(faults, s.NATS.TLS.faults("nats.tls", now)...)
	faults = append(faults, readable("nats.credentials", s.NATS.Credentials), readable("nats.nkey", s.NATS.NKey))
	faults = append(faults, s.Etcd.TLS.faults("etcd.tls", now)...)
	return errors.Join(faults...)
}

func (t *clientTLS) faults(key string, now time.Time) (faults []error) {
	if t.CA != "" {
		faults = append(faults, authorityFault(key+".ca", t.CA, now))
	}
	return append(faults, pairFaults(key+".cert", t.Cert, key+".key", t.Key, now)...)
}

// readable says why the file of a setting cannot be read; "" is none.
func readable(key, path string) error {
	if path == "" {
		return nil
	}
	_, err := os.ReadFile(path)
	return unreadable(key, err)
}

// unreadable is err as the fault of a setting; it names the file.
func unreadable(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", key, err)
}

// certificates reads a file of certificates in PEM.
func certificates(key, path string) (certs []*x509.Certificate, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, unreadable(key, err)
	}
	other := ""
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			other = block.Type
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: certificate %d of %s is broken: %w", key, len(certs)+1, path, err)
		}
		certs = append(certs, c)
	}
	switch {
	case len(certs) > 0:
		return certs, nil
	case other != "":
		return nil, fmt.Errorf("%s: %s has a %s: expected a certificate in PEM", key, path, other)
	default:
		return nil, fmt.Errorf("%s: %s is not PEM: expected a certificate that begins with -----BEGIN CERTIFICATE-----", key, path)
	}
}

// outOfTime says that a certificate is not valid now.
func outOfTime(key, path string, c *x509.Certificate, now time.Time) error {
	who := c.Subject.CommonName
	if who == "" && len(c.DNSNames) > 0 {
		who = c.DNSNames[0]
	}
	switch {
	case now.Before(c.NotBefore):
		return fmt.Errorf("%s: the certificate of %q in %s is not valid before %s", key, who, path, c.NotBefore.UTC().Format(time.RFC3339))
	case now.After(c.NotAfter):
		return fmt.Errorf("%s: the certificate of %q in %s has expired at %s", key, who, path, c.NotAfter.UTC().Format(time.RFC3339))
	default:
		return nil
	}
}

// pairFaults says what is wrong with a certificate, with those that are behind it in its file, and with its key.
func pairFaults(certKey, certPath, keyKey, keyPath string, now time.Time) (faults []error) {
	if certPath == "" || keyPath == "" {
		return nil // that only one is set says Validate
	}
	certs, err := certificates(certKey, certPath)
	faults = append(faults, err)
	for _, c := range certs {
		faults = append(faults, outOfTime(certKey, certPath, c, now))
	}
	text, err := os.ReadFile(keyPath)
	if err != nil {
		return append(faults, unreadable(keyKey, err))
	}
	if block, _ := pem.Decode(text); block == nil {
		return append(faults, fmt.Errorf("%s: %s is not PEM: expected a private key", keyKey, keyPath))
	}
	if len(certs) == 0 {
		return faults
	}
	var chain bytes.Buffer
	for _, c := range certs {
		_ = pem.Encode(&chain, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
	}
	if _, err := tls.X509KeyPair(chain.Bytes(), text); err != nil {
		faults = append(faults, fmt.Errorf("%s: %s does not go with the certificate in %s: %w", keyKey, keyPath, certPath, err))
	}
	return faults
}

// authorityFault says what is wrong with a file of those who may have signed: old ones among them do no harm.
func authorityFault(key, path string, now time.Time) error {
	certs, err := certificates(key, path)
	if err != nil {
		return err
	}
	var first error
	for _, c := range certs {
		err := outOfTime(key, path, c, now)
		if err == nil {
			return nil
		}
		first = errors.Join(first, err)
	}
	return first
}
