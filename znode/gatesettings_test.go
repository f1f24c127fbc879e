package znode

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"zgame/internal/settings"
	"zgame/zgate"
	"zgame/zmsg"
)

// gateSettings has every field of zgate.Config: the setting that decides about it, with a value that is not the default one, or why there is none.
var gateSettings = map[string]struct{ key, value, why string }{
	"Addr":               {key: "gate.address", value: "127.0.0.1:1"},
	"TCPAddr":            {key: "gate.tcp_address", value: "127.0.0.1:2"},
	"TLS":                {why: "made of the files of gate.tls"},
	"InsecurePlaintext":  {key: "gate.insecure_plaintext", value: "true"},
	"TrustedProxies":     {why: "parsed from gate.trusted_proxies"},
	"ProxyProtocol":      {key: "gate.proxy_protocol", value: "true"},
	"Auth":               {why: "made of gate.auth, or the application's"},
	"Directory":          {why: "zuser, where gate.directory says so"},
	"AllowedOrigins":     {why: "gate.origins, with those of the node's page"},
	"UserSessions":       {key: "gate.user_sessions", value: "3"},
	"SecondLogin":        {key: "gate.second_login", value: "reject"},
	"AllowText":          {key: "gate.text", value: "true"},
	"MaxSessions":        {key: "gate.max_sessions", value: "77"},
	"MaxUnauthenticated": {key: "gate.max_unauthenticated", value: "77"},
	"MaxPerIP":           {key: "gate.max_per_address", value: "77"},
	"MaxMessage":         {key: "gate.max_message", value: "777"},
	"MaxInFlight":        {key: "gate.max_in_flight", value: "77"},
	"MaxGroups":          {key: "gate.max_groups", value: "77"},
	"MaxWatchers":        {key: "gate.max_watchers", value: "77"},
	"MaxBindings":        {key: "gate.max_bindings", value: "77"},
	"MaxRoutes":          {key: "gate.max_routes", value: "77"},
	"Rate":               {key: "gate.rate", value: "77"},
	"Burst":              {key: "gate.burst", value: "77"},
	"ByteRate":           {key: "gate.byte_rate", value: "77"},
	"ByteBurst":          {key: "gate.byte_burst", value: "77777777"},
	"AcceptRate":         {key: "gate.accept_rate", value: "77"},
	"AcceptBurst":        {key: "gate.accept_burst", value: "77"},
	"Compression":        {key: "gate.compression", value: "true"},
	"CompressFrom":       {key: "gate.compress_from", value: "77"},
	"QueueBytes":         {key: "gate.queue_bytes", value: "7777777"},
	"MaxSend":            {key: "gate.max_send", value: "77777"},
	"ResumeWindow":       {key: "gate.resume_window", value: "7s"},
	"MaxSuspended":       {key: "gate.max_suspended", value: "77"},
	"KeepCount":          {key: "gate.keep_count", value: "77"},
	"KeepBytes":          {key: "gate.keep_bytes", value: "77777"},
	"KeepTime":           {key: "gate.keep_time", value: "7s"},
	"MaxKeepBytes":       {key: "gate.max_keep_bytes", value: "77777"},
	"HandshakeTimeout":   {key: "gate.handshake_timeout", value: "7s"},
	"LoginTimeout":       {key: "gate.login_timeout", value: "7s"},
	"AuthTimeout":        {key: "gate.auth_timeout", value: "7s"},
	"Heartbeat":          {key: "gate.heartbeat", value: "7s"},
	"Timeout":            {key: "gate.silence_timeout", value: "77s"},
	"QueueAge":           {key: "gate.queue_age", value: "7s"},
	"CloseTimeout":       {key: "gate.close_timeout", value: "7s"},
	"RequestTimeout":     {key: "gate.request_timeout", value: "7s"},
	"MaxRequestTimeout":  {key: "gate.max_request_timeout", value: "77s"},
	"JoinTimeout":        {key: "gate.join_timeout", value: "7s"},
	"PushWait":           {key: "gate.push_wait", value: "7s"},
	"DrainTime":          {key: "drain.timeout", value: "7s"},
	"DrainSpread":        {key: "drain.delay", value: "7s"},
	"DrainHandover":      {key: "drain.handover", value: "7s"},
	"HandoverTime":       {key: "gate.handover_time", value: "7s"},

	"Node":        {why: "who the node is"},
	"Listener":    {why: "a listener is the program's: znode.Config.Listen"},
	"TCPListener": {why: "likewise"},
	"Path":        {why: "the page, clients and probes go by /ws; a proxy can have another path outside"},
	"Handlers":    {why: "code"},
	"Dispatcher":  {why: "code"},
	"Peers":       {why: "code"},
	"OnNoRoute":   {why: "code"},
	"Groups":      {why: "code"},
	"Tell":        {why: "code"},
	"Deliver":     {why: "code"},
	"Resent":      {why: "code"},
	"Ack":         {why: "code"},
	"BeforeLogin": {why: "the application's: whoever handles an id knows whether it needs a user"},
	"Registry":    {why: "code"},
	"Logger":      {why: "the node's: log.level"},
	"Metrics":     {why: "the node's"},
	"Tracer":      {why: "the node's: trace.enabled"},
}

// Whatever an operator would turn about a gate is a setting, and turns that and nothing else.
func TestGateConfigIsSettings(t *testing.T) {
	t.Parallel()
	def := DefaultSettings()
	keys := map[string]bool{}
	for _, key := range settings.Keys(&def) {
		keys[key] = true
	}
	before := reflect.ValueOf(def.gateLimits())
	for i := range before.NumField() {
		name := before.Type().Field(i).Name
		known, ok := gateSettings[name]
		switch {
		case !ok:
			t.Errorf("zgate.Config.%s has no setting: make one, or say here why not", name)
			continue
		case (known.key == "") == (known.why == ""):
			t.Errorf("%s: either a setting or a reason", name)
			continue
		case known.why != "":
			continue
		case !keys[known.key]:
			t.Errorf("%s: there is no setting %s", name, known.key)
			continue
		}
		env := []string{settings.EnvName(EnvPrefix, known.key) + "=" + known.value, "ZGAME_GATE_TRUSTED_PROXIES=10.0.0.1"}
		s, err := LoadSettings("", env)
		if err != nil {
			t.Errorf("%s: %v", known.key, err)
			continue
		}
		after := reflect.ValueOf(s.gateLimits())
		for j := range after.NumField() {
			f := after.Type().Field(j)
			if !f.Type.Comparable() || f.Type.Kind() == reflect.Interface {
				continue
			}
			if changed := after.Field(j).Interface() != before.Field(j).Interface(); changed != (j == i) {
				t.Errorf("%s=%s: %s changed is %v", known.key, known.value, f.Name, changed)
			}
		}
	}
	for name := range gateSettings {
		if !before.FieldByName(name).IsValid() {
			t.Errorf("zgate.Config has no field %s", name)
		}
	}
}

// The least and the most that a setting may be is what the gate takes; less and more is an error that names the setting, what was expected, and the value.
func TestGateSettingsHaveBounds(t *testing.T) {
	t.Parallel()
	def := DefaultSettings()
	// What depends on it is to be as free as can be.
	free := map[string][]string{
		"gate.max_message": {"gate.byte_burst=1073741824"}, "gate.byte_burst": {"gate.max_message=125"},
		"gate.keep_bytes": {"gate.queue_bytes=1073741824"}, "gate.queue_bytes": {"gate.keep_bytes=1024"},
		"gate.heartbeat": {"gate.silence_timeout=0s"}, "gate.request_timeout": {"gate.max_request_timeout=1h"},
	}
	try := func(key, value string) (Settings, error) {
		env := []string{settings.EnvName(EnvPrefix, key) + "=" + value}
		for _, other := range free[key] {
			k, v, _ := strings.Cut(other, "=")
			env = append(env, settings.EnvName(EnvPrefix, k)+"="+v)
		}
		return LoadSettings("", env)
	}
	good := func(key, value string) {
		t.Helper()
		s, err := try(key, value)
		if err != nil {
			t.Errorf("%s=%s: %v", key, value, err)
			return
		}
		c := s.gateLimits()
		c.Node, c.Auth = zmsg.NodeRef{ID: "a", Epoch: 1}, zgate.DevAuth{}
		if _, err := zgate.New(c); err != nil {
			t.Errorf("%s=%s is taken, and the gate does not take it: %v", key, value, err)
		}
	}
	bad := func(key, value, expected string) {
		t.Helper()
		if _, err := try(key, value); err == nil || !strings.Contains(err.Error(), key+" "+value+": expected "+expected) {
			t.Errorf("%s=%s: %v, expected it to say %q", key, value, err, expected)
		}
	}
	for _, n := range def.gateNumbers() {
		expected := fmt.Sprintf("%d to %d", n.low, n.high)
		good(n.key, strconv.Itoa(n.high))
		bad(n.key, strconv.Itoa(n.high+1), expected)
		bad(n.key, strconv.Itoa(n.low-1), expected)
		bad(n.key, "-2", expected)
		if n.key != "gate.byte_burst" { // at least max_message
			good(n.key, strconv.Itoa(n.low))
		}
		if n.unlimited {
			good(n.key, "-1")
		}
	}
	for _, d := range def.gateTimes() {
		good(d.key, "1ms")
		good(d.key, "1h0m0s")
		bad(d.key, "999\u00b5s", "1ms to 1h")
		bad(d.key, "1h0m0.001s", "1ms to 1h")
	}
	for _, d := range []struct{ key, value, expected string }{
		{"gate.silence_timeout", "29s", "1.5 times gate.heartbeat (30s) to 2h"},
		{"gate.max_request_timeout", "9s", "gate.request_timeout (10s) to 24h"},
		{"gate.resume_window", "1h0m1s", "1ms to 1h, or 0"},
		{"drain.timeout", "2h0m1s", "0s to 2h"},
		{"drain.delay", "1h0m1s", "0s to 1h"},
		{"gate.keep_bytes", "1073741825", "1024 to"},
	} {
		bad(d.key, d.value, d.expected)
	}
	good("gate.silence_timeout", (30 * time.Second).String())
	good("gate.silence_timeout", "2h0m0s")
	good("drain.timeout", "2h0m0s")
	good("drain.timeout", "0s")
	good("drain.delay", "0s")
	if _, err := LoadSettings("", []string{"ZGAME_GATE_KEEP_BYTES=2000", "ZGAME_GATE_QUEUE_BYTES=4096"}); err != nil {
		t.Error(err)
	}
	if _, err := LoadSettings("", []string{"ZGAME_GATE_KEEP_BYTES=5000", "ZGAME_GATE_QUEUE_BYTES=4096"}); err == nil || !strings.Contains(err.Error(), "gate.keep_bytes 5000: expected at most gate.queue_bytes (4096)") {
		t.Error(err)
	}
	if _, err := LoadSettings("", []string{"ZGAME_GATE_ORIGINS=https://a/b"}); err == nil || !strings.Contains(err.Error(), "without a path") {
		t.Error(err)
	}
}
