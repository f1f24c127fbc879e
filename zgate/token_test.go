package zgate

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// What a resume answers is a function of what the gate holds and what the client claims.
func TestJudge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := rapid.SampledFrom([]secret{{1}, {2}, {3}})
		h := holder{
			user: rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "user"), gen: rapid.Uint32Range(1, 2).Draw(t, "gen"),
			resumes: rapid.Bool().Draw(t, "resumes"), state: rapid.SampledFrom([]uint8{stateActive, stateSuspended, stateEnded}).Draw(t, "state"),
			secrets: rapid.SliceOfN(of, 1, 4).Draw(t, "secrets"), key: of.Draw(t, "key"), any: rapid.Bool().Draw(t, "any"),
			pushes: rapid.Uint64Range(0, 3).Draw(t, "pushes"), text: rapid.Bool().Draw(t, "text"),
		}
		cl := claim{
			user: rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "claimed user"), gen: rapid.Uint32Range(1, 2).Draw(t, "claimed gen"),
			secret: of.Draw(t, "claimed secret"), key: of.Draw(t, "claimed key"), last: rapid.Uint64Range(0, 3).Draw(t, "last"), text: rapid.Bool().Draw(t, "claimed text"),
		}
		has := slices.Contains(h.secrets, cl.secret)
		knows := has || h.any && h.key == cl.key
		want := h.resumes && knows && cl.user == h.user && (h.any || cl.gen <= h.gen) && h.state != stateEnded && (!has || cl.last <= h.pushes) && cl.text == h.text
		got := judge(&h, &cl)
		if (got == granted) != want {
			t.Fatalf("%v for %+v and %+v", got, h, cl)
		}
		if !knows && got != refusedInvalid {
			t.Fatalf("who does not know a secret is told %v", got)
		}
		if got == refusedExpired && h.state != stateEnded || got == refusedUser && cl.user == h.user {
			t.Fatalf("%v for %+v and %+v", got, h, cl)
		}
	})
}

func TestTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := token{ref: zmsg.SessionRef{
			Gate: zmsg.NodeRef{ID: rapid.StringN(1, 40, 64).Draw(t, "node"), Epoch: rapid.Uint64().Draw(t, "epoch")},
			ID:   rapid.Uint64Min(1).Draw(t, "id"), Gen: rapid.Uint32().Draw(t, "gen"),
		}}
		copy(x.secret[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "secret"))
		copy(x.key[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "key"))
		y, err := parseToken(x.String())
		if err != nil || x != y {
			t.Fatalf("%+v became %+v, %v", x, y, err)
		}
		cut := rapid.IntRange(0, len(x.String())).Draw(t, "cut")
		_, _ = parseToken(x.String()[:cut]) // does not panic
		_, _ = parseToken(rapid.String().Draw(t, "garbage"))
	})
}

// The short way to an Ack says the same as the long one.
func TestParseAck(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ack := &wirepb.Ack{Push: rapid.Uint64().Draw(t, "push"), Response: rapid.Uint64().Draw(t, "response")}
		b := control(&wirepb.Control{Control: &wirepb.Control_Ack{Ack: ack}})
		if p, r, ok := parseAck(b); !ok || p != ack.GetPush() || r != ack.GetResponse() {
			t.Fatalf("%x: %d %d %v", b, p, r, ok)
		}
		b = rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "bytes")
		b = append([]byte{5<<3 | 2, byte(len(b))}, b...)
		p, r, ok := parseAck(b)
		if !ok {
			return
		}
		var m wirepb.Control
		if err := proto.Unmarshal(b, &m); err != nil || m.GetAck().GetPush() != p || m.GetAck().GetResponse() != r {
			t.Fatalf("%x: %d %d, but %v %v", b, p, r, &m, err)
		}
	})
}
