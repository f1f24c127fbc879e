package znode

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"zgame/internal/settings"
	"zgame/zrouter"
)

func TestDefaultsAreValid(t *testing.T) {
	s, err := LoadSettings("", nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.Gate.Address != "127.0.0.1:7000" || s.Admin.Address != "127.0.0.1:9090" {
		t.Errorf("ports differ from the documented ones: %q %q", s.Gate.Address, s.Admin.Address)
	}
}

// C4 of known-faults.md: every key by file and by environment, the print of one is the input of the other.
func TestEveryKeyRoundTrips(t *testing.T) {
	def := DefaultSettings()
	path := filepath.Join(t.TempDir(), "gameserver.yaml")
	text := def.Text()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := LoadSettings(path, nil)
	if err != nil {
		t.Fatalf("the printed settings do not load: %v\n%s", err, text)
	}
	if again := s.Text(); again != text {
		t.Errorf("printed again:\n%s\nwant\n%s", again, text)
	}
	for _, key := range settings.Keys(&def) {
		if _, err := LoadSettings("", []string{settings.EnvName(EnvPrefix, key) + "=\x00"}); err == nil && !isText(key) {
			t.Errorf("%s: rubbish in the environment was not noticed", key)
		}
	}
	s, err = LoadSettings(path, []string{"ZGAME_ETCD_LEASE=30s", "ZGAME_GATE_ORIGINS=http://a,http://b"})
	if err != nil || s.Etcd.Lease != 30*time.Second || len(s.Gate.Origins) != 2 {
		t.Errorf("environment: %v %+v", err, s.Gate.Origins)
	}
}

// isText says for which keys any text will do.
func isText(key string) bool {
	return slices.Contains([]string{
		"nats.user", "nats.password", "nats.credentials", "nats.token", "nats.nkey", "nats.tls.ca", "nats.tls.cert", "nats.tls.key", "etcd.user", "etcd.password", "store.mongo.database",
		"store.mongo.collection", "gate.url", "gate.tls.cert", "gate.tls.key", "gate.auth.issuer", "gate.auth.audience", "store.kv.bucket", "actors.record_dir",
		"node.zone", "node.version", "node.lock_dir", "logic.router.hosts",
	}, key)
}

func TestAllFaultsAreNamedAtOnce(t *testing.T) {
	_, err := LoadSettings("", []string{
		"ZGAME_NODE_ID=a b", "ZGAME_LOG_LEVEL=loud", "ZGAME_GATE_ADDRESS=7000", "ZGAME_NATS_URL=http://x:1", "ZGAME_ETCD_ENDPOINTS=",
		"ZGAME_STORE_MONGO_URI=user:secretpassword", "ZGAME_ETCD_LEASE=1ms", "ZGAME_GATE_TLS_CERT=x", "ZGAME_GATE_MAX_MESSAGE=0", "ZGAME_GATE_RATE=0", "ZGAME_GATE_TRUSTED_PROXIES=10.0.0.0/8,far", "ZGAME_GATE_ACCEPT_RATE=-2", "ZGAME_GATE_BYTE_BURST=-1", "ZGAME_GATE_AUTH_KIND=none",
		"ZGAME_NODE_WEIGHT=0", "ZGAME_NODE_LABELS=a=1,b,a=2", "ZGAME_NODE_LOAD_INTERVAL=1ms",
		"ZGAME_NATS_NKEY=n", "ZGAME_NATS_TOKEN=secretpassword", "ZGAME_NATS_PASSWORD=secretpassword", "ZGAME_NATS_TLS_KEY=k", "ZGAME_NATS_PING_INTERVAL=1ms", "ZGAME_NATS_MAX_PINGS=0",
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`node.id "a b"`, `log.level "loud": expected debug, info, warn, error`, `gate.address "7000": expected host:port`,
		`nats.url: scheme "http": expected nats`, "etcd.endpoints: expected at least one", "store.mongo.uri: expected mongodb://",
		"etcd.lease 1ms: expected at least 2s", "gate.tls: cert and key belong together", "gate.max_message 0", `gate.trusted_proxies "far": expected an address`, "gate.rate 0: expected 1 to 1073741824, or -1", "gate.accept_rate -2", "gate.byte_burst -1: expected at least gate.max_message", `gate.auth.kind "none": expected jwt or dev`,
		"node.weight 0: expected a number from 1", `node.labels "b": expected key=value`, `node.labels "a=2"`, "node.load_interval 1ms: expected 0",
		"nats.token and nats.nkey are set: expected at most one", "nats.password without nats.user", "nats.tls: cert and key", "nats.ping_interval 1ms: expected at least 100ms",
		"nats.max_pings 0: expected a number above 0",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "secretpassword") {
		t.Error("a secret is in the error")
	}
}

// The gate is never plain text for other machines by accident.
func TestPlaintextIsASetting(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want string // "": no fault
	}{
		{[]string{"ZGAME_GATE_ADDRESS=:7000"}, `gate.address ":7000" is reached from other machines`},
		{[]string{"ZGAME_GATE_TCP_ADDRESS=:7500"}, `gate.tcp_address ":7500" is reached`},
		{[]string{"ZGAME_GATE_TCP_ADDRESS=7500"}, `gate.tcp_address "7500": expected host:port`},
		{[]string{"ZGAME_GATE_ADDRESS=10.1.2.3:7000"}, "gate.insecure_plaintext"},
		{[]string{"ZGAME_GATE_ADDRESS=:7000", "ZGAME_GATE_INSECURE_PLAINTEXT=true"}, ""},
		{[]string{"ZGAME_GATE_ADDRESS=:7000", "ZGAME_GATE_TLS_CERT=c", "ZGAME_GATE_TLS_KEY=k"}, ""},
		{[]string{"ZGAME_GATE_ADDRESS=:7000", "ZGAME_GATE_ENABLED=false"}, ""},
		{[]string{"ZGAME_GATE_PROXY_PROTOCOL=true"}, "expected gate.trusted_proxies too"},
	} {
		_, err := LoadSettings("", c.env)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: got %v, want %q", c.env, err, c.want)
		}
	}
}

// A request that waits while its object moves is to live to see the end of that.
func TestMovesFitCalls(t *testing.T) {
	for _, c := range []struct {
		env  string
		want string // "": no fault
	}{
		{"ZGAME_ACTORS_ASK_TIMEOUT=10s", ""},
		{"ZGAME_ACTORS_ASK_TIMEOUT=9s", "logic.router: quiesce_timeout 2s and twice store_timeout 4s: expected at most 9s together"},
		{"ZGAME_LOGIC_ROUTER_STORE_TIMEOUT=5s", "logic.router: quiesce_timeout 2s and twice store_timeout 5s: expected at most 10s"},
		{"ZGAME_LOGIC_ROUTER_KINDS_ROOM_QUIESCE_TIMEOUT=3s", "logic.router.kinds.room: quiesce_timeout 3s"},
		{"ZGAME_LOGIC_ROUTER_KINDS_ROOM_QUIESCE_TIMEOUT=1s", ""},
	} {
		_, err := LoadSettings("", []string{c.env})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.env, err, c.want)
		}
	}
}

func TestMissingFileIsNamed(t *testing.T) {
	if _, err := LoadSettings("/no/such/file.yaml", nil); err == nil || !strings.Contains(err.Error(), "/no/such/file.yaml") {
		t.Errorf("err %v", err)
	}
}

// Settings of kinds are blocks that the operator names.
func TestSettingsOfKinds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gameserver.yaml")
	text := "logic:\n  router:\n    save_delay: 2s\n    hosts: [room]\n    kinds:\n      room: {save_delay: 1s, durable: true}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := LoadSettings(path, []string{"ZGAME_LOGIC_ROUTER_KINDS_ROOM_DEDUP=64", "ZGAME_LOGIC_ROUTER_KINDS_USER_OBJECT_FREE_TIMEOUT=1m", "ZGAME_LOGIC_ROUTER_MAX_HOPS=4"})
	if err != nil {
		t.Fatal(err)
	}
	r := s.Logic.Router
	want := map[string]zrouter.Settings{
		"room": {SaveDelay: time.Second, Durable: zrouter.On, Dedup: 64}, "user": {ObjectFreeTimeout: time.Minute},
	}
	if r.SaveDelay != 2*time.Second || r.MaxHops != 4 || r.CacheUpdateInterval != 1800*time.Second || !maps.Equal(r.Kinds, want) || !slices.Equal(r.Hosts, []string{"room"}) {
		t.Errorf("got %+v", r)
	}
	if err := os.WriteFile(path, []byte(s.Text()), 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err := LoadSettings(path, nil); err != nil || !maps.Equal(again.Logic.Router.Kinds, want) {
		t.Errorf("as printed: %v, %v\n%s", again.Logic.Router.Kinds, err, s.Text())
	}
}
