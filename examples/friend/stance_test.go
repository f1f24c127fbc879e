package friend

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"zgame/examples/friend/friendpb"
)

// model is two lists and what is on its way between them. What a list says is sent when it is saved, may be lost, doubled and overtaken, and is
// said again; a crash takes a list back to what was saved.
type model struct {
	t interface {
		Fatalf(format string, args ...any)
	}
	now   [2]*friendpb.FriendState
	saved [2]*friendpb.FriendState
	way   []*friendpb.Stance
}

var people = [2]string{"ann", "bob"}

func indexOf(user string) int {
	if user == people[0] {
		return 0
	}
	return 1
}

func (m *model) peer(i int) *friendpb.Peer {
	p, err := peer(m.now[i], people[1-i])
	if err != nil {
		m.t.Fatalf("%v", err)
	}
	return p
}

func (m *model) save(i int) { m.saved[i] = proto.CloneOf(m.now[i]) }

func (m *model) say(i int) {
	m.save(i)
	if p := m.peer(i); pending(p) {
		m.way = append(m.way, stance(people[i], people[1-i], p))
	}
}

// deliver has a list hear, which answers when that is saved.
func (m *model) deliver(s *friendpb.Stance) (answer *friendpb.Stance) {
	i := indexOf(s.GetTo())
	hear(m.now[i], m.peer(i), s, 1)
	m.save(i)
	return stance(people[i], people[1-i], m.peer(i))
}

// quiet has everybody say what is pending, and hear, until nothing is.
func (m *model) quiet() {
	for rounds := 0; pending(m.peer(0)) || pending(m.peer(1)); rounds++ {
		if rounds > 20 {
			m.t.Fatalf("they talk for ever: %v, %v", m.now[0], m.now[1])
		}
		for i := range people {
			if p := m.peer(i); pending(p) {
				m.save(i)
				answer := m.deliver(stance(people[i], people[1-i], p))
				hear(m.now[i], m.peer(i), answer, 1)
				m.save(i)
			}
		}
	}
	a, b := m.peer(0), m.peer(1)
	if a.GetWant() != b.GetTheirWant() && !b.GetBlocked() || b.GetWant() != a.GetTheirWant() && !a.GetBlocked() {
		m.t.Fatalf("they do not know what the other one wants: %v, %v", a, b)
	}
	if one, two := status(a) == friendpb.Status_STATUS_FRIEND, status(b) == friendpb.Status_STATUS_FRIEND; one != two {
		m.t.Fatalf("friends for one of them alone: %v, %v", a, b)
	}
}

var changes = map[string]func(*friendpb.FriendState, *friendpb.Peer) error{"add": add, "accept": accept, "remove": remove, "block": block, "unblock": unblock}

// Whatever is lost, doubled, overtaken and forgotten, in the end both lists say the same; and what one of them says when nothing is on its way counts.
func TestStancesModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &model{t: t}
		for i := range m.now {
			m.now[i] = &friendpb.FriendState{}
			m.save(i)
		}
		who := rapid.IntRange(0, 1)
		t.Repeat(map[string]func(*rapid.T){
			"change": func(t *rapid.T) {
				i := who.Draw(t, "who")
				_ = changes[rapid.SampledFrom([]string{"add", "accept", "remove", "block", "unblock"}).Draw(t, "what")](m.now[i], m.peer(i))
			},
			"say":  func(t *rapid.T) { m.say(who.Draw(t, "who")) },
			"save": func(t *rapid.T) { m.save(who.Draw(t, "who")) },
			"crash": func(t *rapid.T) {
				i := who.Draw(t, "who")
				m.now[i] = proto.CloneOf(m.saved[i])
			},
			"forget": func(t *rapid.T) {
				i := who.Draw(t, "who")
				if p := m.peer(i); idle(p) {
					delete(m.now[i].Peers, people[1-i])
				}
			},
			"hear": func(t *rapid.T) {
				if len(m.way) == 0 {
					t.Skip()
				}
				k := rapid.IntRange(0, len(m.way)-1).Draw(t, "which")
				s := m.way[k]
				if !rapid.Bool().Draw(t, "again") {
					m.way = append(m.way[:k], m.way[k+1:]...)
				}
				answer := m.deliver(s)
				if !rapid.Bool().Draw(t, "answer lost") {
					hear(m.now[indexOf(s.GetFrom())], m.peer(indexOf(s.GetFrom())), answer, 1)
				}
			},
			"lose": func(*rapid.T) { m.way = nil },
		})
		m.way = nil
		m.quiet()
		for range rapid.IntRange(1, 5).Draw(t, "more") {
			i := who.Draw(t, "who")
			what := rapid.SampledFrom([]string{"add", "accept", "remove", "block", "unblock"}).Draw(t, "what")
			before := status(m.peer(i))
			err := changes[what](m.now[i], m.peer(i))
			m.quiet()
			mine, theirs := m.peer(i), m.peer(1-i)
			check := func(ok bool) {
				if !ok {
					m.t.Fatalf("%s, of one who was %v (%v): %v, %v", what, before, err, mine, theirs)
				}
			}
			switch {
			case err != nil:
				check(status(mine) == before)
			case what == "add":
				check(mine.GetWant())
			case what == "accept":
				check(status(mine) == friendpb.Status_STATUS_FRIEND)
			case what == "remove":
				check(!mine.GetWant() && !theirs.GetWant() || mine.GetBlocked())
			case what == "block":
				check(status(mine) == friendpb.Status_STATUS_BLOCKED && status(theirs) != friendpb.Status_STATUS_FRIEND)
			}
		}
	})
}

// What each request comes to, for the one who asks and for the other one.
func TestRequests(t *testing.T) {
	t.Parallel()
	const (
		none     = friendpb.Status_STATUS_NONE
		friends  = friendpb.Status_STATUS_FRIEND
		incoming = friendpb.Status_STATUS_INCOMING
		outgoing = friendpb.Status_STATUS_OUTGOING
		blocked  = friendpb.Status_STATUS_BLOCKED
	)
	for _, c := range []struct {
		steps    string // a letter for who, and what he does
		ann, bob friendpb.Status
	}{
		{"a add", outgoing, incoming},
		{"a add, b accept", friends, friends},
		{"a add, b add", friends, friends},
		{"a add, b remove", none, none},
		{"a add, a remove", none, none},
		{"a add, b accept, a remove", none, none},
		{"a add, b accept, b remove, a add", outgoing, incoming},
		{"a add, b block", none, blocked},
		{"b block, a add", outgoing, blocked},
		{"b block, a add, b unblock", outgoing, incoming},
		{"a add, b accept, b block, a add, b unblock, b accept", friends, friends},
		{"a block, b block, a unblock", none, blocked},
	} {
		t.Run(c.steps, func(t *testing.T) {
			t.Parallel()
			m := &model{t: t, now: [2]*friendpb.FriendState{{}, {}}}
			for step := range strings.SplitSeq(c.steps, ", ") {
				who, what, _ := strings.Cut(step, " ")
				if err := changes[what](m.now[int(who[0]-'a')], m.peer(int(who[0]-'a'))); err != nil {
					t.Fatalf("%s: %v", step, err)
				}
				m.quiet()
			}
			if a, b := status(m.peer(0)), status(m.peer(1)); a != c.ann || b != c.bob {
				t.Fatalf("%v, %v, want %v, %v", a, b, c.ann, c.bob)
			}
		})
	}
}
