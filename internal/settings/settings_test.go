package settings

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type sample struct {
	Name string `yaml:"name" help:"who"`
	Gate struct {
		Address  string        `yaml:"address"`
		Sessions int           `yaml:"max_sessions"`
		Timeout  time.Duration `yaml:"timeout"`
		Origins  []string      `yaml:"origins"`
		Text     bool          `yaml:"text"`
		TLS      struct {
			Key string `yaml:"key" secret:"true"`
		} `yaml:"tls"`
	} `yaml:"gate"`
	Rate  float64 `yaml:"rate"`
	Epoch uint64  `yaml:"epoch"`
}

func defaults() *sample {
	s := &sample{Name: "n1", Rate: 1.5}
	s.Gate.Timeout = time.Second
	return s
}

func TestEmptyInputKeepsDefaults(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "gate:\n"} {
		s := defaults()
		if err := Load(s, []byte(text), "f", nil, "Z"); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if s.Name != "n1" || s.Gate.Timeout != time.Second || s.Rate != 1.5 {
			t.Errorf("%q changed the defaults: %+v", text, s)
		}
	}
}

func TestEveryKeyByFileAndByEnvironment(t *testing.T) {
	text := "name: a\nrate: 2\nepoch: 7\ngate:\n  address: ':1'\n  max_sessions: 5\n  timeout: 3s\n  origins: [x, y]\n  text: true\n  tls:\n    key: k\n"
	env := []string{
		"Z_NAME=a", "Z_RATE=2", "Z_EPOCH=7", "Z_GATE_ADDRESS=:1", "Z_GATE_MAX_SESSIONS=5", "Z_GATE_TIMEOUT=3s",
		"Z_GATE_ORIGINS=x, y", "Z_GATE_TEXT=true", "Z_GATE_TLS_KEY=k", "OTHER=1",
	}
	file, byEnv := defaults(), defaults()
	if err := Load(file, []byte(text), "f", nil, "Z"); err != nil {
		t.Fatal(err)
	}
	if err := Load(byEnv, nil, "f", env, "Z"); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*sample{file, byEnv} {
		if s.Name != "a" || s.Rate != 2 || s.Epoch != 7 || s.Gate.Address != ":1" || s.Gate.Sessions != 5 ||
			s.Gate.Timeout != 3*time.Second || strings.Join(s.Gate.Origins, "|") != "x|y" || !s.Gate.Text || s.Gate.TLS.Key != "k" {
			t.Errorf("got %+v", s)
		}
	}
	if len(Keys(file)) != len(env)-1 {
		t.Errorf("keys %v: this test does not set them all", Keys(file))
	}
}

func TestEnvironmentWins(t *testing.T) {
	s := defaults()
	if err := Load(s, []byte("name: file"), "f", []string{"Z_NAME=env"}, "Z"); err != nil || s.Name != "env" {
		t.Errorf("name %q, err %v; want env", s.Name, err)
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	text := "nam: a\nrate: fast\ngate:\n  addrss: ':1'\n  timeout: 3\n  max_sessions: [1]\n  text: maybe\n  tls: 5\nname: x\nname: y\ngat: {}\n"
	err := Load(defaults(), []byte(text), "game.yaml", []string{"Z_GATE_MAX_SESION=1", "Z_EPOCH=-1", "Z_ENTIRELY_DIFFERENT_THING=1"}, "Z")
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"game.yaml:1: unknown key nam, did you mean name?",
		`game.yaml:2: rate: "fast" is not valid; expected a number`,
		"game.yaml:4: unknown key gate.addrss, did you mean gate.address?",
		`game.yaml:5: gate.timeout: "3" is not valid; expected a time span with unit`,
		"game.yaml:6: gate.max_sessions: expected a whole number",
		`game.yaml:7: gate.text: "maybe" is not valid; expected true or false`,
		"game.yaml:8: gate.tls: expected a block of settings",
		"game.yaml:11: unknown key gat, did you mean gate?",
		"game.yaml:10: name is set twice, first on line 9",
		"unknown variable Z_GATE_MAX_SESION, did you mean Z_GATE_MAX_SESSIONS?",
		`Z_EPOCH: "-1" is not valid`,
		"unknown variable Z_ENTIRELY_DIFFERENT_THING (--check prints all that are known)",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in:\n%v", want, err)
		}
	}
}

func TestBrokenYAML(t *testing.T) {
	for _, text := range []string{"a: [", "- 1\n", "\t", "5"} {
		if err := Load(defaults(), []byte(text), "f", nil, "Z"); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestTextHidesSecretsAndLoadsAgain(t *testing.T) {
	s := defaults()
	s.Gate.TLS.Key = "hush"
	s.Gate.Origins = []string{"a", "b"}
	text := Text(s)
	if strings.Contains(text, "hush") || !strings.Contains(text, "# who") {
		t.Errorf("text:\n%s", text)
	}
	again := &sample{}
	if err := Load(again, []byte(text), "f", nil, "Z"); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	again.Gate.TLS.Key = "hush"
	if Text(again) != text {
		t.Errorf("second text differs:\n%s\n%s", text, Text(again))
	}
}

func TestTextHidesCredentialsOfURLs(t *testing.T) {
	for in, want := range map[string]string{
		"nats://ann:hush@a:1, nats://ann:hu@sh@b:2": "nats://***@a:1, nats://***@b:2",
		"nats://token@a:1":                          "nats://***@a:1",
		"mongodb://a:1,b:2/?x=c@d":                  "mongodb://a:1,b:2/?x=c@d",
		"http://a:1":                                "http://a:1",
	} {
		s := defaults()
		s.Name, s.Gate.Origins = in, []string{in}
		if text := Text(s); strings.Count(text, strconv.Quote(want)) != 2 {
			t.Errorf("%s: want %s twice in\n%s", in, want, text)
		}
	}
	for in, want := range map[string]string{
		"mongodb://a:1,b:2/db":    "mongodb://a:1,b:2/db",
		"mongodb://ann:hush@a:1":  "***",
		"mongodb://a:1/?key=hush": "***",
		"hush":                    "***",
	} {
		s := defaults()
		s.Gate.TLS.Key = in
		if text := Text(s); !strings.Contains(text, "key: "+strconv.Quote(want)) {
			t.Errorf("secret %s: want %s in\n%s", in, want, text)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte("name: a\ngate: {address: x}"))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("gate: &g\n  tls: *g\n"))
	f.Fuzz(func(_ *testing.T, text []byte) { _ = Load(defaults(), text, "f", nil, "Z") }) // must end, must not panic
}
