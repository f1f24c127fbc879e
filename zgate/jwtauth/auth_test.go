package jwtauth

import (
	"context"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"

	"zgame/zgate"
	"zgame/zmsg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	secret      = []byte("0123456789abcdef0123456789abcdef")
	rsaKey      = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(nil, 2048)) })
	otherRSA    = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(nil, 2048)) })
	edKey       = ed25519.NewKeyFromSeed([]byte("a seed of thirty-two bytes, yes!"))
	otherEd     = ed25519.NewKeyFromSeed([]byte("another of thirty-two bytes, ok."))
	now         = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	patience    = 30 * time.Second
	fixed       = func() time.Time { return now }
	unencrypted = jwt.UnsafeAllowNoneSignatureType
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// claims is a good token's, with changes: nil takes one away.
func claims(change map[string]any) jwt.MapClaims {
	c := jwt.MapClaims{"sub": "ann", "aud": "game", "iss": "login", "exp": now.Add(time.Minute).Unix(), "iat": now.Unix()}
	for k, v := range change {
		if c[k] = v; v == nil {
			delete(c, k)
		}
	}
	return c
}

func sign(t *testing.T, method jwt.SigningMethod, key any, c jwt.Claims, head map[string]any) string {
	t.Helper()
	token := jwt.NewWithClaims(method, c)
	maps.Copy(token.Header, head)
	s, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newAuth(t *testing.T, cfg Config) *Auth {
	t.Helper()
	if cfg.Now == nil {
		cfg.Now = fixed
	}
	a, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

// login returns the user, or why not.
func login(t *testing.T, a *Auth, token string) (user, why string) {
	t.Helper()
	user, err := a.Authenticate(t.Context(), zgate.Hello{Token: token})
	if err == nil {
		return user, ""
	}
	var r *refused
	if !errors.As(err, &r) || zmsg.CodeOf(err) != zmsg.CodeUnauthorized || user != "" {
		t.Fatalf("not a refusal: %q, %v", user, err)
	}
	return "", r.reason
}

// Every way in which a token may be wrong, for each algorithm.
func TestTokens(t *testing.T) {
	for alg, kit := range map[string]struct {
		method     jwt.SigningMethod
		key, other any
		cfg        Config
	}{
		HS256: {jwt.SigningMethodHS256, secret, []byte(strings.Repeat("x", 32)), Config{Secret: secret}},
		RS256: {jwt.SigningMethodRS256, rsaKey(), otherRSA(), Config{KeyFile: pemFile(t, &rsaKey().PublicKey)}},
		EdDSA: {jwt.SigningMethodEdDSA, edKey, otherEd, Config{KeyFile: pemFile(t, edKey.Public())}},
	} {
		t.Run(alg, func(t *testing.T) {
			cfg := kit.cfg
			cfg.Algorithms, cfg.Audience, cfg.Issuer = []string{alg}, "game", "login"
			a := newAuth(t, cfg)
			good := sign(t, kit.method, kit.key, claims(nil), nil)
			if user, why := login(t, a, good); user != "ann" {
				t.Fatalf("a good token: %q", why)
			}
			public, _ := pem.Decode(must(os.ReadFile(pemFile(t, &rsaKey().PublicKey))))
			at := func(d time.Duration) int64 { return now.Add(d).Unix() }
			head, rest, _ := strings.Cut(good, ".")
			body, signature, _ := strings.Cut(rest, ".")
			for name, c := range map[string]struct{ token, want string }{
				"none":              {sign(t, jwt.SigningMethodNone, unencrypted, claims(nil), nil), "algorithm"},
				"unknown alg":       {sign(t, kit.method, kit.key, claims(nil), map[string]any{"alg": "XS1"}), "algorithm"},
				"alg in lower case": {sign(t, kit.method, kit.key, claims(nil), map[string]any{"alg": strings.ToLower(alg)}), "algorithm"},
				"alg is a number":   {sign(t, kit.method, kit.key, claims(nil), map[string]any{"alg": 1}), "algorithm"},
				"hmac with the public key": {
					sign(t, jwt.SigningMethodHS384, public.Bytes, claims(nil), nil), "algorithm",
				},
				"key of another":      {sign(t, kit.method, kit.other, claims(nil), nil), "signature"},
				"no signature":        {head + "." + body + ".", "signature"},
				"two parts":           {head + "." + body, "malformed"},
				"four parts":          {good + ".x", "malformed"},
				"padded":              {good + "=", "malformed"},
				"dots":                {strings.Repeat(".", 4000), "malformed"},
				"empty":               {"", "malformed"},
				"huge":                {good + strings.Repeat("x", maxToken), "malformed"},
				"claims are null":     {head + ".bnVsbA." + signature, "signature"},
				"header is null":      {"bnVsbA." + body + "." + signature, "algorithm"},
				"critical extension":  {sign(t, kit.method, kit.key, claims(nil), map[string]any{"crit": []string{"exp"}}), "malformed"},
				"kid is no text":      {sign(t, kit.method, kit.key, claims(nil), map[string]any{"kid": 7}), "malformed"},
				"no expiry":           {sign(t, kit.method, kit.key, claims(map[string]any{"exp": nil}), nil), "malformed"},
				"expiry is text":      {sign(t, kit.method, kit.key, claims(map[string]any{"exp": "tomorrow"}), nil), "malformed"},
				"expired":             {sign(t, kit.method, kit.key, claims(map[string]any{"exp": at(-31 * time.Second)}), nil), "expired"},
				"expired within skew": {sign(t, kit.method, kit.key, claims(map[string]any{"exp": at(-29 * time.Second)}), nil), ""},
				"too early":           {sign(t, kit.method, kit.key, claims(map[string]any{"nbf": at(31 * time.Second)}), nil), "early"},
				"early within skew":   {sign(t, kit.method, kit.key, claims(map[string]any{"nbf": at(29 * time.Second)}), nil), ""},
				"from the future":     {sign(t, kit.method, kit.key, claims(map[string]any{"iat": at(31 * time.Second)}), nil), "early"},
				"other audience":      {sign(t, kit.method, kit.key, claims(map[string]any{"aud": "shop"}), nil), "audience"},
				"two audiences":       {sign(t, kit.method, kit.key, claims(map[string]any{"aud": []string{"shop", "game"}}), nil), ""},
				"no audience":         {sign(t, kit.method, kit.key, claims(map[string]any{"aud": nil}), nil), "malformed"},
				"other issuer":        {sign(t, kit.method, kit.key, claims(map[string]any{"iss": "evil"}), nil), "issuer"},
				"no issuer":           {sign(t, kit.method, kit.key, claims(map[string]any{"iss": nil}), nil), "malformed"},
				"no subject":          {sign(t, kit.method, kit.key, claims(map[string]any{"sub": nil}), nil), "subject"},
				"subject is a number": {sign(t, kit.method, kit.key, claims(map[string]any{"sub": 5}), nil), "malformed"},
				"long subject":        {sign(t, kit.method, kit.key, claims(map[string]any{"sub": strings.Repeat("x", 129)}), nil), "subject"},
				"subject with a line": {sign(t, kit.method, kit.key, claims(map[string]any{"sub": "a\nb"}), nil), "subject"},
				"expired and other audience": {
					sign(t, kit.method, kit.key, claims(map[string]any{"aud": "shop", "exp": at(-time.Hour)}), nil), "expired",
				},
			} {
				if _, why := login(t, a, c.token); why != c.want {
					t.Errorf("%s: got %q, want %q", name, why, c.want)
				}
			}
		})
	}
}

// The public key of RS256 is no secret of HS256, whatever the header says.
func TestAlgorithmConfusion(t *testing.T) {
	path := pemFile(t, &rsaKey().PublicKey)
	a := newAuth(t, Config{Algorithms: []string{RS256, EdDSA}, KeyFile: path})
	for _, public := range [][]byte{must(os.ReadFile(path)), x509.MarshalPKCS1PublicKey(&rsaKey().PublicKey)} {
		if _, why := login(t, a, sign(t, jwt.SigningMethodHS256, public, claims(nil), nil)); why != "algorithm" {
			t.Errorf("got %q", why)
		}
	}
	// Nor is a key of one asymmetric algorithm good for the other.
	if _, why := login(t, a, sign(t, jwt.SigningMethodEdDSA, edKey, claims(nil), nil)); why != "key" {
		t.Errorf("got %q", why)
	}
}

func pemFile(t *testing.T, public ...any) string {
	t.Helper()
	var b []byte
	for _, p := range public {
		b = append(b, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: must(x509.MarshalPKIXPublicKey(p))})...)
	}
	return file(t, b)
}

func file(t *testing.T, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	write(t, path, b)
	return path
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func edJWK(kid string, k ed25519.PrivateKey) map[string]any {
	return map[string]any{"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": b64(k.Public().(ed25519.PublicKey)), "use": "sig"}
}

func rsaJWK(kid string, k *rsa.PrivateKey) map[string]any {
	return map[string]any{"kty": "RSA", "kid": kid, "alg": "RS256", "n": b64(k.N.Bytes()), "e": b64(big.NewInt(int64(k.E)).Bytes())}
}

func jwks(keys ...map[string]any) []byte {
	return must(json.Marshal(map[string]any{"keys": keys}))
}

// A key that is added works from its first token on; one that is taken away stops. Between two loads lies MinRefresh, whatever
// clients send.
func TestRotation(t *testing.T) {
	for _, from := range []string{"file", "url"} {
		t.Run(from, func(t *testing.T) {
			var body atomic.Pointer[[]byte]
			var loads atomic.Int64
			set := func(b []byte) { body.Store(&b) }
			set(jwks(edJWK("a", edKey)))
			cfg := Config{Algorithms: []string{EdDSA, RS256}, Audience: "game", Refresh: 20 * time.Millisecond, MinRefresh: time.Millisecond, LoadTimeout: patience}
			if from == "url" {
				s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					loads.Add(1)
					_, _ = w.Write(*body.Load())
				}))
				t.Cleanup(s.Close)
				cfg.JWKSURL = s.URL
			} else {
				path := file(t, *body.Load())
				set = func(b []byte) {
					write(t, path+".new", b)
					if err := os.Rename(path+".new", path); err != nil {
						t.Fatal(err)
					}
				}
				cfg.JWKSFile = path
			}
			a := newAuth(t, cfg)
			first := sign(t, jwt.SigningMethodEdDSA, edKey, claims(nil), map[string]any{"kid": "a"})
			second := sign(t, jwt.SigningMethodRS256, rsaKey(), claims(nil), map[string]any{"kid": "b"})
			if _, why := login(t, a, first); why != "" {
				t.Fatal(why)
			}
			if _, why := login(t, a, second); why != "key" {
				t.Errorf("a key that is not there: %q", why)
			}
			set(jwks(edJWK("a", edKey), rsaJWK("b", rsaKey())))
			until(t, "the new key", func() bool { _, why := login(t, a, second); return why == "" })
			if _, why := login(t, a, first); why != "" {
				t.Errorf("the old key, which is there: %q", why)
			}
			set(jwks(rsaJWK("b", rsaKey())))
			until(t, "the end of the old key", func() bool { _, why := login(t, a, first); return why == "key" })
			// A broken source: what was loaded holds.
			set([]byte("<html>"))
			for range 20 {
				if _, why := login(t, a, second); why != "" {
					t.Fatalf("with a broken source: %q", why)
				}
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
}

// until polls: the source is looked at when somebody logs in.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func TestUnknownKeysDoNotLoad(t *testing.T) {
	var loads atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		loads.Add(1)
		_, _ = w.Write(jwks(edJWK("a", edKey)))
	}))
	defer s.Close()
	a := newAuth(t, Config{Algorithms: []string{EdDSA}, Audience: "game", JWKSURL: s.URL, MinRefresh: time.Minute, LoadTimeout: patience})
	for range 100 {
		if _, why := login(t, a, sign(t, jwt.SigningMethodEdDSA, otherEd, claims(nil), map[string]any{"kid": "x"})); why != "key" {
			t.Fatalf("got %q", why)
		}
	}
	if n := loads.Load(); n != 1 {
		t.Errorf("%d loads", n)
	}
}

// A source that hangs delays nobody whose key is there, and ends with Close.
func TestHangingSource(t *testing.T) {
	var hang atomic.Bool
	hung := make(chan struct{}, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hang.Load() {
			hung <- struct{}{}
			<-r.Context().Done()
			return
		}
		_, _ = w.Write(jwks(edJWK("a", edKey)))
	}))
	defer s.Close()
	a := newAuth(t, Config{
		Algorithms: []string{EdDSA}, Audience: "game", JWKSURL: s.URL, Refresh: time.Millisecond, MinRefresh: time.Millisecond, LoadTimeout: time.Minute,
	})
	hang.Store(true)
	good := sign(t, jwt.SigningMethodEdDSA, edKey, claims(nil), map[string]any{"kid": "a"})
	until(t, "a load", func() bool {
		if _, why := login(t, a, good); why != "" {
			t.Fatal(why)
		}
		return len(hung) > 0
	})
	if _, why := login(t, a, good); why != "" {
		t.Fatal(why)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	unknown := sign(t, jwt.SigningMethodEdDSA, edKey, claims(nil), map[string]any{"kid": "b"})
	if _, err := a.Authenticate(ctx, zgate.Hello{Token: unknown}); err == nil {
		t.Error("an unknown key was believed")
	}
	a.Close()
}

// A token without a key id is tried with the keys of its algorithm; a key without an id with every token.
func TestKeysWithoutID(t *testing.T) {
	a := newAuth(t, Config{Algorithms: []string{EdDSA, RS256}, KeyFile: pemFile(t, otherEd.Public(), &rsaKey().PublicKey, edKey.Public())})
	for _, head := range []map[string]any{nil, {"kid": "whatever"}} {
		if user, why := login(t, a, sign(t, jwt.SigningMethodEdDSA, edKey, claims(nil), head)); user != "ann" {
			t.Errorf("%v: %q", head, why)
		}
	}
	b := newAuth(t, Config{Algorithms: []string{EdDSA}, Audience: "game", JWKSFile: file(t, jwks(edJWK("a", otherEd), edJWK("b", edKey)))})
	if user, why := login(t, b, sign(t, jwt.SigningMethodEdDSA, edKey, claims(nil), nil)); user != "ann" {
		t.Errorf("without kid: %q", why)
	}
	if _, why := login(t, b, sign(t, jwt.SigningMethodEdDSA, edKey, claims(nil), map[string]any{"kid": "a"})); why != "signature" {
		t.Errorf("the id of another key: %q", why)
	}
}

func TestJWKSLeavesOutOthers(t *testing.T) {
	good := edJWK("a", edKey)
	weak := must(rsa.GenerateKey(nil, 1024))
	with := func(k map[string]any, name string, v any) map[string]any {
		c := maps.Clone(k)
		c[name] = v
		return c
	}
	for name, c := range map[string]struct {
		key     map[string]any
		secrets bool
		want    int
	}{
		"good":               {good, false, 1},
		"for encryption":     {with(good, "use", "enc"), false, 0},
		"signs only":         {with(good, "key_ops", []string{"sign"}), false, 0},
		"verifies":           {with(good, "key_ops", []string{"verify"}), false, 1},
		"of another alg":     {with(good, "alg", "RS256"), false, 0},
		"short x":            {with(good, "x", "AAAA"), false, 0},
		"Ed448":              {with(good, "crv", "Ed448"), false, 0},
		"EC":                 {map[string]any{"kty": "EC", "crv": "P-256"}, false, 0},
		"kty missing":        {map[string]any{}, false, 0},
		"kty is a number":    {map[string]any{"kty": 1}, false, 0},
		"rsa":                {rsaJWK("r", rsaKey()), false, 1},
		"rsa of 1024":        {rsaJWK("r", weak), false, 0},
		"rsa, e is 1":        {with(rsaJWK("r", rsaKey()), "e", "AQ"), false, 0},
		"rsa, e even":        {with(rsaJWK("r", rsaKey()), "e", "Bg"), false, 0},
		"rsa, e huge":        {with(rsaJWK("r", rsaKey()), "e", "AQAAAAAB"), false, 0},
		"rsa, no n":          {with(rsaJWK("r", rsaKey()), "n", ""), false, 0},
		"secret from a file": {map[string]any{"kty": "oct", "k": b64(secret)}, true, 1},
		"secret from a URL":  {map[string]any{"kty": "oct", "k": b64(secret)}, false, 0},
		"short secret":       {map[string]any{"kty": "oct", "k": b64(secret[:31])}, true, 0},
	} {
		set, err := parseJWKS(jwks(c.key, map[string]any{"kty": "?"}), []string{HS256, RS256, EdDSA}, c.secrets)
		if len(set) != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("%s: %d keys, %v", name, len(set), err)
		}
	}
}

// A configuration that would not do what it looks like fails at the start, and says how to mend it.
func TestConfigFaults(t *testing.T) {
	rsaFile := pemFile(t, &rsaKey().PublicKey)
	private := file(t, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(edKey))}))
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	away := httptest.NewServer(http.RedirectHandler("http://keys.example/", http.StatusFound))
	defer away.Close()
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"nothing":           {Config{}, "Algorithms is empty: expected"},
		"no source":         {Config{Algorithms: []string{EdDSA}}, "exactly one of Secret"},
		"two sources":       {Config{Algorithms: []string{HS256}, Secret: secret, KeyFile: "x"}, "got 2 (Secret, KeyFile)"},
		"none":              {Config{Algorithms: []string{"none"}, KeyFile: "x"}, `"none": expected HS256`},
		"mixed":             {Config{Algorithms: []string{HS256, RS256}, KeyFile: "x"}, "HS256 beside others"},
		"twice":             {Config{Algorithms: []string{RS256, RS256}, KeyFile: "x"}, "twice"},
		"secret of another": {Config{Algorithms: []string{RS256}, Secret: secret}, "for HS256 only"},
		"short secret":      {Config{Algorithms: []string{HS256}, Secret: []byte("short")}, "5 bytes: expected at least 32"},
		"short secret file": {Config{Algorithms: []string{HS256}, KeyFile: file(t, []byte("short\n"))}, "5 bytes: expected at least 32"},
		"jwks, no audience": {Config{Algorithms: []string{EdDSA}, JWKSFile: "x"}, "Audience is empty"},
		"http":              {Config{Algorithms: []string{EdDSA}, Audience: "g", JWKSURL: "http://login.example/jwks"}, "expected https, or InsecureJWKS"},
		"secret by URL":     {Config{Algorithms: []string{HS256}, Audience: "g", JWKSURL: "https://login.example/jwks"}, "shared secret"},
		"no URL":            {Config{Algorithms: []string{EdDSA}, Audience: "g", JWKSURL: "ftp://x"}, "expected https://host/path"},
		"skew":              {Config{Algorithms: []string{HS256}, Secret: secret, Skew: time.Hour}, "Skew is 1h0m0s"},
		"no file":           {Config{Algorithms: []string{RS256}, KeyFile: "/no/such/key"}, "/no/such/key"},
		"private key":       {Config{Algorithms: []string{EdDSA}, KeyFile: private}, "a private key belongs"},
		"no PEM":            {Config{Algorithms: []string{EdDSA}, KeyFile: file(t, []byte("hello"))}, "no key for [EdDSA]"},
		"key of another":    {Config{Algorithms: []string{EdDSA}, KeyFile: rsaFile}, "is for RS256: expected one for [EdDSA]"},
		"empty set":         {Config{Algorithms: []string{EdDSA}, Audience: "g", JWKSFile: file(t, jwks())}, "no key for [EdDSA]"},
		"not a set":         {Config{Algorithms: []string{EdDSA}, Audience: "g", JWKSFile: file(t, []byte("[1]"))}, "not a JSON Web Key Set"},
		"large":             {Config{Algorithms: []string{EdDSA}, Audience: "g", JWKSFile: file(t, make([]byte, maxSource+1))}, "at most 1048576 bytes"},
		"404":               {Config{Algorithms: []string{EdDSA}, Audience: "g", JWKSURL: s.URL}, "expected status 200, got 404"},
		"redirect to http":  {Config{Algorithms: []string{EdDSA}, Audience: "g", JWKSURL: away.URL}, "redirect away from https"},
	} {
		a, err := New(t.Context(), c.cfg)
		if err == nil {
			a.Close()
			t.Errorf("%s: no error", name)
		} else if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "0123456789") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// What a client sends and what a source holds may be anything.
func FuzzToken(f *testing.F) {
	f.Add("a.b.c", []byte(`{"keys":[]}`))
	f.Add("eyJhbGciOiJub25lIn0.e30.", jwks(edJWK("a", edKey)))
	a, err := New(context.Background(), Config{Algorithms: []string{HS256}, Secret: secret})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, token string, keys []byte) {
		if user, err := a.Authenticate(t.Context(), zgate.Hello{Token: token}); err == nil {
			t.Errorf("believed: %q", user)
		}
		_, _ = parseJWKS(keys, []string{HS256, RS256, EdDSA}, true)
		_, _ = parseKeyFile(keys, []string{RS256, EdDSA})
	})
}
