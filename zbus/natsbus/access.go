package natsbus

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// RefusedError says that this client and the server do not agree on who they are.
type RefusedError struct {
	// What was refused, in words.
	What string
	// Fields of Config to look at.
	Fields []string
	// Err is what nats.go, or the system, said.
	Err error
}

// Error implements error.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s: %v (see %s)", e.What, e.Err, strings.Join(e.Fields, ", "))
}

// Unwrap returns Err.
func (e *RefusedError) Unwrap() error { return e.Err }

// Access returns the part of c by which a connection is let in: user, token, credentials or key, and TLS. What is wrong with
// the files is found here, as a *RefusedError.
func (c Config) Access() ([]nats.Option, error) {
	if err := c.checkFiles(); err != nil {
		return nil, err
	}
	var opts []nats.Option
	switch {
	case c.User != "":
		opts = append(opts, nats.UserInfo(c.User, c.Password))
	case c.Token != "":
		opts = append(opts, nats.Token(c.Token))
	case c.Creds != "":
		opts = append(opts, nats.UserCredentials(c.Creds))
	case c.NKey != "":
		o, err := nats.NkeyOptionFromSeed(c.NKey)
		if err != nil {
			return nil, unusable("NKey", c.NKey, "an NKEY seed of a user", err)
		}
		opts = append(opts, o)
	}
	if c.TLS != nil || c.Insecure {
		t := &tls.Config{MinVersion: tls.VersionTLS12}
		if c.TLS != nil {
			t = c.TLS.Clone()
		}
		if c.Insecure {
			t.InsecureSkipVerify = true
		}
		opts = append(opts, nats.Secure(t))
	}
	if c.CAFile != "" {
		opts = append(opts, nats.RootCAs(c.CAFile))
	}
	if c.CertFile != "" {
		opts = append(opts, nats.ClientCert(c.CertFile, c.KeyFile))
	}
	return opts, nil
}

// checkFiles reads the files once: nats.go reads them when it connects, and would only fail to, again and again.
func (c Config) checkFiles() error {
	var errs []error
	if c.Creds != "" {
		text, err := os.ReadFile(c.Creds)
		if err == nil {
			var token string
			if token, err = nkeys.ParseDecoratedJWT(text); err == nil && strings.Count(token, ".") != 2 {
				err = errors.New("no JWT in it") // it takes a file without decoration for one
			}
			if err == nil {
				_, err = nkeys.ParseDecoratedUserNKey(text)
			}
		}
		if err != nil {
			errs = append(errs, unusable("Creds", c.Creds, "a user's JWT and NKEY seed, as nsc writes them", err))
		}
	}
	if c.CAFile != "" {
		text, err := os.ReadFile(c.CAFile)
		if err == nil && !x509.NewCertPool().AppendCertsFromPEM(text) {
			err = errors.New("no certificate in it")
		}
		if err != nil {
			errs = append(errs, unusable("CAFile", c.CAFile, "certificates in PEM", err))
		}
	}
	if c.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile); err != nil {
			e := unusable("CertFile", c.CertFile, "a certificate in PEM, and its key in "+c.KeyFile, err)
			e.Fields = []string{"CertFile", "KeyFile"}
			errs = append(errs, e)
		}
	}
	return errors.Join(errs...)
}

func unusable(field, path, want string, err error) *RefusedError {
	return &RefusedError{What: fmt.Sprintf("natsbus: the file %s is not usable, expected %s", path, want), Fields: []string{field}, Err: err}
}

// refused returns what err, why there is no connection, says about being let in; nil if nothing.
func (c Config) refused(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(text, p) {
				return true
			}
		}
		return false
	}
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, otherHost := errors.AsType[x509.HostnameError](err)
	_, invalid := errors.AsType[x509.CertificateInvalidError](err)
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case unknown, invalid:
		return &RefusedError{"the server's certificate is not trusted", []string{"CAFile"}, err}
	case otherHost:
		return &RefusedError{"the server's certificate is for another host", []string{"URL", "CAFile"}, err}
	case errors.Is(err, nats.ErrSecureConnWanted), noTLS:
		return &RefusedError{"the server speaks no TLS", []string{"URL", "CAFile", "CertFile"}, err}
	// The server's alert, or, where its end of the connection was faster, what nats.go makes of that.
	case has("remote error: tls:", "closed by remote after TLS handshake"):
		return &RefusedError{"the server refused this client's certificate", []string{"CertFile", "KeyFile"}, err}
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked),
		errors.Is(err, nats.ErrAccountAuthExpired), errors.Is(err, nats.ErrNkeysNotSupported), has("Authorization Violation", "authorization violation", "Authentication"):
		what, fields := "the server asks who this is, and nothing is set", []string{"User", "Password", "Token", "Creds", "NKey"}
		switch {
		case c.User != "":
			what, fields = "the server refused the user "+c.User, []string{"User", "Password"}
		case c.Token != "":
			what, fields = "the server refused the token", []string{"Token"}
		case c.Creds != "":
			what, fields = "the server refused the credentials in "+c.Creds, []string{"Creds"}
		case c.NKey != "":
			what, fields = "the server refused the key in "+c.NKey, []string{"NKey"}
		case strings.Contains(c.URL, "@"):
			what, fields = "the server refused the user in the URL", []string{"URL"}
		}
		return &RefusedError{what, fields, err}
	}
	return nil
}
