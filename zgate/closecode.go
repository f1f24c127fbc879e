package zgate

// CloseCode is the code of a websocket close frame that the gate sends, and of the Closing frame before it. The
// numbers are part of the wire and never change meaning. Clients go by the range, so that codes of later versions
// are understood:
//
//	1000-2999  the websocket protocol's own: connect again, with back-off
//	3000-3499  connect again, no sooner than Closing.delay_ms says
//	3500-3999  do not connect again: it would end the same way, or somebody wants you out
//	4000-4999  the application's, for Kick: what they mean is between it and its client
type CloseCode uint16

// The codes.
//
//	code  reason            when
//	1002  websocket         the bytes are not websocket frames as RFC 6455 wants them (unmasked, reserved bits, ...)
//	1007  bad_utf8          a text message is not UTF-8
//	1009  too_large         a message is above the limit; the text names both
//	3001  shutdown          the gate shuts down; delay_ms spreads the clients that come back
//	3002  login_timeout     no Hello in time, or the authenticator took too long
//	3003  silent            nothing came for timeout_ms
//	3004  internal          the gate failed while it read this connection
//	3005  overloaded        the gate is full
//	3006  rejoined          the gate's node was out of the cluster: the other nodes have forgotten this session
//	3007  unavailable       the directory of users could not be asked about the login
//	3008  slow              the client does not read what it is sent
//	3009  rate              the client sends too much
//	3500  bad_handshake     the first message is not a Hello
//	3501  unauthorized      the authenticator said no
//	3502  protocol          a message is not a packet of frames, or holds frames that clients do not send
//	3503  kicked            Kick without a code of its own
//	3504  replaced          the user logged in elsewhere
//	3505  refused           the user is logged in elsewhere, and may have no more sessions
//	3506  moved             the client goes on with the session at another gate
const (
	CloseWebsocket    CloseCode = 1002
	CloseBadUTF8      CloseCode = 1007
	CloseTooLarge     CloseCode = 1009
	CloseShutdown     CloseCode = 3001
	CloseLoginTimeout CloseCode = 3002
	CloseSilent       CloseCode = 3003
	CloseInternal     CloseCode = 3004
	CloseOverloaded   CloseCode = 3005
	CloseRejoined     CloseCode = 3006
	CloseUnavailable  CloseCode = 3007
	CloseSlow         CloseCode = 3008
	CloseRate         CloseCode = 3009
	CloseBadHandshake CloseCode = 3500
	CloseUnauthorized CloseCode = 3501
	CloseProtocol     CloseCode = 3502
	CloseKicked       CloseCode = 3503
	CloseReplaced     CloseCode = 3504
	CloseRefused      CloseCode = 3505
	CloseMoved        CloseCode = 3506
)

// Three ends that no gate decides on; they are reasons of metrics and of SessionClosed, never sent.
const (
	closedTaken    CloseCode = 1    // the client has come back on another connection
	closedByClient CloseCode = 1000 // the client sent a close frame
	closedLost     CloseCode = 1006 // the connection broke, or the client closed it without a word
)

// Reconnect reports whether a client that is closed with c should connect again.
func (c CloseCode) Reconnect() bool { return c < 3500 }

// String returns the reason, a word of a fixed list that is fit for a metric label: the code's name above,
// "application" from 4000 on, "reserved" for anything else.
func (c CloseCode) String() string {
	switch c {
	case closedTaken:
		return "resumed"
	case closedByClient:
		return "client"
	case closedLost:
		return "lost"
	case CloseWebsocket:
		return "websocket"
	case CloseBadUTF8:
		return "bad_utf8"
	case CloseTooLarge:
		return "too_large"
	case CloseShutdown:
		return "shutdown"
	case CloseLoginTimeout:
		return "login_timeout"
	case CloseSilent:
		return "silent"
	case CloseInternal:
		return "internal"
	case CloseOverloaded:
		return "overloaded"
	case CloseRejoined:
		return "rejoined"
	case CloseUnavailable:
		return "unavailable"
	case CloseSlow:
		return "slow"
	case CloseRate:
		return "rate"
	case CloseBadHandshake:
		return "bad_handshake"
	case CloseUnauthorized:
		return "unauthorized"
	case CloseProtocol:
		return "protocol"
	case CloseKicked:
		return "kicked"
	case CloseReplaced:
		return "replaced"
	case CloseRefused:
		return "refused"
	case CloseMoved:
		return "moved"
	}
	if c >= 4000 && c < 5000 {
		return "application"
	}
	return "reserved"
}

// sendable reports whether Kick may send c.
func (c CloseCode) sendable() bool { return c >= 3000 && c < 5000 }
