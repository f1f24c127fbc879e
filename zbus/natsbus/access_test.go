package natsbus_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"zgame/internal/embedded"
	"zgame/zbus"
	"zgame/zbus/natsbus"
)

func serve(t *testing.T, more func(*server.Options)) *embedded.NATS {
	t.Helper()
	srv, err := embedded.StartNATSWith(t.TempDir(), 0, more)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	return srv
}

// refusal returns why the server does not let cfg in.
func refusal(t *testing.T, cfg natsbus.Config) *natsbus.RefusedError {
	t.Helper()
	cfg.ReconnectWait = 5 * time.Millisecond
	b, err := natsbus.New(cfg)
	if err == nil {
		defer closeBus(t, b)
		for limit := time.Now().Add(within); ; {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			err = b.Ready(ctx)
			cancel()
			if _, is := errors.AsType[*natsbus.RefusedError](err); is || time.Now().After(limit) {
				break
			}
		}
		if !errors.Is(err, zbus.ErrDown) {
			t.Errorf("%v, want ErrDown", err)
		}
	}
	refused, ok := errors.AsType[*natsbus.RefusedError](err)
	if !ok {
		t.Fatalf("%v, want a RefusedError", err)
	}
	if s := err.Error(); strings.Contains(s, "hidden") {
		t.Errorf("the error tells a secret: %s", s)
	}
	return refused
}

func wantFields(t *testing.T, e *natsbus.RefusedError, what string, fields ...string) {
	t.Helper()
	if !slices.Equal(e.Fields, fields) || !strings.Contains(e.Error(), what) {
		t.Errorf("%v, fields %q; want %q, fields %q", e, e.Fields, what, fields)
	}
}

func file(t *testing.T, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestUserAndToken(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(o *server.Options) { o.Username, o.Password = "ann", "right" })
	closeBus(t, dial(t, natsbus.Config{URL: srv.URL(), User: "ann", Password: "right"}))
	wantFields(t, refusal(t, natsbus.Config{URL: srv.URL(), User: "ann", Password: "hidden"}), "refused the user ann", "User", "Password")
	wantFields(t, refusal(t, natsbus.Config{URL: srv.URL()}), "nothing is set", "User", "Password", "Token", "Creds", "NKey")
	wantFields(t, refusal(t, natsbus.Config{URL: strings.Replace(srv.URL(), "//", "//ann:hidden@", 1)}), "in the URL", "URL")

	srv = serve(t, func(o *server.Options) { o.Authorization = "right" })
	closeBus(t, dial(t, natsbus.Config{URL: srv.URL(), Token: "right"}))
	wantFields(t, refusal(t, natsbus.Config{URL: srv.URL(), Token: "hidden"}), "refused the token", "Token")
}

// userKey makes the key of a user.
func userKey(t *testing.T) (seed []byte, public string) {
	t.Helper()
	return keyOf(t, nkeys.CreateUser)
}

func keyOf(t *testing.T, create func() (nkeys.KeyPair, error)) (seed []byte, public string) {
	t.Helper()
	k, err := create()
	if err != nil {
		t.Fatal(err)
	}
	seed, err = k.Seed()
	if err != nil {
		t.Fatal(err)
	}
	public, err = k.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return seed, public
}

func TestNKey(t *testing.T) {
	t.Parallel()
	seed, public := userKey(t)
	srv := serve(t, func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} })
	closeBus(t, dial(t, natsbus.Config{URL: srv.URL(), NKey: file(t, "seed", seed)}))
	other, _ := userKey(t)
	wantFields(t, refusal(t, natsbus.Config{URL: srv.URL(), NKey: file(t, "other", other)}), "refused the key in", "NKey")
	wantFields(t, refusal(t, natsbus.Config{URL: srv.URL(), NKey: file(t, "rubbish", []byte("hidden"))}), "rubbish is not usable", "NKey")
	wantFields(t, refusal(t, natsbus.Config{URL: srv.URL(), NKey: "/no/such/seed"}), "/no/such/seed is not usable", "NKey")
}

// A server with an operator, and users whose JWT an account has signed.
func TestCredentials(t *testing.T) {
	t.Parallel()
	operatorSeed, operator := keyOf(t, nkeys.CreateOperator)
	accountSeed, account := keyOf(t, nkeys.CreateAccount)
	sign := func(c jwt.Claims, seed []byte) string {
		k, err := nkeys.FromSeed(seed)
		if err != nil {
			t.Fatal(err)
		}
		token, err := c.Encode(k)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	creds := func(seed []byte, signer []byte, c *jwt.UserClaims) string {
		text, err := jwt.FormatUserConfig(sign(c, signer), seed)
		if err != nil {
			t.Fatal(err)
		}
		return file(t, "node.creds", text)
	}
	claims, err := jwt.DecodeOperatorClaims(sign(jwt.NewOperatorClaims(operator), operatorSeed))
	if err != nil {
		t.Fatal(err)
	}
	accounts := &server.MemAccResolver{}
	if err := accounts.Store(account, sign(jwt.NewAccountClaims(account), operatorSeed)); err != nil {
		t.Fatal(err)
	}
	srv := serve(t, func(o *server.Options) {
		o.JetStream = false // an account of the system would be needed
		o.TrustedOperators, o.AccountResolver = []*jwt.OperatorClaims{claims}, accounts
	})
	seed, user := userKey(t)
	closeBus(t, dial(t, natsbus.Config{URL: srv.URL(), Creds: creds(seed, accountSeed, jwt.NewUserClaims(user))}))

	strangerSeed, _ := keyOf(t, nkeys.CreateAccount)
	wantFields(t, refusal(t, natsbus.Config{URL: srv.URL(), Creds: creds(seed, strangerSeed, jwt.NewUserClaims(user))}), "refused the credentials in", "Creds")
	wantFields(t, refusal(t, natsbus.Config{URL: srv.URL(), Creds: file(t, "seed", seed)}), "seed is not usable", "Creds")
	wantFields(t, refusal(t, natsbus.Config{URL: srv.URL(), Creds: "/no/such/file"}), "/no/such/file is not usable", "Creds")
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key, a.pem = a.make(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

func (a *authority) make(t *testing.T, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return made, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// issue returns the files of a certificate and its key.
func (a *authority) issue(t *testing.T, usage x509.ExtKeyUsage) (cert, key string) {
	t.Helper()
	_, k, certPEM := a.make(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "zgame"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	})
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return file(t, "cert.pem", certPEM), file(t, "key.pem", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	ca, otherCA := file(t, "ca.pem", ours.pem), file(t, "ca.pem", theirs.pem)
	serverCert, serverKey := ours.issue(t, x509.ExtKeyUsageServerAuth)
	pair, err := tls.LoadX509KeyPair(serverCert, serverKey)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ours.cert)
	start := func(auth tls.ClientAuthType) *embedded.NATS {
		return serve(t, func(o *server.Options) {
			o.TLS, o.TLSTimeout = true, 10
			o.TLSVerify = auth == tls.RequireAndVerifyClientCert
			o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientAuth: auth, ClientCAs: pool}
		})
	}
	srv := start(tls.NoClientCert)
	closeBus(t, dial(t, natsbus.Config{URL: srv.URL(), CAFile: ca}))
	closeBus(t, dial(t, natsbus.Config{URL: srv.URL(), Insecure: true}))
	wantFields(t, refusal(t, natsbus.Config{URL: srv.URL(), CAFile: otherCA}), "not trusted", "CAFile")
	wantFields(t, refusal(t, natsbus.Config{URL: srv.URL()}), "not trusted", "CAFile")

	srv = start(tls.RequireAndVerifyClientCert)
	cert, key := ours.issue(t, x509.ExtKeyUsageClientAuth)
	closeBus(t, dial(t, natsbus.Config{URL: srv.URL(), CAFile: ca, CertFile: cert, KeyFile: key}))
	wantFields(t, refusal(t, natsbus.Config{URL: srv.URL(), CAFile: ca}), "refused this client's certificate", "CertFile", "KeyFile")
	cert, key = theirs.issue(t, x509.ExtKeyUsageClientAuth)
	wantFields(t, refusal(t, natsbus.Config{URL: srv.URL(), CAFile: ca, CertFile: cert, KeyFile: key}), "refused this client's certificate", "CertFile", "KeyFile")

	plain := serve(t, nil)
	wantFields(t, refusal(t, natsbus.Config{URL: plain.URL(), CAFile: ca}), "speaks no TLS", "URL", "CAFile", "CertFile")
	wantFields(t, refusal(t, natsbus.Config{URL: plain.URL(), CAFile: file(t, "no.pem", []byte("hidden"))}), "no.pem is not usable", "CAFile")
	wantFields(t, refusal(t, natsbus.Config{URL: plain.URL(), CertFile: cert, KeyFile: cert}), "its key in", "CertFile", "KeyFile")
}
