package znode_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"zgame/zclient"
	"zgame/zgate"
	"zgame/zmsg"
	"zgame/znode"
)

// A node with a gate does not start before it knows whom to believe, and says what to set.
func TestNoAuthNoGate(t *testing.T) {
	t.Parallel()
	cfg := newRig().config("n1", znode.App{})
	cfg.Settings.Gate.Auth.Kind = ""
	if _, err := znode.New(cfg); err == nil || !strings.Contains(err.Error(), "gate.auth.kind is empty") {
		t.Errorf("a gate that knows nobody: %v", err)
	}
	cfg.Settings.Gate.Enabled = false
	if _, err := znode.New(cfg); err != nil {
		t.Errorf("a node without a gate: %v", err)
	}
}

// The settings' names stand in the faults, each on a line of its own.
func TestAuthSettingsFaults(t *testing.T) {
	t.Parallel()
	_, err := znode.LoadSettings("", []string{
		"ZGAME_GATE_AUTH_KIND=jwt", "ZGAME_GATE_AUTH_ALGORITHMS=HS256,RS256", "ZGAME_GATE_AUTH_SECRET=secretpassword", "ZGAME_GATE_AUTH_JWKS_URL=http://login.example/x", "ZGAME_GATE_AUTH_SKEW=1h",
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"gate.auth.algorithms has HS256 beside others", "exactly one of secret, key_file, jwks_file and jwks_url, got 2", "gate.auth.secret has 14 bytes",
		"gate.auth.jwks_url is http at login.example", "gate.auth.audience is empty", "gate.auth.skew is 1h0m0s",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "secretpassword") {
		t.Error("a secret is in the error")
	}
	if _, err := znode.LoadSettings("", []string{"ZGAME_GATE_AUTH_KEY_FILE=x"}); err == nil || !strings.Contains(err.Error(), `gate.auth.kind is ""`) {
		t.Errorf("keys without a kind: %v", err)
	}
}

func login(t *testing.T, n *znode.Node, token string) (user string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := zclient.Dial(ctx, zclient.Config{URL: n.GateURL(), Token: token})
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	return c.Session().User, nil
}

func TestLoginByToken(t *testing.T) {
	t.Parallel()
	secret := []byte("a secret of some length, 32 or more")
	path := filepath.Join(t.TempDir(), "secret")
	cfg := newRig().config("n1", znode.App{})
	cfg.Settings.Gate.Auth.Kind, cfg.Settings.Gate.Auth.Algorithms, cfg.Settings.Gate.Auth.KeyFile = "jwt", []string{"HS256"}, path
	if n, err := znode.New(cfg); err != nil {
		t.Fatal(err)
	} else if err := n.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "gate.auth: ") || !strings.Contains(err.Error(), path) {
		t.Errorf("without the key file: %v", err)
	}
	if err := os.WriteFile(path, append(secret, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.Backends = newRig().config("n1", znode.App{}).Backends
	n := start(t, cfg)
	for _, c := range []struct {
		exp  time.Duration
		want string
	}{{time.Hour, ""}, {-time.Hour, "token has expired"}} {
		token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{
			Subject: "ann", ExpiresAt: jwt.NewNumericDate(time.Now().Add(c.exp)),
		}).SignedString(secret)
		if err != nil {
			t.Fatal(err)
		}
		user, err := login(t, n, token)
		if c.want == "" && (err != nil || user != "ann") || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: %q, %v", c.exp, user, err)
		}
	}
	if _, err := login(t, n, "ann"); err == nil {
		t.Error("a name was believed")
	}
	if _, body, _ := get(t, "http://"+n.AdminAddr()+"/metrics"); !strings.Contains(body, `zgame_auth_tokens_total{result="expired"} 1`) {
		t.Errorf("not counted:\n%.2000s", body)
	}
}

// appAuth is a program's own authenticator.
type appAuth struct{ closed bool }

func (a *appAuth) Authenticate(_ context.Context, h zgate.Hello) (string, error) {
	if h.Token != "open sesame" {
		return "", zmsg.Errorf(zmsg.CodeUnauthorized, "say the word")
	}
	return "ali", nil
}

func (a *appAuth) Close() error {
	a.closed = true
	return nil
}

func TestAppAuth(t *testing.T) {
	t.Parallel()
	auth := &appAuth{}
	cfg := newRig().config("n1", znode.App{Auth: func(*znode.Node) (zgate.Authenticator, error) { return auth, nil }})
	cfg.Settings.Gate.Auth.Kind = ""
	n := start(t, cfg)
	if user, err := login(t, n, "open sesame"); user != "ali" {
		t.Error(user, err)
	}
	if _, err := login(t, n, "x"); err == nil || !strings.Contains(err.Error(), "say the word") {
		t.Error(err)
	}
	stop(t, n)
	if !auth.closed {
		t.Error("not closed")
	}
	cfg = newRig().config("n1", znode.App{Auth: func(*znode.Node) (zgate.Authenticator, error) { return nil, errors.New("no database") }})
	cfg.Settings.Gate.Auth.Kind = ""
	if n, err := znode.New(cfg); err != nil {
		t.Fatal(err)
	} else if err := n.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "no database") {
		t.Errorf("err %v", err)
	}
}
