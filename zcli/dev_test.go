package zcli

import (
	"bytes"
	"flag"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"zgame/znode"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What nodes of dev are set to: what dev knows, then what the environment says, then the flags; of what the environment cannot change it is said.
func TestDevObeysTheEnvironment(t *testing.T) {
	var errs bytes.Buffer
	env := Env{Name: "game", Stderr: &errs, Environ: []string{
		"ZGAME_GATE_RATE=7", "ZGAME_GATE_ADDRESS=127.0.0.1:7100", "ZGAME_PAGE_ADDRESS=127.0.0.1:8100", "ZGAME_DRAIN_DELAY=3s", "ZGAME_GATE_ORIGINS=https://play.example", "ZGAME_NATS_URL=nats://elsewhere:4222",
	}}
	f := devFlags{gate: "127.0.0.1:7000", page: "127.0.0.1:9999", admin: "127.0.0.1:9090", level: "warn"}
	flags := flag.NewFlagSet("game dev", flag.ContinueOnError)
	flags.StringVar(&f.page, "page", f.page, "")
	if err := Parse(flags, env, []string{"--page", "127.0.0.1:8200"}); err != nil {
		t.Fatal(err)
	}
	base, err := devBase(env, znode.App{}, flags, f)
	if err != nil {
		t.Fatal(err)
	}
	if base.Gate.Rate != 7 || base.Gate.Address != "127.0.0.1:7100" || base.Page.Address != "127.0.0.1:8200" || base.Admin.Address != "127.0.0.1:9090" ||
		base.Drain.Delay != 3*time.Second || base.Gate.Auth.Kind != "dev" {
		t.Errorf("%+v", base)
	}
	list := []znode.Settings{base}
	welcomePages(list)
	if !slices.Equal(list[0].Gate.Origins, []string{"https://play.example", "http://localhost:8200", "http://127.0.0.1:8200"}) {
		t.Errorf("the gate lets in %v", list[0].Gate.Origins)
	}
	if said := errs.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "ZGAME_NATS_URL is not used") {
		t.Errorf("it says %q", said)
	}
}

// Where dev has its web console: beside the admin port, or where somebody says; with a token in any case, which no file gets.
func TestDevConsole(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ flag, set, admin, want string }{
		{"", "", "127.0.0.1:9090", "127.0.0.1:9190"},
		{"", "", "127.0.0.1:0", "127.0.0.1:0"},
		{"", "", "127.0.0.1:65500", "127.0.0.1:0"},
		{"", "", ":9090", "127.0.0.1:9190"}, // the admin port may be for the network, tokens are not
		{"", "127.0.0.1:7777", "127.0.0.1:9090", "127.0.0.1:7777"},
		{"127.0.0.1:8888", "127.0.0.1:7777", "127.0.0.1:9090", "127.0.0.1:8888"},
		{"off", "127.0.0.1:7777", "127.0.0.1:9090", ""},
		{"", "", "", ""},
	} {
		s := znode.DefaultSettings()
		s.Admin.Address, s.Console.Address = c.admin, c.set
		if err := devConsole(&s, c.flag); err != nil || s.Console.Address != c.want || (s.Console.OperatorToken != "") != (c.want != "") {
			t.Errorf("%+v: %+v, %v", c, s.Console, err)
		}
		if err := s.Validate(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		if c.want == "" {
			continue
		}
		file, err := saveSettings(t.TempDir(), &s)
		if err != nil {
			t.Fatal(err)
		}
		if saved, err := znode.LoadSettings(file, nil); err != nil || saved.Console != (znode.Settings{}.Console) {
			t.Errorf("the file has %+v, %v", saved.Console, err)
		}
	}
	s := znode.DefaultSettings()
	s.Console.OperatorToken = "a-token-of-operators"
	if err := devConsole(&s, ""); err != nil || s.Console.OperatorToken != "a-token-of-operators" {
		t.Errorf("somebody's own token: %+v, %v", s.Console, err)
	}
	s.Admin.Address, s.Console.Address = "nowhere", ""
	if err := devConsole(&s, ""); err == nil || devConsole(&s, "off") != nil {
		t.Errorf("an admin address that is none: %v", err)
	}
}

// Every gate lets in the pages of all nodes, and of nobody else; also where the system chooses the pages' ports.
func TestOriginsOfPages(t *testing.T) {
	app := znode.App{Page: fstest.MapFS{}}
	for _, tt := range []struct {
		page string
		open bool // before the nodes start
	}{{"127.0.0.1:8080", false}, {"127.0.0.1:0", true}} {
		list := make([]znode.Settings, 3)
		for k := range list {
			address, err := addPort(tt.page, k)
			if err != nil {
				t.Fatal(err)
			}
			list[k].Page.Address = address
		}
		pages, err := openPages(t.Context(), app, list)
		defer closeAll(pages)
		if err != nil {
			t.Fatal(err)
		}
		welcomePages(list)
		var want []string
		for k, s := range list {
			host, port, err := net.SplitHostPort(s.Page.Address)
			if err != nil || host != "127.0.0.1" || port == "0" {
				t.Errorf("%s: page %d has address %q", tt.page, k, s.Page.Address)
			}
			if (pages[k] != nil) != tt.open || tt.open && pages[k].Addr().String() != s.Page.Address {
				t.Errorf("%s: page %d at %s has listener %v", tt.page, k, s.Page.Address, pages[k])
			}
			want = append(want, "http://localhost:"+port, "http://127.0.0.1:"+port)
		}
		for k, s := range list {
			if !slices.Equal(s.Gate.Origins, want) {
				t.Errorf("%s: gate %d lets in %v, want %v", tt.page, k, s.Gate.Origins, want)
			}
		}
	}
	// No page, no port.
	list := make([]znode.Settings, 1)
	list[0].Page.Address = "127.0.0.1:0"
	if pages, err := openPages(t.Context(), znode.App{}, list); err != nil || pages[0] != nil {
		t.Errorf("an app without a page got %v, %v", pages, err)
	}
}
