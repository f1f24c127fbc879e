package znode

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"zgame/internal/settings"
	"zgame/zdiscovery"
	"zgame/zrouter"
)

// EnvPrefix opens the name of every environment variable of a node: gate.address is ZGAME_GATE_ADDRESS.
const EnvPrefix = "ZGAME"

// Settings are what an operator decides about a node. DefaultSettings has the defaults, LoadSettings reads a file and
// the environment, Text prints them. The yaml tags are the keys of gameserver.yaml.
type Settings struct {
	Node struct {
		ID           string        `yaml:"id" help:"unique in the cluster; default: the host's name"`
		Cluster      string        `yaml:"cluster" help:"prefix of everything on shared servers: lets clusters share them"`
		Zone         string        `yaml:"zone" help:"where it runs; strategies may prefer nodes of their zone"`
		Weight       int           `yaml:"weight" help:"its share next to the others' weights"`
		Labels       []string      `yaml:"labels" help:"key=value, for strategies of the application"`
		Version      string        `yaml:"version" help:"of the program, for canaries; default: as built"`
		LockDir      string        `yaml:"lock_dir" help:"a node that is started again on its machine takes over at once, by a file here; empty: it waits for the old lease"`
		LoadInterval time.Duration `yaml:"load_interval" help:"how often the others may be told how busy the node is; 0: never"`
	} `yaml:"node"`
	Log struct {
		Level  string `yaml:"level" help:"debug, info, warn, error"`
		Format string `yaml:"format" help:"text, json"`
	} `yaml:"log"`
	Gate struct {
		Enabled     bool     `yaml:"enabled" help:"false: no clients connect to this node"`
		Address     string   `yaml:"address" help:"host:port to listen on"`
		URL         string   `yaml:"url" help:"how clients reach this gate; default: ws://localhost:<port>/ws"`
		TCPAddress  string   `yaml:"tcp_address" help:"host:port for clients over bare TCP (tcp://, tcps:// with tls); empty: none"`
		Origins     []string `yaml:"origins" help:"browser origins allowed besides the gate's own host"`
		Text        bool     `yaml:"text" help:"allow JSON text messages (zgame.v1.json)"`
		MaxSessions int      `yaml:"max_sessions" help:"clients that are logged in at once"`
		MaxMessage  int      `yaml:"max_message" help:"bytes of one client message"`
		MaxSend     int      `yaml:"max_send" help:"bytes of one body to a client; clients of ours take 16 MiB"`

		MaxUnauthenticated int `yaml:"max_unauthenticated" help:"connections that are no session yet"`
		MaxPerAddress      int `yaml:"max_per_address" help:"connections of one address (IPv6: one /64); -1: no limit"`
		AcceptRate         int `yaml:"accept_rate" help:"new connections per second, of all addresses together; -1: no limit"`
		AcceptBurst        int `yaml:"accept_burst" help:"that many at once"`
		Rate               int `yaml:"rate" help:"requests per second of one session, heartbeats aside; -1: no limit"`
		Burst              int `yaml:"burst" help:"that many at once; who goes on for as many as are refused is closed"`
		ByteRate           int `yaml:"byte_rate" help:"bytes per second of one session's messages; -1: no limit"`
		ByteBurst          int `yaml:"byte_burst" help:"that many at once, at least max_message; likewise"`
		MaxInFlight        int `yaml:"max_in_flight" help:"requests of one session that may wait for their response"`
		MaxGroups          int `yaml:"max_groups" help:"groups that one session may be in"`
		MaxWatchers        int `yaml:"max_watchers" help:"actors that may watch one session"`
		MaxBindings        int `yaml:"max_bindings" help:"objects that one session may be bound to"`
		MaxRoutes          int `yaml:"max_routes" help:"message ids of one session that may have a route of their own"`

		QueueBytes int           `yaml:"queue_bytes" help:"what may wait for a client that does not read; more closes it as slow"`
		QueueAge   time.Duration `yaml:"queue_age" help:"and for how long the oldest of it"`

		HandshakeTimeout  time.Duration `yaml:"handshake_timeout" help:"for TLS and HTTP together"`
		LoginTimeout      time.Duration `yaml:"login_timeout" help:"from then to the client's Hello"`
		AuthTimeout       time.Duration `yaml:"auth_timeout" help:"for whoever decides about the login, and for the directory after it"`
		Heartbeat         time.Duration `yaml:"heartbeat" help:"after so long a silence a client is to show that it is there; it is told"`
		SilenceTimeout    time.Duration `yaml:"silence_timeout" help:"the silence after which it is closed, at least 1.5 times heartbeat; 0: twice heartbeat"`
		CloseTimeout      time.Duration `yaml:"close_timeout" help:"for a client that is closed to take its last messages"`
		RequestTimeout    time.Duration `yaml:"request_timeout" help:"for requests whose client does not say"`
		MaxRequestTimeout time.Duration `yaml:"max_request_timeout" help:"for those whose client does"`
		JoinTimeout       time.Duration `yaml:"join_timeout" help:"how long the first member of a group waits for its subscription at NATS"`

		Compression  bool `yaml:"compression" help:"websocket clients that offer it (browsers do) send and get compressed messages; costs CPU"`
		CompressFrom int  `yaml:"compress_from" help:"bytes of a response, or of a push's body, from which on it is compressed"`

		PushWait time.Duration `yaml:"push_wait" help:"how long pushes of an object's new owner wait for the old one's last; then clients are told of a gap"`

		ResumeWindow time.Duration `yaml:"resume_window" help:"how long a session waits for a client whose connection broke; 0: not at all"`
		HandoverTime time.Duration `yaml:"handover_time" help:"how long another gate has to answer when it is asked for a session"`
		MaxSuspended int           `yaml:"max_suspended" help:"sessions that may wait for their clients at once"`
		KeepCount    int           `yaml:"keep_count" help:"messages that a session keeps of what it has sent until its client has them"`
		KeepBytes    int           `yaml:"keep_bytes" help:"and what they come to, at most queue_bytes"`
		MaxKeepBytes int           `yaml:"max_keep_bytes" help:"likewise, of all sessions together"`
		KeepTime     time.Duration `yaml:"keep_time" help:"and for how long, at most"`
		Directory    bool          `yaml:"directory" help:"the cluster knows which sessions each user has; false: this gate asks nobody about logins"`
		UserSessions int           `yaml:"user_sessions" help:"sessions that a user may have at once, over all gates; -1: no limit"`
		SecondLogin  string        `yaml:"second_login" help:"with one more: replace (the oldest is closed) or reject (the new one is)"`

		Auth AuthSettings `yaml:"auth"`
		TLS  struct {
			Cert string `yaml:"cert" help:"PEM file; with key: the gate speaks TLS. Both are read again when they change"`
			Key  string `yaml:"key" help:"PEM file"`
		} `yaml:"tls"`
		InsecurePlaintext bool     `yaml:"insecure_plaintext" help:"without tls, listen where other machines connect: behind a proxy that ends TLS"`
		TrustedProxies    []string `yaml:"trusted_proxies" help:"addresses or networks (10.0.0.0/8) whose X-Forwarded-For is believed"`
		ProxyProtocol     bool     `yaml:"proxy_protocol" help:"their connections begin with a PROXY header, version 1 or 2; others' do not"`
	} `yaml:"gate"`
	Page struct {
		Address string `yaml:"address" help:"host:port of the application's web page; empty: none"`
	} `yaml:"page"`
	Admin struct {
		Address string `yaml:"address" help:"host:port of /metrics, /livez, /readyz; empty: none"`
		URL     string `yaml:"url" help:"host:port by which operators' machines reach it; default: localhost:<port>"`
		Pprof   bool   `yaml:"pprof" help:"serve /debug/pprof/ there"`
		Call    bool   `yaml:"call" help:"operators may send any message to actors and objects there (the command call)"`
	} `yaml:"admin"`
	Console struct {
		Address           string `yaml:"address" help:"host:port of the web console of the cluster; empty: none"`
		ReadToken         string `yaml:"read_token" secret:"true" help:"who has it may look; at least 16 characters; empty: nobody. All nodes with a console have the same"`
		OperatorToken     string `yaml:"operator_token" secret:"true" help:"who has it may look, move, drain, kick and call; likewise"`
		InsecurePlaintext bool   `yaml:"insecure_plaintext" help:"listen where other machines connect: behind a proxy that ends TLS"`
	} `yaml:"console"`
	NATS struct {
		URL          string        `yaml:"url" help:"several with commas between; tls:// insists on TLS"`
		User         string        `yaml:"user" help:"where the server asks for one"`
		Password     string        `yaml:"password" secret:"true" help:"that user's"`
		Token        string        `yaml:"token" secret:"true" help:"where the server asks for one instead of user and password"`
		Credentials  string        `yaml:"credentials" help:"file with a user's JWT and NKEY seed, as nsc writes it"`
		NKey         string        `yaml:"nkey" help:"file with an NKEY seed alone"`
		TLS          clientTLS     `yaml:"tls"`
		PingInterval time.Duration `yaml:"ping_interval" help:"how often a connection is checked"`
		MaxPings     int           `yaml:"max_pings" help:"pings without an answer that end it; silence is noticed after (max_pings + 1) x ping_interval at the latest"`
	} `yaml:"nats"`
	Etcd  etcdSettings `yaml:"etcd"`
	Store struct {
		Driver string `yaml:"driver" help:"mongo, kv (NATS JetStream)"`
		Mongo  struct {
			URI        string `yaml:"uri" secret:"true" help:"with replicaSet or several hosts; a standalone server is for development"`
			Database   string `yaml:"database" help:"where the collection is; made where it is not there"`
			Collection string `yaml:"collection" help:"of the objects of all kinds that have no store of their own"`
		} `yaml:"mongo"`
		KV struct {
			Bucket   string `yaml:"bucket" help:"of JetStream KV; made where it is not there"`
			Replicas int    `yaml:"replicas" help:"copies of the bucket in a NATS cluster"`
		} `yaml:"kv"`
	} `yaml:"store"`
	Actors struct {
		Mailbox      int           `yaml:"mailbox" help:"messages that may wait for an actor whose code does not say"`
		AskTimeout   time.Duration `yaml:"ask_timeout" help:"how long a request waits that sets no deadline"`
		HandlerLimit time.Duration `yaml:"handler_limit" help:"a handler that runs longer is logged with its stack"`
		QueueTime    time.Duration `yaml:"queue_time" help:"a mailbox four fifths full for longer is logged"`
		MaxTopics    int           `yaml:"max_topics" help:"topics that this node's actors may subscribe to; each is a subscription at NATS"`
		MaxQueues    int           `yaml:"max_queues" help:"queues of topics that this node's actors may be in; all nodes know each"`
		ActorTopics  int           `yaml:"actor_topics" help:"subscriptions of one actor"`
		Measure      bool          `yaml:"measure" help:"count and time the messages of each type; costs about 220 bytes for each actor and handler"`
		RecordDir    string        `yaml:"record_dir" help:"an actor with a recorder that panics leaves a file here, for the command replay; empty: none"`
		RecordFiles  int           `yaml:"record_files" help:"the oldest go; one actor has a quarter of them"`
		Record       bool          `yaml:"record" help:"every actor has a recorder; needs record_dir"`
	} `yaml:"actors"`
	Logic struct {
		Router RouterSettings `yaml:"router"`
	} `yaml:"logic"`
	Trace struct {
		Enabled bool    `yaml:"enabled" help:"requests can be recorded: a share of them, and those of who is followed (inspect --follow). Spans go to where OTEL_EXPORTER_OTLP_ENDPOINT says"`
		Share   float64 `yaml:"share" help:"of clients' requests, 0 to 1; give all gates the same"`
	} `yaml:"trace"`
	Start struct {
		Timeout time.Duration `yaml:"timeout" help:"servers that do not answer by then fail the start"`
	} `yaml:"start"`
	Drain struct {
		Timeout  time.Duration `yaml:"timeout" help:"how long a stop may take, with the moves of objects to other nodes; below what kills the process, 30s in Kubernetes"`
		Announce time.Duration `yaml:"announce" help:"wait at most so long until all nodes say that they send nothing new here; 0: do not wait"`
		Delay    time.Duration `yaml:"delay" help:"clients are told to reconnect spread over this time"`
		Handover time.Duration `yaml:"handover" help:"wait at most so long, within timeout, until other gates have taken the clients' sessions; 0: do not wait"`
	} `yaml:"drain"`
}

// DefaultSettings returns the settings of a node for which the operator said nothing.
func DefaultSettings() Settings {
	var s Settings
	s.Node.ID = hostID()
	s.Node.Cluster = "zgame"
	s.Node.LockDir = defaultLockDir()
	s.Node.Weight, s.Node.LoadInterval = zdiscovery.DefaultWeight, 5*time.Second
	s.Log.Level, s.Log.Format = "info", "text"
	s.Gate.Enabled, s.Gate.Address = true, "127.0.0.1:7000"
	s.Gate.MaxSessions, s.Gate.MaxMessage = 100_000, 64<<10
	s.Gate.MaxUnauthenticated, s.Gate.MaxPerAddress, s.Gate.AcceptRate, s.Gate.AcceptBurst = 1_000, 1_000, 2_000, 4_000
	s.Gate.Rate, s.Gate.Burst, s.Gate.ByteRate, s.Gate.ByteBurst = 1_000, 2_000, 1<<20, 4<<20
	s.Gate.MaxInFlight, s.Gate.MaxGroups, s.Gate.MaxWatchers, s.Gate.MaxBindings, s.Gate.MaxRoutes = 128, 256, 256, 64, 256
	s.Gate.MaxSend, s.Gate.QueueBytes, s.Gate.QueueAge = 15<<20, 1<<20, 5*time.Second
	s.Gate.HandshakeTimeout, s.Gate.LoginTimeout, s.Gate.AuthTimeout, s.Gate.CloseTimeout = 5*time.Second, 5*time.Second, 5*time.Second, time.Second
	s.Gate.Heartbeat = 20 * time.Second
	s.Gate.RequestTimeout, s.Gate.MaxRequestTimeout, s.Gate.JoinTimeout = 10*time.Second, time.Minute, 2*time.Second
	s.Gate.PushWait, s.Gate.CompressFrom, s.Gate.HandoverTime = time.Second, 512, 5*time.Second
	s.Gate.ResumeWindow, s.Gate.KeepTime = 30*time.Second, time.Minute
	s.Gate.MaxSuspended, s.Gate.KeepCount, s.Gate.KeepBytes, s.Gate.MaxKeepBytes = 20_000, 4096, 256<<10, 256<<20
	s.Gate.Directory, s.Gate.UserSessions, s.Gate.SecondLogin = true, 1, "replace"
	s.Gate.Auth.Skew, s.Gate.Auth.Refresh = 30*time.Second, 5*time.Minute
	s.Admin.Address = "127.0.0.1:9090"
	s.NATS.URL = "nats://127.0.0.1:4222"
	s.NATS.PingInterval, s.NATS.MaxPings = 5*time.Second, 2
	s.Etcd.Endpoints = []string{"http://127.0.0.1:2379"}
	s.Etcd.Lease = 10 * time.Second
	s.Store.Driver = "mongo"
	s.Store.Mongo.URI = "mongodb://127.0.0.1:27017"
	s.Store.Mongo.Database, s.Store.Mongo.Collection = "zgame", "objects"
	s.Store.KV.Bucket, s.Store.KV.Replicas = "zgame_objects", 1
	s.Actors.Mailbox, s.Actors.RecordFiles = 1024, 16
	s.Actors.MaxTopics, s.Actors.MaxQueues, s.Actors.ActorTopics = 1<<16, 256, 1024
	s.Actors.AskTimeout, s.Actors.HandlerLimit, s.Actors.QueueTime = 10*time.Second, 5*time.Second, 10*time.Second
	s.Logic.Router.Settings, s.Logic.Router.Hosts = zrouter.DefaultSettings(), []string{"*"}
	s.Start.Timeout = 10 * time.Second
	s.Drain.Timeout, s.Drain.Announce, s.Drain.Delay, s.Drain.Handover = 25*time.Second, time.Second, 2*time.Second, 10*time.Second
	return s
}

// etcdSettings is where etcd is, and how the node is let in.
type etcdSettings struct {
	Endpoints []string      `yaml:"endpoints" help:"https:// insists on TLS"`
	User      string        `yaml:"user" help:"where the servers ask for one"`
	Password  string        `yaml:"password" secret:"true" help:"that user's"`
	Lease     time.Duration `yaml:"lease" help:"a dead node is gone after this time"`
	TLS       clientTLS     `yaml:"tls"`
}

// clientTLS is how the node knows a server, and is known by it.
type clientTLS struct {
	CA       string `yaml:"ca" help:"PEM file: who may have signed the server's certificate; default: whom the system trusts"`
	Cert     string `yaml:"cert" help:"PEM file; with key: the certificate that the node shows"`
	Key      string `yaml:"key" help:"PEM file"`
	Insecure bool   `yaml:"insecure" help:"take any certificate: for development only"`
}

// maxWeight bounds node.weight: a slip of the hand is not to take everything.
const maxWeight = 10_000

// labels splits key=value. The error names each entry that is not.
func labels(list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	var errs []error
	m := make(map[string]string, len(list))
	for _, l := range list {
		k, v, ok := strings.Cut(l, "=")
		if _, twice := m[k]; !ok || k == "" || twice {
			errs = append(errs, fmt.Errorf("node.labels %q: expected key=value, each key once", l))
			continue
		}
		m[k] = v
	}
	return m, errors.Join(errs...)
}

var nodeID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// hostID makes a node id of the host's name: what an id may not hold becomes '-'.
func hostID() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "node-1"
	}
	id := strings.Map(func(r rune) rune {
		if nodeID.MatchString(string(r)) {
			return r
		}
		return '-'
	}, name)
	return id[:min(len(id), 64)]
}

// LoadSettings returns the defaults, changed by the YAML file at path ("" for none), then by the environment, and
// validated. The error joins every fault.
func LoadSettings(path string, environ []string) (Settings, error) {
	s := DefaultSettings()
	var text []byte
	if path != "" {
		var err error
		if text, err = os.ReadFile(path); err != nil {
			return s, fmt.Errorf("settings file: %w (gameserver run --check without --config prints one to start from)", err)
		}
	}
	return s, errors.Join(settings.Load(&s, text, path, environ, EnvPrefix), s.Validate())
}

// Text returns the settings as YAML with comments, without secrets: passwords, and the credentials in URLs.
func (s *Settings) Text() string { return settings.Text(s) }

// Validate returns every fault of s, joined, or nil.
func (s *Settings) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if !nodeID.MatchString(s.Node.ID) {
		fault("node.id %q: expected 1 to 64 letters, digits, '-' or '_'", s.Node.ID)
	}
	if !nodeID.MatchString(s.Node.Cluster) {
		fault("node.cluster %q: expected 1 to 64 letters, digits, '-' or '_'", s.Node.Cluster)
	}
	if s.Node.Weight < 1 || s.Node.Weight > maxWeight {
		fault("node.weight %d: expected a number from 1 to %d", s.Node.Weight, maxWeight)
	}
	if d := s.Node.LoadInterval; d != 0 && d < time.Second {
		fault("node.load_interval %s: expected 0 (never) or at least 1s: each report is a write that all nodes read", d)
	}
	if _, err := labels(s.Node.Labels); err != nil {
		faults = append(faults, err)
	}
	oneOf := func(key, value string, known ...string) {
		if !slices.Contains(known, value) {
			fault("%s %q: expected %s", key, value, strings.Join(known, ", "))
		}
	}
	oneOf("log.level", s.Log.Level, "debug", "info", "warn", "error")
	oneOf("log.format", s.Log.Format, "text", "json")
	oneOf("store.driver", s.Store.Driver, "mongo", "kv")
	if x := s.Trace.Share; !(x >= 0 && x <= 1) {
		fault("trace.share %v: expected a part of all requests, 0 to 1", x)
	} else if x > 0 && !s.Trace.Enabled {
		fault("trace.share %v without trace.enabled: nothing would be recorded", x)
	}
	address := func(key, value string, mayBeEmpty bool) {
		if err := addressFault(key, value, mayBeEmpty); err != nil {
			faults = append(faults, err)
		}
	}
	address("page.address", s.Page.Address, true)
	address("admin.address", s.Admin.Address, true)
	address("admin.url", s.Admin.URL, true)
	faults = append(faults, s.consoleFaults()...)
	link := func(key, value string, schemes ...string) {
		if err := linkFault(key, value, schemes...); err != nil {
			faults = append(faults, err)
		}
	}
	for u := range strings.SplitSeq(s.NATS.URL, ",") {
		link("nats.url", strings.TrimSpace(u), "nats", "tls", "ws", "wss")
	}
	faults = append(faults, s.gateFaults()...)
	faults = append(faults, s.natsFaults()...)
	faults = append(faults, s.etcdFaults()...)
	if len(s.Etcd.Endpoints) == 0 {
		fault("etcd.endpoints: expected at least one, such as http://127.0.0.1:2379")
	}
	for _, e := range s.Etcd.Endpoints {
		link("etcd.endpoints", e, "http", "https")
	}
	if s.Store.Driver == "mongo" {
		link("store.mongo.uri", s.Store.Mongo.URI, "mongodb", "mongodb+srv")
		if s.Store.Mongo.Database == "" || s.Store.Mongo.Collection == "" {
			fault("store.mongo: database and collection must not be empty")
		}
	}
	if s.Store.Driver == "kv" && !nodeID.MatchString(s.Store.KV.Bucket) {
		fault("store.kv.bucket %q: expected 1 to 64 letters, digits, '-' or '_'", s.Store.KV.Bucket)
	}
	positive := func(key string, n int) {
		if n <= 0 {
			fault("%s %d: expected a number above 0", key, n)
		}
	}
	positive("store.kv.replicas", s.Store.KV.Replicas)
	positive("actors.mailbox", s.Actors.Mailbox)
	positive("actors.max_topics", s.Actors.MaxTopics)
	positive("actors.max_queues", s.Actors.MaxQueues)
	positive("actors.actor_topics", s.Actors.ActorTopics)
	positive("actors.record_files", s.Actors.RecordFiles)
	if s.Actors.Record && s.Actors.RecordDir == "" {
		fault("actors.record: expected actors.record_dir too: where the files go")
	}
	atLeast := func(key string, d, least time.Duration) {
		if d < least {
			fault("%s %s: expected at least %s", key, d, least)
		}
	}
	if err := s.Logic.Router.Validate(); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			fault("logic.router.%s", line)
		}
	}
	if err := s.Logic.Router.FitCalls(s.Actors.AskTimeout); err != nil {
		fault("logic.router: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Logic.Router.Kinds)) {
		if k := s.Logic.Router.Kinds[name]; k.QuiesceTimeout != 0 {
			k.StoreTimeout = s.Logic.Router.StoreTimeout
			if err := k.FitCalls(s.Actors.AskTimeout); err != nil {
				fault("logic.router.kinds.%s: %w", name, err)
			}
		}
	}
	atLeast("etcd.lease", s.Etcd.Lease, 2*time.Second)
	atLeast("actors.ask_timeout", s.Actors.AskTimeout, time.Millisecond)
	atLeast("actors.handler_limit", s.Actors.HandlerLimit, time.Millisecond)
	atLeast("actors.queue_time", s.Actors.QueueTime, time.Millisecond)
	atLeast("start.timeout", s.Start.Timeout, time.Second)
	if d := s.Drain.Timeout; d < 0 || d > 2*time.Hour {
		fault("drain.timeout %s: expected 0s to 2h", d)
	}
	atLeast("drain.announce", s.Drain.Announce, 0)
	if d := s.Drain.Delay; d < 0 || d > time.Hour {
		fault("drain.delay %s: expected 0s to 1h", d)
	}
	atLeast("drain.handover", s.Drain.Handover, 0)
	return errors.Join(faults...)
}

// addressFault says what is wrong with host:port.
func addressFault(key, value string, mayBeEmpty bool) error {
	if value == "" && mayBeEmpty {
		return nil
	}
	if _, port, err := net.SplitHostPort(value); err != nil || !validPort(port) {
		return fmt.Errorf("%s %q: expected host:port or :port, with a port from 0 to 65535", key, value)
	}
	return nil
}

// linkFault says what is wrong with a URL. It may hold a password: it is not printed.
func linkFault(key, value string, schemes ...string) error {
	u, err := url.Parse(value)
	if err != nil || u.Host == "" {
		return fmt.Errorf("%s: expected %s://host:port", key, schemes[0])
	}
	if !slices.Contains(schemes, u.Scheme) {
		return fmt.Errorf("%s: scheme %q: expected %s", key, u.Scheme, strings.Join(schemes, ", "))
	}
	return nil
}

func validPort(s string) bool {
	if s == "" || len(s) > 5 {
		return false
	}
	n := 0
	for _, r := range s {
		if r < '0' || r > '9' {
			return false
		}
		n = n*10 + int(r-'0')
	}
	return n <= 65535
}
