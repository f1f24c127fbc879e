package znode

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"zgame/zbus/natsbus"
)

// natsFaults returns what is wrong with how the node is to be let in by NATS.
func (s *Settings) natsFaults() (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	n := &s.NATS
	var ways []string
	for _, way := range []struct{ key, value string }{
		{"nats.user", n.User}, {"nats.token", n.Token}, {"nats.credentials", n.Credentials}, {"nats.nkey", n.NKey},
	} {
		if way.value != "" {
			ways = append(ways, way.key)
		}
	}
	if len(ways) > 1 {
		fault("%s are set: expected at most one of them", strings.Join(ways, " and "))
	}
	if n.Password != "" && n.User == "" {
		fault("nats.password without nats.user: expected both or none")
	}
	if (n.TLS.Cert == "") != (n.TLS.Key == "") {
		fault("nats.tls: cert and key belong together; only one is set")
	}
	if n.PingInterval < 100*time.Millisecond {
		fault("nats.ping_interval %s: expected at least 100ms", n.PingInterval)
	}
	if n.MaxPings < 1 {
		fault("nats.max_pings %d: expected a number above 0", n.MaxPings)
	}
	return faults
}

// natsConfig is how the node connects to NATS.
func natsConfig(s *Settings, log *slog.Logger) natsbus.Config {
	n := &s.NATS
	return natsbus.Config{
		URL: n.URL, Name: s.Node.ID, User: n.User, Password: n.Password, Token: n.Token, Creds: n.Credentials, NKey: n.NKey,
		CAFile: n.TLS.CA, CertFile: n.TLS.Cert, KeyFile: n.TLS.Key, Insecure: n.TLS.Insecure,
		PingInterval: n.PingInterval, MaxPings: n.MaxPings, Logger: log,
	}
}

// natsKeys are the settings behind the fields of natsbus.Config.
var natsKeys = map[string]string{
	"URL": "nats.url", "User": "nats.user", "Password": "nats.password", "Token": "nats.token", "Creds": "nats.credentials", "NKey": "nats.nkey",
	"CAFile": "nats.tls.ca", "CertFile": "nats.tls.cert", "KeyFile": "nats.tls.key",
}

// natsHint adds to err which settings to look at, where it says what was refused.
func natsHint(err error) error {
	refused, ok := errors.AsType[*natsbus.RefusedError](err)
	if !ok {
		return err
	}
	var keys []string
	for _, field := range refused.Fields {
		keys = append(keys, natsKeys[field])
	}
	return fmt.Errorf("%w\n  look at %s", err, strings.Join(keys, ", "))
}
