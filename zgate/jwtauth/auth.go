package jwtauth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"

	"zgame/zgate"
	"zgame/zmetrics"
	"zgame/zmsg"
)

// The algorithms that there are.
const (
	HS256 = "HS256" // HMAC with SHA-256: who can check tokens can make them
	RS256 = "RS256" // RSA PKCS #1 v1.5 with SHA-256, keys of 2,048 bits and more
	EdDSA = "EdDSA" // Ed25519
)

// Limits that are no settings.
const (
	maxSubject = 128      // bytes of a user id
	minSecret  = 32       // bytes, what HS256 wants (RFC 7518 section 3.2)
	minRSABits = 2048     // likewise for RS256
	maxSource  = 1 << 20  // bytes of a key file or an answer
	maxKeys    = 256      // in one source
	maxTries   = 8        // keys tried for a token that does not name one
	maxToken   = 16 << 10 // bytes; the gate's Hello holds less
	maxRefresh = 24 * time.Hour
)

// Config says whom to believe. Algorithms and exactly one of Secret, KeyFile, JWKSFile and JWKSURL are needed.
type Config struct {
	// Algorithms are those that tokens may be signed with: of HS256, RS256, EdDSA. HS256 goes with no other.
	Algorithms []string

	// Secret is the key of HS256, at least 32 bytes.
	Secret []byte
	// KeyFile is a file with the key of HS256 (a line end at its end does not count), or with public keys or certificates in PEM.
	KeyFile string
	// JWKSFile is a file with a JSON Web Key Set (RFC 7517).
	JWKSFile string
	// JWKSURL is where a JSON Web Key Set is, https; keys of HS256 are not taken from there.
	JWKSURL string
	// InsecureJWKS allows JWKSURL to be http at an address that is not this machine's: whoever stands between decides who logs in.
	InsecureJWKS bool

	// Audience is what the token must name as its audience ("aud"). Empty: any, which a JWKS is not allowed: its keys sign for
	// others too.
	Audience string
	// Issuer is what the token must name as its issuer ("iss"). Empty: any.
	Issuer string
	// Skew is how far the clocks of the signer and of this machine may be apart. Defaults to 30 s, at most 5 min.
	Skew time.Duration

	// Refresh is after how long the keys are loaded anew. Defaults to 5 min for a URL and 10 s for a file. MinRefresh is the least
	// time between two loads. Defaults to 10 s for a URL and 1 s for a file.
	Refresh    time.Duration
	MinRefresh time.Duration
	// LoadTimeout is what a load of a URL may take. Defaults to 3 s.
	LoadTimeout time.Duration

	// Client fetches JWKSURL. Defaults to one that follows redirects to https alone.
	Client *http.Client
	// Now is the wall clock. Defaults to time.Now.
	Now func() time.Time
	// Logger is told of loads that fail; nil discards.
	Logger *slog.Logger
	// Metrics counts tokens and loads; nil counts into the void.
	Metrics *zmetrics.Auth
}

func (c Config) withDefaults() Config {
	remote := c.JWKSURL != ""
	pick := func(field *time.Duration, url, file time.Duration) {
		switch {
		case *field != 0:
		case remote:
			*field = url
		default:
			*field = file
		}
	}
	pick(&c.Refresh, 5*time.Minute, 10*time.Second)
	pick(&c.MinRefresh, min(10*time.Second, c.Refresh), min(time.Second, c.Refresh))
	pick(&c.Skew, 30*time.Second, 30*time.Second)
	pick(&c.LoadTimeout, 3*time.Second, 3*time.Second)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Client == nil {
		// One request every few minutes: no connection is kept.
		c.Client = &http.Client{
			CheckRedirect: c.checkRedirect,
			Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, ForceAttemptHTTP2: true},
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = zmetrics.NewAuth(nil)
	}
	return c
}

// Validate returns every fault of c, joined, or nil. It opens nothing.
func (c Config) Validate() error {
	c = c.withDefaults()
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("jwtauth: "+format, args...)) }
	if len(c.Algorithms) == 0 {
		fault("Algorithms is empty: expected what tokens are signed with, of %s, %s, %s", HS256, RS256, EdDSA)
	}
	for i, a := range c.Algorithms {
		switch {
		case !slices.Contains([]string{HS256, RS256, EdDSA}, a):
			fault("Algorithms has %q: expected %s, %s or %s", a, HS256, RS256, EdDSA)
		case slices.Contains(c.Algorithms[:i], a):
			fault("Algorithms has %q twice", a)
		case a == HS256 && len(c.Algorithms) > 1:
			fault("Algorithms has %s beside others: expected it alone, since its key is a secret and theirs are public", a)
		}
	}
	hmac := slices.Contains(c.Algorithms, HS256)
	var sources []string
	for _, s := range []struct{ name, value string }{
		{"Secret", string(c.Secret)}, {"KeyFile", c.KeyFile}, {"JWKSFile", c.JWKSFile}, {"JWKSURL", c.JWKSURL},
	} {
		if s.value != "" {
			sources = append(sources, s.name)
		}
	}
	if len(sources) != 1 {
		fault("expected exactly one of Secret, KeyFile, JWKSFile and JWKSURL, got %d (%s)", len(sources), strings.Join(sources, ", "))
	}
	if n := len(c.Secret); n > 0 && !hmac {
		fault("Secret is set, but is for %s only", HS256)
	} else if n > 0 && n < minSecret {
		fault("Secret has %d bytes: expected at least %d", n, minSecret)
	}
	if c.JWKSURL != "" {
		u, err := url.Parse(c.JWKSURL)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
			fault("JWKSURL is no URL: expected https://host/path") // it may hold a password
		case u.Scheme == "http" && !c.InsecureJWKS && !zgate.Loopback(u.Hostname()):
			fault("JWKSURL is http at %s: expected https, or InsecureJWKS: whoever stands between decides who logs in", u.Hostname())
		case hmac:
			fault("JWKSURL with %s: expected a public-key algorithm, a shared secret does not belong on a web server", HS256)
		}
	}
	if c.JWKSURL+c.JWKSFile != "" && c.Audience == "" {
		fault("Audience is empty: expected one with a JWKS, whose keys sign for others too")
	}
	for _, d := range []struct {
		name         string
		value        time.Duration
		lowest, most time.Duration
	}{
		{"Skew", c.Skew, 0, 5 * time.Minute},
		{"Refresh", c.Refresh, time.Millisecond, maxRefresh},
		{"MinRefresh", c.MinRefresh, time.Millisecond, c.Refresh},
		{"LoadTimeout", c.LoadTimeout, time.Millisecond, time.Minute},
	} {
		if d.value < d.lowest || d.value > d.most {
			fault("%s is %v: expected %v to %v", d.name, d.value, d.lowest, d.most)
		}
	}
	return errors.Join(faults...)
}

// Auth checks tokens. It satisfies zgate.Authenticator.
type Auth struct {
	cfg    Config
	parser *jwt.Parser
	keys   *keyring
}

var _ zgate.Authenticator = (*Auth)(nil)

// New loads the keys and makes an Auth; ctx is for that alone. The error names every fault of cfg, or why there are no keys.
func New(ctx context.Context, cfg Config) (*Auth, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	opts := []jwt.ParserOption{
		jwt.WithValidMethods(cfg.Algorithms), jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(cfg.Skew),
		jwt.WithStrictDecoding(), jwt.WithTimeFunc(cfg.Now),
	}
	if cfg.Audience != "" {
		opts = append(opts, jwt.WithAudience(cfg.Audience))
	}
	if cfg.Issuer != "" {
		opts = append(opts, jwt.WithIssuer(cfg.Issuer))
	}
	a := &Auth{cfg: cfg, parser: jwt.NewParser(opts...), keys: newKeyring(cfg)}
	if err := a.keys.first(ctx); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// Close ends a load of keys that is running and waits for it. Tokens are checked with the keys that are there from then on.
func (a *Auth) Close() { a.keys.close() }

// What clients are told.
var (
	errNoToken  = refusal("malformed", "no token")
	errInvalid  = refusal("malformed", "token is not valid")
	errAlg      = refusal("algorithm", "token is not valid")
	errSigned   = refusal("signature", "token is not valid")
	errKey      = refusal("key", "token is not valid")
	errExpired  = refusal("expired", "token has expired")
	errEarly    = refusal("early", "token is not valid yet")
	errAudience = refusal("audience", "token is not for this game")
	errIssuer   = refusal("issuer", "token is not for this game")
	errSubject  = refusal("subject", "token names no user")
)

// refused is why a token was refused: a word of a fixed list for the metric, and the error for the client.
type refused struct {
	reason string
	err    *zmsg.Error
}

func refusal(reason, text string) *refused {
	return &refused{reason, &zmsg.Error{Code: zmsg.CodeUnauthorized, Outcome: zmsg.NotExecuted, Text: text}}
}

// Error says what the client is told, and the reason.
func (r *refused) Error() string { return "jwtauth: " + r.err.Text + " (" + r.reason + ")" }

// Unwrap returns what the client is told.
func (r *refused) Unwrap() error { return r.err }

// Authenticate returns the subject of h.Token. Errors wrap a *zmsg.Error with CodeUnauthorized and a text for the client.
func (a *Auth) Authenticate(ctx context.Context, h zgate.Hello) (string, error) {
	user, r := a.check(ctx, h.Token)
	if r != nil {
		a.cfg.Metrics.Tokens.With(r.reason).Inc()
		return "", r
	}
	a.cfg.Metrics.Tokens.With("ok").Inc()
	return user, nil
}

func (a *Auth) check(ctx context.Context, token string) (user string, r *refused) {
	switch {
	case token == "":
		return "", errNoToken
	case len(token) > maxToken:
		return "", errInvalid
	}
	var claims jwt.RegisteredClaims
	t, err := a.parser.ParseWithClaims(token, &claims, func(t *jwt.Token) (any, error) {
		if _, critical := t.Header["crit"]; critical {
			return nil, errInvalid // RFC 7515 section 4.1.11: what is not understood must be refused
		}
		kid, ok := t.Header["kid"].(string)
		if _, there := t.Header["kid"]; there && !ok {
			return nil, errInvalid
		}
		keys := a.keys.find(ctx, t.Method.Alg(), kid)
		if len(keys) == 0 {
			return nil, errKey
		}
		return jwt.VerificationKeySet{Keys: keys}, nil
	})
	if err != nil {
		return "", a.why(t, err)
	}
	user = claims.Subject
	bad := func(r rune) bool { return !unicode.IsPrint(r) }
	if user == "" || len(user) > maxSubject || !utf8.ValidString(user) || strings.ContainsFunc(user, bad) {
		return "", errSubject
	}
	return user, nil
}

// why maps what the library says. Of several faults of a token that is signed well, its age comes first: a newer one may help.
func (a *Auth) why(t *jwt.Token, err error) *refused {
	if r, ok := errors.AsType[*refused](err); ok {
		return r
	}
	if t != nil && t.Claims != nil && !errors.Is(err, jwt.ErrTokenMalformed) && (t.Method == nil || !slices.Contains(a.cfg.Algorithms, t.Method.Alg())) {
		return errAlg
	}
	for _, m := range []struct {
		is error
		r  *refused
	}{
		{jwt.ErrTokenMalformed, errInvalid},
		{jwt.ErrTokenSignatureInvalid, errSigned},
		{jwt.ErrTokenExpired, errExpired},
		{jwt.ErrTokenNotValidYet, errEarly},
		{jwt.ErrTokenUsedBeforeIssued, errEarly},
		{jwt.ErrTokenInvalidAudience, errAudience},
		{jwt.ErrTokenInvalidIssuer, errIssuer},
	} {
		if errors.Is(err, m.is) {
			return m.r
		}
	}
	return errInvalid // no expiry, claims of the wrong type
}
