package zuser

import (
	"testing"

	"pgregory.net/rapid"

	"zgame/zmsg"
	"zgame/zuser/internal/userpb"
)

// However logins come and go, and owners change and forget, each change is told once, with a greater number, and what was told last is true.
func TestPresenceModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		u, version, now := &userpb.User{}, zmsg.RouteVersion(1), int64(0)
		var last uint64
		var saved userpb.User
		there := func() (online bool, node string) {
			for _, l := range u.GetLogins() {
				if l.GetEnd() == nil {
					online, node = true, l.GetSession().GetGate()
				}
			}
			return online, node
		}
		which := func(t *rapid.T) *userpb.Login {
			if len(u.GetLogins()) == 0 {
				t.Skip()
			}
			return rapid.SampledFrom(u.GetLogins()).Draw(t, "login")
		}
		t.Repeat(map[string]func(*rapid.T){
			"login": func(t *rapid.T) {
				u.Logins = append(u.Logins, &userpb.Login{Session: &userpb.Session{Gate: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "gate")}})
			},
			"lose":   func(t *rapid.T) { which(t).Lost = true },
			"end":    func(t *rapid.T) { which(t).End = &userpb.End{} },
			"forget": func(t *rapid.T) { l := which(t); u.Logins = remove(u.GetLogins(), l) },
			"save": func(*rapid.T) {
				saved = userpb.User{Presence: u.GetPresence(), Online: u.GetOnline(), Node: u.GetNode()}
			},
			"crash": func(*rapid.T) { // the gates make the logins known again
				logins := u.GetLogins()
				u = &userpb.User{Presence: saved.GetPresence(), Online: saved.GetOnline(), Node: saved.GetNode(), Logins: logins}
				version++
			},
			"": func(*rapid.T) {
				now++
				online, node := u.GetOnline(), u.GetNode()
				news := update(u, version, now)
				is, at := there()
				if u.GetOnline() != is || u.GetNode() != at || news != (online != is || node != at) {
					t.Fatalf("there: %t at %q, told %t at %q, news %t", is, at, u.GetOnline(), u.GetNode(), news)
				}
				if news && u.GetPresence() <= last {
					t.Fatalf("number %d behind %d", u.GetPresence(), last)
				}
				if news && online != is && u.GetSinceMs() != now {
					t.Fatalf("since %d, it is %d", u.GetSinceMs(), now)
				}
				if update(u, version, now) {
					t.Fatal("the same is news twice")
				}
				if news {
					last = u.GetPresence()
				}
			},
		})
	})
}

func remove(logins []*userpb.Login, l *userpb.Login) (out []*userpb.Login) {
	for _, o := range logins {
		if o != l {
			out = append(out, o)
		}
	}
	return out
}
