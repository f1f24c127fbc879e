package zuser

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zactor"
	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zuser/internal/userpb"
)

// ErrNotInServer says that the user has no session. Nothing was sent.
var ErrNotInServer = zrouter.ErrNotInServer

var errNoID error = &zmsg.Error{Code: zmsg.CodeBadRequest, Outcome: zmsg.NotExecuted, Text: "a push without (zgame.id): its type is to have one"}

// Users is the way of a node to the users, wherever their objects and their gates are. Its methods may be called from any goroutine and wait;
// in a turn of an actor or an object there are the functions Push, PushThen and Kick, which do not.
type Users struct{ set *zrouter.ManagerSet }

// New makes the way to the users through set.
func New(set *zrouter.ManagerSet) *Users { return &Users{set} }

// Waits of Bind between two tries.
const (
	firstWait  = 20 * time.Millisecond
	mostWait   = 500 * time.Millisecond
	tryTimeout = 2 * time.Second
	// patience is how long a login waits that would be refused: who closes one session and opens another is not to be turned away because the
	// end of the first comes late.
	patience = time.Second
)

// KeyOf returns the object that the user's sessions are bound to.
func (u *Users) KeyOf(user string) zmsg.Key { return Key(user) }

// Bind tells the directory of a session. It tries again where that may help, until ctx ends. It satisfies zgate.Directory.
// Errors: *zmsg.ElsewhereError; why the directory could not be asked, as those of zrouter.Call.
func (u *Users) Bind(ctx context.Context, l zmsg.Login) (number uint64, a zmsg.Admission, err error) {
	req := &userpb.Bind{
		Session: wireOf(l.Session), Number: l.Number, Most: uint32(max(0, l.Most)), Refuse: l.Refuse,
		WindowMs: uint32(l.Window.Milliseconds()), Proof: l.Proof, Claim: l.Claim,
	}
	if !l.Resumes.IsZero() {
		req.Resumes, req.Handed = wireOf(l.Resumes), l.Handed
	}
	until := time.Now().Add(patience)
	for wait := firstWait; ; wait = min(2*wait, mostWait) {
		answer, err := ask[userpb.Bound](ctx, u, l.User, req)
		a = zmsg.Admission(answer.GetAdmission())
		switch {
		case err == nil && answer.GetElsewhere() != nil:
			return 0, a, &zmsg.ElsewhereError{Session: refOf(answer.GetElsewhere())}
		case err == nil && (a != zmsg.Refused || time.Now().After(until)):
			return answer.GetNumber(), a, nil
		case err != nil && (!zmsg.CodeOf(err).Retry() || errors.Is(err, zrouter.ErrNoNode) || errors.Is(err, zrouter.ErrClosing)):
			return 0, 0, err
		}
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			if err == nil {
				return answer.GetNumber(), a, nil
			}
			return 0, 0, err
		}
	}
}

// ask is one try.
func ask[R any, PR interface {
	*R
	proto.Message
}](ctx context.Context, u *Users, user string, req proto.Message) (PR, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	return zrouter.Call[R, PR](ctx, u.set, Key(user), req)
}

// Push sends msg to all sessions of the user. It returns when it is on its way to their gates.
// Errors: ErrNotInServer; those of zrouter.Call; what the gates or the bus say, joined, where some were reached.
func (u *Users) Push(ctx context.Context, user string, msg proto.Message, opts ...zactor.PushOption) error {
	req, err := pushOf(msg, opts)
	if err != nil {
		return err
	}
	_, err = zrouter.Call[userpb.Sessions](ctx, u.set, Key(user), req)
	return absent(err)
}

// Kick closes all sessions of the user: each client reads code and text as the last thing, behind what was sent to it before. It returns how many
// there are; they end soon after. Codes are those of zactor.Context.Kick. Errors: ErrNotInServer; those of zrouter.Call.
func (u *Users) Kick(ctx context.Context, user string, code uint32, text string) (int, error) {
	a, err := zrouter.Call[userpb.Sessions](ctx, u.set, Key(user), kickOf(code, text))
	return len(a.GetSessions()), absent(err)
}

// Sessions returns the sessions of the user, the oldest first. Errors: ErrNotInServer; those of zrouter.Call.
func (u *Users) Sessions(ctx context.Context, user string) ([]zmsg.SessionRef, error) {
	a, err := zrouter.Call[userpb.Sessions](ctx, u.set, Key(user), &userpb.Look{})
	refs := make([]zmsg.SessionRef, 0, len(a.GetSessions()))
	for _, s := range a.GetSessions() {
		refs = append(refs, refOf(s))
	}
	return refs, absent(err)
}

// Teller is what an actor's Context, and an object's, can do that Push and Kick need.
type Teller interface {
	Object(k zmsg.Key) zactor.Ref
	Tell(to zactor.Ref, msg proto.Message) error
}

// Push sends msg to all sessions of the user, in a turn of the actor or object whose Context c is. It does not wait: that the user has no session is
// counted, at whatever node finds it, and told nobody. What an actor pushes to one user so comes in order; with what it pushes to sessions by
// its Context it keeps none. Errors: those of Tell.
func Push(c Teller, user string, msg proto.Message, opts ...zactor.PushOption) error {
	req, err := pushOf(msg, opts)
	if err != nil {
		return err
	}
	return c.Tell(c.Object(Key(user)), req)
}

// PushThen is Push whose end is heard: fn runs in a later turn of the actor, once, unless the actor ends before. err is nil when msg is on its way to the
// gates of all sessions of the user, and otherwise as that of Users.Push. Errors: msg cannot be sent; fn is not called then.
func PushThen(c *zactor.Context, user string, msg proto.Message, fn func(c *zactor.Context, err error), opts ...zactor.PushOption) error {
	req, err := pushOf(msg, opts)
	if err != nil {
		return err
	}
	zactor.Then(c, c.Object(Key(user)), req, func(c *zactor.Context, _ *userpb.Sessions, err error) { fn(c, absent(err)) })
	return nil
}

// Kick closes all sessions of the user, as Users.Kick, without waiting. Errors: those of Tell.
func Kick(c Teller, user string, code uint32, text string) error {
	return c.Tell(c.Object(Key(user)), kickOf(code, text))
}

func pushOf(msg proto.Message, opts []zactor.PushOption) (*userpb.Push, error) {
	id, ok := zmsg.IDOf(msg)
	if !ok {
		return nil, errNoID
	}
	p := zmsg.Push{ID: id, Value: msg}
	for _, o := range opts {
		o(&p)
	}
	body, err := p.EncodedBody()
	if err != nil {
		return nil, err
	}
	return &userpb.Push{Id: id, Body: body, Class: uint32(p.Class), Of: p.Of}, nil
}

func kickOf(code uint32, text string) *userpb.Kick {
	return &userpb.Kick{End: &userpb.End{Code: code, Text: text}}
}

// absent makes one error of those of a user who has no session: his object was never made, is at rest, or says so.
func absent(err error) error {
	if code := zmsg.CodeOf(err); code == zmsg.CodeNotInServer || code == zmsg.CodeNotFound {
		return errAbsent
	}
	return err
}
