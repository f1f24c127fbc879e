package znode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"zgame/zgate"
	"zgame/zgate/jwtauth"
	"zgame/zmetrics"
)

// AuthSettings say who may log in at the node's gate.
type AuthSettings struct {
	Kind         string        `yaml:"kind" help:"jwt: signed tokens; dev: the token is the user's name, for development only; empty: as the program says (App.Auth)"`
	Algorithms   []string      `yaml:"algorithms" help:"of jwt: HS256, RS256, EdDSA; a token with another is refused"`
	Secret       string        `yaml:"secret" secret:"true" help:"key of HS256, at least 32 bytes; one of secret, key_file, jwks_file and jwks_url is needed"`
	KeyFile      string        `yaml:"key_file" help:"public keys or certificates (PEM), or the key of HS256; read again every 10s"`
	JWKSFile     string        `yaml:"jwks_file" help:"JSON Web Key Set; read again every 10s"`
	JWKSURL      string        `yaml:"jwks_url" help:"where a JSON Web Key Set is, https"`
	InsecureJWKS bool          `yaml:"insecure_jwks" help:"jwks_url may be http elsewhere than on this machine: whoever stands between decides who logs in"`
	Audience     string        `yaml:"audience" help:"what tokens must name as their audience; a must with a JWKS"`
	Issuer       string        `yaml:"issuer" help:"what tokens must name as their issuer; empty: any"`
	Skew         time.Duration `yaml:"skew" help:"how far the clocks of who signs and of this machine may be apart"`
	Refresh      time.Duration `yaml:"refresh" help:"how often jwks_url is read again; a key that is not there yet is looked for at once"`
}

// The kinds of logins.
const (
	authDev = "dev"
	authJWT = "jwt"
)

// jwt is what the settings say to jwtauth.
func (s *AuthSettings) jwt() jwtauth.Config {
	c := jwtauth.Config{
		Algorithms: s.Algorithms, Secret: []byte(s.Secret), KeyFile: s.KeyFile, JWKSFile: s.JWKSFile, JWKSURL: s.JWKSURL,
		InsecureJWKS: s.InsecureJWKS, Audience: s.Audience, Issuer: s.Issuer, Skew: s.Skew,
	}
	if c.JWKSURL != "" {
		c.Refresh = s.Refresh
	}
	return c
}

// faults returns what is wrong with the settings alone, by their names.
func (s *AuthSettings) faults() (faults []error) {
	switch s.Kind {
	case "", authDev:
		if s.Secret+s.KeyFile+s.JWKSFile+s.JWKSURL != "" || len(s.Algorithms) > 0 {
			faults = append(faults, fmt.Errorf("gate.auth has keys or algorithms, but gate.auth.kind is %q: expected %s", s.Kind, authJWT))
		}
	case authJWT:
		if err := s.jwt().Validate(); err != nil {
			for line := range strings.SplitSeq(authKeys.Replace(err.Error()), "\n") {
				faults = append(faults, errors.New(line))
			}
		}
	default:
		faults = append(faults, fmt.Errorf("gate.auth.kind %q: expected %s or %s", s.Kind, authJWT, authDev))
	}
	return faults
}

// authKeys puts the names of settings in place of jwtauth's fields.
var authKeys = strings.NewReplacer(
	"jwtauth: Algorithms", "gate.auth.algorithms", "jwtauth: Secret", "gate.auth.secret", "jwtauth: KeyFile", "gate.auth.key_file",
	"jwtauth: JWKSFile", "gate.auth.jwks_file", "jwtauth: JWKSURL", "gate.auth.jwks_url", "jwtauth: Audience", "gate.auth.audience",
	"jwtauth: Skew", "gate.auth.skew", "jwtauth: Refresh", "gate.auth.refresh", "jwtauth: MinRefresh", "gate.auth.refresh", "jwtauth: ", "gate.auth: ",
	"Secret", "secret", "KeyFile", "key_file", "JWKSFile", "jwks_file", "JWKSURL", "jwks_url", "InsecureJWKS", "insecure_jwks",
)

// errNoAuth is why a node with a gate does not start that says nothing of logins.
var errNoAuth = errors.New("gate.auth.kind is empty, and the program has no App.Auth: expected jwt, with its keys, or dev, which believes every client " +
	"that its token is its name")

// newAuth makes the authenticator. Files that are not there, and a server that does not answer, fail the start.
func (n *Node) newAuth(ctx context.Context) (zgate.Authenticator, error) {
	s := &n.cfg.Settings.Gate.Auth
	switch s.Kind {
	case authJWT:
		cfg := s.jwt()
		cfg.Logger, cfg.Metrics = n.log, zmetrics.NewAuth(n.registry)
		auth, err := jwtauth.New(ctx, cfg)
		if err != nil {
			return nil, fmt.Errorf("gate.auth: %w", err)
		}
		n.auth = closeFunc(auth.Close)
		return auth, nil
	case authDev:
		n.log.Warn("gate.auth.kind is dev: every client is believed to be whom it says")
		return zgate.DevAuth{}, nil
	default:
		auth, err := n.cfg.App.Auth(n)
		if err == nil && auth == nil {
			err = errors.New("no Authenticator")
		}
		if err != nil {
			return nil, fmt.Errorf("App.Auth: %w", err)
		}
		n.auth, _ = auth.(io.Closer)
		return auth, nil
	}
}

type closeFunc func()

// Close calls f.
func (f closeFunc) Close() error {
	f()
	return nil
}
