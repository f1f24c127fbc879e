package zclient

import "fmt"

// Kind is why a connection ended or did not come about: a word of a fixed list, fit for a metric label.
type Kind string

// The kinds.
const (
	KindDial      Kind = "dial"      // no network connection, or no websocket over it
	KindToken     Kind = "token"     // Config.TokenFunc failed
	KindHandshake Kind = "handshake" // no Welcome in time
	KindRefused   Kind = "refused"   // the server closed before Welcome; Code says why
	KindClosed    Kind = "closed"    // the server closed; Code says why
	KindLost      Kind = "lost"      // the connection broke without a word
	KindSilent    Kind = "silent"    // nothing came for as long as Welcome allows
	KindSlow      Kind = "slow"      // handlers did not keep up with pushes
	KindProtocol  Kind = "protocol"  // the server sent what is not zgame's protocol
	KindGoaway    Kind = "goaway"    // the server asked to connect elsewhere, or again
	KindClient    Kind = "client"    // Close was called, or the ctx of Connect ended
)

// codeUnauthorized is the close code of a login that the gate does not take.
const codeUnauthorized = 3501

// Reason says why a connection ended or did not come about.
//
//nolint:errname // it is the reason of a State first, and an error only where Connect returns it
type Reason struct {
	Kind Kind
	Code int    // websocket close code that the server sent, HTTP status for a refused websocket, 0 if none
	Text string // the server's words, if any
	Err  error  // what the network or TLS said, if anything
}

// Error returns kind, code, text and cause.
func (r *Reason) Error() string {
	s := "zclient: " + string(r.Kind)
	if r.Code != 0 {
		s += fmt.Sprintf(" %d", r.Code)
	}
	if r.Text != "" {
		s += ": " + r.Text
	}
	if r.Err != nil {
		s += ": " + r.Err.Error()
	}
	return s
}

// Unwrap returns Err.
func (r *Reason) Unwrap() error { return r.Err }

// final reports whether it is pointless to connect again.
func (r *Reason) final() bool {
	switch r.Kind {
	case KindClient:
		return true
	case KindDial:
		return r.Code == 401 || r.Code == 403 // the websocket was refused to this client
	default:
		return r.Code != 0 && !Reconnect(r.Code)
	}
}

// Reconnect reports whether a client whose connection was closed with a websocket close code connects again: it does
// for 3000 to 3499 and for the codes of the websocket protocol itself, it does not for 3500 to 3999 and for those of
// applications, from 4000 on.
func Reconnect(code int) bool { return code < 3500 }
