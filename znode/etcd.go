package znode

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// etcdFaults returns what is wrong with how the node is to be let in by etcd.
func (s *Settings) etcdFaults() (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	e := &s.Etcd
	if e.Password != "" && e.User == "" {
		fault("etcd.password without etcd.user: expected both or none")
	}
	if (e.TLS.Cert == "") != (e.TLS.Key == "") {
		fault("etcd.tls: cert and key belong together; only one is set")
	}
	if !e.secured() {
		return faults
	}
	for _, endpoint := range e.Endpoints {
		if !strings.HasPrefix(endpoint, "https://") {
			fault("etcd.tls is set, but etcd.endpoints has %q, where it would not be used: expected https://", endpoint)
		}
	}
	return faults
}

func (e *etcdSettings) secured() bool {
	return e.TLS.CA != "" || e.TLS.Cert != "" || e.TLS.Insecure
}

// etcdTLS is how the node speaks TLS with etcd; nil where the settings say nothing of it. The certificate of the node is read for each
// connection, so that its files can be replaced while the node runs.
func etcdTLS(s *Settings) (_ *tls.Config, err error) {
	defer func() {
		if err != nil {
			err = &accessError{err}
		}
	}()
	e := &s.Etcd
	if !e.secured() {
		return nil, nil //nolint:nilnil // plain text
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: e.TLS.Insecure} //nolint:gosec // a setting that says so
	if e.TLS.CA != "" {
		text, err := os.ReadFile(e.TLS.CA)
		if err != nil {
			return nil, fmt.Errorf("etcd.tls.ca: expected a file with certificates in PEM: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("etcd.tls.ca: %s has no certificate: expected some in PEM", e.TLS.CA)
		}
	}
	if e.TLS.Cert == "" {
		return c, nil
	}
	load := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(e.TLS.Cert, e.TLS.Key)
		if err != nil {
			return nil, fmt.Errorf("etcd.tls.cert and etcd.tls.key: expected a certificate and its key in PEM: %w", err)
		}
		return &pair, nil
	}
	if _, err := load(); err != nil { // rather now than at each connection
		return nil, err
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	return c, nil
}

// accessError is an error that a server's start does not mend: it, or this node's settings, do not let the node in.
type accessError struct{ error }

func (e *accessError) Unwrap() error { return e.error }

// etcdHint adds to err which settings to look at, where TLS, or the user, was refused.
func etcdHint(s *Settings, secure *tls.Config, err error) error {
	if err == nil {
		return nil
	}
	if why := tlsRefused(s.Etcd.Endpoints[0], secure); why != nil {
		return &accessError{fmt.Errorf("%w\n  look at etcd.endpoints, etcd.tls.ca, etcd.tls.cert, etcd.tls.key", why)}
	}
	for _, sign := range []string{"authentication failed", "user name is empty", "permission denied", "invalid auth token"} {
		if strings.Contains(err.Error(), sign) {
			return &accessError{fmt.Errorf("%w\n  look at etcd.user, etcd.password", err)}
		}
	}
	return err
}

// tlsRefused tries TLS by itself: what gRPC says of a connection that fails is that time went by. It returns nil where TLS is not the fault.
func tlsRefused(endpoint string, secure *tls.Config) error {
	host, ok := strings.CutPrefix(endpoint, "https://")
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) // the caller's is over
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
	if err != nil {
		return nil
	}
	defer conn.Close()
	if secure == nil {
		secure = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	secure = secure.Clone()
	secure.NextProtos = []string{"h2"}
	if secure.ServerName == "" {
		secure.ServerName, _, _ = net.SplitHostPort(host)
	}
	c := tls.Client(conn, secure)
	err = c.HandshakeContext(ctx)
	if err == nil { // with TLS 1.3 a server refuses a client's certificate behind the handshake
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		_, err = c.Read(make([]byte, 1))
	}
	if err == nil || !strings.Contains(err.Error(), "tls:") && !strings.Contains(err.Error(), "x509:") {
		return nil
	}
	return err
}
