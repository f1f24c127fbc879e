package zgate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"zgame/zmetrics"
	"zgame/zmsg"
	"zgame/zroute"
	"zgame/ztrace"
)

// Config says what a gate is. Node, Auth and one of Addr, Listener, TCPAddr and TCPListener are needed; everything else has a default.
//
// Limits that are counts or sizes: 0 takes the default, -1 means no limit where the field says so.
type Config struct {
	// Node is the node that the gate belongs to: it is part of every SessionRef, and Welcome tells clients its epoch.
	Node zmsg.NodeRef

	// Addr is where the gate listens, "host:port"; port 0 takes a free one, see Gate.Addr. Not used with Listener.
	Addr string
	// Listener is listened on instead of Addr; the gate closes it. For tests in memory and sockets from outside.
	Listener net.Listener
	// TCPAddr is where the gate listens for clients over bare TCP, with packets behind their length: zclient's tcp://. Empty: nowhere. TLS,
	// proxies and limits are those of websockets. TCPListener is listened on instead, as Listener.
	TCPAddr     string
	TCPListener net.Listener
	// TLS makes the gate speak TLS (wss, tcps); see NewCertFiles. Nil: plain text, which takes an address of this machine, or InsecurePlaintext.
	TLS *tls.Config
	// InsecurePlaintext allows plain text on addresses that other machines reach: behind a proxy that ends TLS. Whoever stands between
	// reads, and writes, everything else.
	InsecurePlaintext bool
	// TrustedProxies are the addresses whose word is taken for who a client is, in X-Forwarded-For. Their connections count against
	// MaxPerIP as their clients'. Empty: nobody's.
	TrustedProxies []netip.Prefix
	// ProxyProtocol says that each connection of TrustedProxies begins with a header of the PROXY protocol, version 1 or 2; one that does
	// not is closed.
	ProxyProtocol bool
	// Path is the only path of the websocket; others are answered 404. Defaults to "/ws".
	Path string

	// Auth decides who a client is. DevAuth takes every name, for development.
	Auth Authenticator
	// Directory knows the sessions of each user over all gates, and decides about logins. Nil: each session stands for itself.
	Directory Directory
	// UserSessions is how many sessions a user may have at once, over all gates. Defaults to 1; -1: no limit.
	UserSessions int
	// SecondLogin says what becomes of one more. Defaults to ReplaceOldest.
	SecondLogin LoginPolicy
	// Handlers run in the gate itself, by message id, ahead of every route.
	Handlers map[uint32]Handler
	// Dispatcher takes what the gate does not handle. Nil: everything else is "no route".
	Dispatcher Dispatcher
	// OnNoRoute is asked about what nobody takes. Nil: such requests are answered CodeNoRoute.
	OnNoRoute NoRouteHook
	// Groups subscribes to groups of other nodes. Nil: groups reach the sessions of this gate only.
	Groups Groups
	// Tell hands a message to an actor, here or elsewhere: SessionClosed to those who watch a session. It takes the
	// message when it returns nil and must not block. Nil: Watch is refused.
	Tell func(to zmsg.Address, m *zmsg.Message) error
	// Deliver takes a client's message to the actor or object that its session's route names (SetRoute). It takes m, with the reply that is owed, when
	// it returns nil, and must not block. Nil: SetRoute is refused.
	Deliver func(to *zmsg.SessionRoute, m *zmsg.Message) error
	// Resent takes a request that a client has sent before, mostly at a gate that is gone, and that this gate knows nothing of, to who can tell whether it has
	// run: it runs there if it has not, and is answered as it was if it has. It takes m, with the reply that is owed, when it returns nil, and must not
	// block. An error, and an outcome, of CodeUnknownOutcome says that nobody can tell; what is NotExecuted is tried again. Nil: all such requests end as unknown.
	Resent func(m *zmsg.Message) error
	// Ack tells a node how a session operation ended that it wants to know about (Envelope.Request is not 0); err is
	// nil when it is in force, for a Join: when what is published from now on arrives. It must not block. May be nil.
	Ack func(to zmsg.NodeRef, request uint64, err error)

	// Peers is the way to other gates, which sessions are handed over to and come from. Nil: they do not leave this gate.
	Peers Peers
	// HandoverTime is how long another gate has to answer when it is asked for a session. Then it counts as gone. Defaults to 5 s.
	HandoverTime time.Duration
	// DrainHandover is how long Shutdown waits until other gates have taken its sessions, where there are such gates. Defaults to 10 s.
	DrainHandover time.Duration

	// BeforeLogin are the message ids that a client may send before it has logged in: requests without a user and a session
	// to push to. They have limits of their own: 4 KiB, 8 in flight, 20 a second. Any other id ends such a connection (3500).
	BeforeLogin []uint32

	// AllowText lets clients speak protobuf JSON in text messages (subprotocol zgame.v1.json). Meant for development.
	AllowText bool
	// Registry turns JSON bodies into types and back for text clients. Nil: they must send bodies in base64.
	Registry *zmsg.Registry
	// AllowedOrigins are the origins ("https://game.example") whose pages may connect, beside the gate's own host;
	// "*" allows every one. Clients without an Origin header, which are no browsers, are always let in.
	AllowedOrigins []string

	// MaxSessions is how many sessions there may be. Defaults to 20,000.
	MaxSessions int
	// MaxUnauthenticated is how many connections may be open that are no session yet. Defaults to 1,000.
	MaxUnauthenticated int
	// MaxPerIP is how many connections one address may have (IPv6: one /64). Defaults to 1,000; -1: no limit.
	MaxPerIP int
	// MaxMessage is the largest message of a client, in bytes; a larger one is refused from its header alone.
	// Defaults to 64 KiB. Before login it is 4 KiB.
	MaxMessage int
	// MaxInFlight is how many requests of one session may wait for their response. Defaults to 128, at most 4,096.
	MaxInFlight int
	// MaxGroups is how many groups one session may be in. Defaults to 256.
	MaxGroups int
	// MaxWatchers is how many actors may watch one session. Defaults to 256.
	MaxWatchers int
	// MaxBindings is how many objects one session may be bound to; another one is told that the session has ended. Defaults to 64.
	MaxBindings int
	// MaxRoutes is how many message ids of one session may have a route of their own (SetRoute). Defaults to 256.
	MaxRoutes int
	// Rate and Burst are the token bucket of one session's requests: so many a second, so many at once. Requests
	// above it are answered CodeRateLimited, the first with a Warning before it, and a session that goes on for as many as
	// Burst is closed (3009). Heartbeats do not count, but have a bucket of their own. Defaults to 1,000 and 2,000; Rate -1: no limit.
	Rate  int
	Burst int
	// ByteRate and ByteBurst are likewise the token bucket of the bytes of a session's messages. What comes above it is
	// answered CodeRateLimited, and a session that goes on for ByteBurst is closed (3009). Defaults to 1 MiB a second and
	// 4 MiB, at least MaxMessage; ByteRate -1: no limit.
	ByteRate  int
	ByteBurst int
	// AcceptRate and AcceptBurst are the token bucket of new connections, of all addresses together; what is above it is closed at
	// once. Connections that another limit refuses do not count. Defaults to 2,000 a second and 4,000; AcceptRate -1: no limit.
	AcceptRate  int
	AcceptBurst int
	// Compression lets websocket clients send and receive compressed messages, where they offer to (permessage-deflate, RFC 7692; browsers do). It costs
	// CPU, and memory only while a message is at work. The limits of messages hold for what they inflate to.
	Compression bool
	// CompressFrom is how large what is sent must be to be compressed, in bytes: a response, or the body of a push. Defaults to 512.
	CompressFrom int
	// QueueBytes is how much may wait for a client that does not read; more closes it as slow (3008). Volatile pushes
	// are dropped from a quarter of it on. One frame of any size up to MaxSend fits into an empty queue. Defaults to 1 MiB.
	QueueBytes int
	// MaxSend is the largest body that is sent to a client, in bytes. A larger response becomes CodeTooLarge, a larger
	// push is refused with zmsg.ErrTooLarge: a client that is sent more than it takes closes the connection. Defaults
	// to 15 MiB, a little less than what zclient takes.
	MaxSend int

	// ResumeWindow is how long a session whose connection broke waits for its client to come back; a client may ask for less. Clients that do not
	// ask for it, and all with -1, have sessions that end with their connection. Defaults to 30 s.
	ResumeWindow time.Duration
	// MaxSuspended is how many sessions may wait for their clients at once; those above it end. Defaults to 20,000.
	MaxSuspended int
	// KeepCount, KeepBytes and KeepTime bound what is kept of what a session was sent, until its client says that it has arrived: frames, bytes, and for how long. What
	// is above them goes, the oldest first; a client that comes back and has not got it is told so. Default to 4,096, 256 KiB and 1 minute. KeepBytes is at
	// most QueueBytes.
	KeepCount int
	KeepBytes int
	KeepTime  time.Duration
	// MaxKeepBytes bounds what is kept of all sessions together: from half of it on, each session gets no more than its share of the other
	// half. Defaults to 256 MiB.
	MaxKeepBytes int

	// HandshakeTimeout is for TLS and HTTP together. Defaults to 5 s.
	HandshakeTimeout time.Duration
	// LoginTimeout is from then to the Hello. Defaults to 5 s.
	LoginTimeout time.Duration
	// AuthTimeout is what the Authenticator has, and after it the Directory. Defaults to 5 s.
	AuthTimeout time.Duration
	// Heartbeat is after how long a silence the client is to send a Ping (Welcome tells it). A quarter later, the gate
	// sends one of its own. Defaults to 20 s.
	Heartbeat time.Duration
	// Timeout is the silence after which a connection is closed (3003). At least 1.5 Heartbeat. Defaults to 2 Heartbeat.
	Timeout time.Duration
	// QueueAge is how long the oldest byte may wait for a client that does not read, which is closed as slow (3008)
	// then. Defaults to 5 s.
	QueueAge time.Duration
	// CloseTimeout is what a closing connection has to take its last frames and close on its side. Defaults to 1 s.
	CloseTimeout time.Duration
	// RequestTimeout is the deadline of a request that names none; MaxRequestTimeout bounds those that do. A request
	// whose deadline passes is answered CodeTimeout by the gate. Default to 10 s and 60 s.
	RequestTimeout    time.Duration
	MaxRequestTimeout time.Duration
	// JoinTimeout is how long Join waits for the subscription of a group's first member. Defaults to 2 s.
	JoinTimeout time.Duration
	// PushWait is how long the pushes of an object's new owner wait for those of the old one that have not come; then clients are told
	// of a gap. Defaults to 1 s.
	PushWait time.Duration
	// DrainTime is how long Shutdown waits for requests in flight before it closes sessions. Defaults to 2 s.
	DrainTime time.Duration
	// DrainSpread is the largest delay that Shutdown asks of clients before they connect again; each gets a random
	// part of it, so that they do not all come at once. Defaults to 5 s.
	DrainSpread time.Duration

	// Logger gets what happens; nil discards it.
	Logger *slog.Logger
	// Metrics counts what happens; nil counts into the void.
	Metrics *zmetrics.Gate
	// Tracer says which requests are recorded, and takes their spans and those of pushes; nil: none are.
	Tracer *ztrace.Tracer
}

// Dispatcher routes what clients send to actors of this node and others: design.md section 3, steps 3 and 4.
// zroute.Dispatcher satisfies it. It runs on the connection's reading goroutine and must not block.
//
// With zroute.OnLocal, OnRemote, Parked and OnObject it has taken m; else m stays with the gate, which answers.
type Dispatcher interface {
	Dispatch(m *zmsg.Message) (r zroute.Result, tried int, err error)
}

// Groups subscribes this node to groups. zbus.Link satisfies it. The calls for one group never overlap, and the last
// one stands for what the gate wants; JoinGroup returns once what is published anywhere afterwards arrives.
type Groups interface {
	JoinGroup(ctx context.Context, group string) error
	LeaveGroup(group string) error
}

// Handler runs a message in the gate, on the connection's reading goroutine: it must not block. It owns m: it ends a
// request with m.Reply or m.ReplyError, now or later, from any goroutine, and releases m. A request that it forgets
// is answered CodeTimeout; one in which it panics is answered CodePanicked.
type Handler func(s *Session, m *zmsg.Message)

// NoRouteHook decides about a message that nobody takes; tried is how many nodes were asked in vain. It runs on the
// connection's reading goroutine, must not block and must not keep m.
//
//   - handled with a reply: it is sent with the request's seq.
//   - handled without: if the hook took the reply slot (m.Reply, m.ReplyError, m.TakeReplier), it answers by itself;
//     if not, it has decided on silence.
//   - not handled: the gate answers CodeNoRoute.
type NoRouteHook func(m *zmsg.Message, tried int) (reply *zmsg.Reply, handled bool)

// Limits of the protocol that are no settings.
const (
	maxHeaderBytes   = 8 << 10 // HTTP request line and headers
	maxHello         = 4 << 10 // a message before login
	maxFrames        = 64      // frames in a packet
	maxFragments     = 64      // fragments of a websocket message
	maxInFlightBound = 4096    // for MaxInFlight: slots are numbered in 12 bits of a token
	maxGroupName     = 200     // bytes
	controlRate      = 20      // heartbeats and control frames per second
	controlBurst     = 100
	guestInFlight    = 8 // requests before login; their rate is that of control frames
	wireVersion      = 1 // minor version, for Welcome
)

func (c Config) withDefaults() Config {
	set(&c.Path, "/ws")
	set(&c.UserSessions, 1)
	set(&c.MaxSessions, 20_000)
	set(&c.MaxUnauthenticated, 1_000)
	set(&c.MaxPerIP, 1_000)
	set(&c.MaxMessage, 64<<10)
	set(&c.MaxInFlight, 128)
	set(&c.MaxGroups, 256)
	set(&c.MaxWatchers, 256)
	set(&c.MaxBindings, 64)
	set(&c.MaxRoutes, 256)
	set(&c.Rate, 1_000)
	set(&c.Burst, 2_000)
	set(&c.ByteRate, 1<<20)
	set(&c.ByteBurst, max(4<<20, c.MaxMessage))
	set(&c.AcceptRate, 2_000)
	set(&c.AcceptBurst, 4_000)
	set(&c.CompressFrom, 512)
	set(&c.QueueBytes, 1<<20)
	set(&c.MaxSend, 15<<20)
	set(&c.ResumeWindow, 30*time.Second)
	set(&c.MaxSuspended, 20_000)
	set(&c.KeepCount, 4096)
	set(&c.KeepBytes, min(256<<10, c.QueueBytes))
	set(&c.KeepTime, time.Minute)
	set(&c.MaxKeepBytes, 256<<20)
	set(&c.HandshakeTimeout, 5*time.Second)
	set(&c.LoginTimeout, 5*time.Second)
	set(&c.AuthTimeout, 5*time.Second)
	set(&c.Heartbeat, 20*time.Second)
	set(&c.Timeout, 2*c.Heartbeat)
	set(&c.QueueAge, 5*time.Second)
	set(&c.CloseTimeout, time.Second)
	set(&c.RequestTimeout, 10*time.Second)
	set(&c.MaxRequestTimeout, 60*time.Second)
	set(&c.JoinTimeout, 2*time.Second)
	set(&c.PushWait, time.Second)
	set(&c.HandoverTime, 5*time.Second)
	set(&c.DrainHandover, 10*time.Second)
	set(&c.DrainTime, 2*time.Second)
	set(&c.DrainSpread, 5*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = zmetrics.NewGate(nil)
	}
	return c
}

func set[T comparable](field *T, def T) {
	var zero T
	if *field == zero {
		*field = def
	}
}

// validate reports every fault of c, which has its defaults.
func (c Config) validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("zgate: "+format, args...))
	}
	if c.Node.ID == "" || c.Node.Epoch == 0 {
		fault("Node is %q epoch %d: expected an id and an epoch that is not 0", c.Node.ID, c.Node.Epoch)
	}
	if c.Auth == nil {
		fault("Auth is nil: expected an Authenticator, DevAuth{} for development")
	}
	if c.Addr+c.TCPAddr == "" && c.Listener == nil && c.TCPListener == nil {
		fault("Addr is empty, and so is TCPAddr: expected host:port, or a Listener")
	}
	if why := plaintextFault(c.Addr, c.Listener); why != "" && c.TLS == nil && !c.InsecurePlaintext {
		fault("Addr %s", why)
	}
	if why := plaintextFault(c.TCPAddr, c.TCPListener); why != "" && c.TLS == nil && !c.InsecurePlaintext {
		fault("TCPAddr %s", why)
	}
	if c.TLS != nil && len(c.TLS.Certificates) == 0 && c.TLS.GetCertificate == nil && c.TLS.GetConfigForClient == nil {
		fault("TLS has no certificate: expected Certificates or GetCertificate")
	}
	if c.ProxyProtocol && len(c.TrustedProxies) == 0 {
		fault("ProxyProtocol is set and TrustedProxies is empty: expected the addresses of the proxies")
	}
	for _, p := range c.TrustedProxies {
		if !p.IsValid() {
			fault("TrustedProxies has an invalid prefix")
		}
	}
	if !strings.HasPrefix(c.Path, "/") {
		fault("Path is %q: expected it to begin with a slash", c.Path)
	}
	for id, h := range c.Handlers {
		if id == 0 || h == nil {
			fault("Handlers has the id %d with a nil or unusable handler: expected an id from 1 on, and a function", id)
		}
	}
	if slices.Contains(c.BeforeLogin, 0) {
		fault("BeforeLogin has the id 0: expected ids from 1 on")
	}
	if c.SecondLogin > RefuseNewest {
		fault("SecondLogin is %d: expected ReplaceOldest or RefuseNewest", c.SecondLogin)
	}
	for _, o := range c.AllowedOrigins {
		if u, err := url.Parse(o); o != "*" && (err != nil || u.Scheme == "" || u.Host == "" || u.Path != "") {
			fault("AllowedOrigins has %q: expected scheme://host or scheme://host:port, or *", o)
		}
	}
	for _, n := range []struct {
		name         string
		value        int
		lowest, most int
	}{
		{"MaxSessions", c.MaxSessions, 1, 1 << 30},
		{"UserSessions", c.UserSessions, -1, 1000},
		{"MaxUnauthenticated", c.MaxUnauthenticated, 1, 1 << 30},
		{"MaxPerIP", c.MaxPerIP, -1, 1 << 30},
		{"MaxMessage", c.MaxMessage, 125, 64 << 20},
		{"MaxInFlight", c.MaxInFlight, 1, maxInFlightBound},
		{"MaxGroups", c.MaxGroups, 1, 1 << 20},
		{"MaxWatchers", c.MaxWatchers, 1, 1 << 20},
		{"MaxBindings", c.MaxBindings, 1, 1 << 20},
		{"MaxRoutes", c.MaxRoutes, 1, 1 << 16},
		{"Rate", c.Rate, -1, 1 << 30},
		{"Burst", c.Burst, 1, 1 << 30},
		{"ByteRate", c.ByteRate, -1, 1 << 30},
		{"ByteBurst", c.ByteBurst, c.MaxMessage, 1 << 30},
		{"AcceptRate", c.AcceptRate, -1, 1 << 30},
		{"AcceptBurst", c.AcceptBurst, 1, 1 << 30},
		{"CompressFrom", c.CompressFrom, 1, 1 << 30},
		{"QueueBytes", c.QueueBytes, 4 << 10, 1 << 30},
		{"MaxSend", c.MaxSend, 4 << 10, 1 << 30},
		{"MaxSuspended", c.MaxSuspended, 1, 1 << 30},
		{"KeepCount", c.KeepCount, 1, 1 << 20},
		{"KeepBytes", c.KeepBytes, 1 << 10, c.QueueBytes},
		{"MaxKeepBytes", c.MaxKeepBytes, 1 << 10, 1 << 40},
	} {
		if n.value < n.lowest || n.value > n.most {
			fault("%s is %d: expected %d to %d", n.name, n.value, n.lowest, n.most)
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"HandshakeTimeout", c.HandshakeTimeout},
		{"LoginTimeout", c.LoginTimeout},
		{"AuthTimeout", c.AuthTimeout},
		{"Heartbeat", c.Heartbeat},
		{"QueueAge", c.QueueAge},
		{"CloseTimeout", c.CloseTimeout},
		{"RequestTimeout", c.RequestTimeout},
		{"JoinTimeout", c.JoinTimeout},
		{"PushWait", c.PushWait},
		{"KeepTime", c.KeepTime},
		{"DrainTime", c.DrainTime},
		{"DrainSpread", c.DrainSpread},
	} {
		if d.value < time.Millisecond || d.value > time.Hour {
			fault("%s is %v: expected 1ms to 1h", d.name, d.value)
		}
	}
	if c.Timeout < c.Heartbeat*3/2 || c.Timeout > 2*time.Hour {
		fault("Timeout is %v: expected 1.5 times Heartbeat (%v) to 2h", c.Timeout, c.Heartbeat*3/2)
	}
	if c.ResumeWindow > time.Hour {
		fault("ResumeWindow is %v: expected up to 1h, or -1", c.ResumeWindow)
	}
	if c.MaxRequestTimeout < c.RequestTimeout {
		fault("MaxRequestTimeout is %v: expected at least RequestTimeout (%v)", c.MaxRequestTimeout, c.RequestTimeout)
	}
	return errors.Join(faults...)
}
