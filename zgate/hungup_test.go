package zgate

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"zgame/zmsg/wirepb"
)

// A client that hangs up while its login takes long is not logged in when it is over: it may be in by another connection, whose session it would
// replace, or take.
func TestHangsUpWhileItLogsIn(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("nobody says so on this system")
	}
	var logins atomic.Int32
	asked, release := make(chan struct{}), make(chan struct{})
	r := newRig(t, func(c *Config) {
		c.Auth = AuthFunc(func(_ context.Context, h Hello) (string, error) {
			if logins.Add(1) == 2 {
				close(asked)
				<-release
				slow := time.NewTimer(2 * slowLogin)
				defer slow.Stop()
				<-slow.C
			}
			return h.Token, nil
		})
	})
	old := r.kept("ann")
	r.cut(old)
	late := r.dial(dialing{})
	late.control(&wirepb.Control{Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{Token: "ann", Resume: old.welcome.GetResume(), ResumeWindowMs: 60_000}}})
	<-asked
	late.ws.end()
	close(release)
	eventually(t, "the login is over", func() bool { return r.counter("closes_total", "login_timeout") == 1 })
	back := r.again("ann", old.welcome.GetResume(), 0)
	if !back.welcome.GetResumed() || back.welcome.GetSession() != old.welcome.GetSession() || r.Sessions() != 1 {
		t.Errorf("%v, and there are %d sessions", back.welcome, r.Sessions())
	}
}
