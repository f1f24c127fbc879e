package zclient

import (
	"fmt"
	"slices"
	"testing"

	"zgame/examples/chat/chatpb"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// A gap comes between the pushes around it, to all handlers that are there.
func TestGap(t *testing.T) {
	t.Parallel()
	s := start(t)
	var got []string
	done := make(chan struct{})
	On(s.Client, func(l *chatpb.Line) {
		if got = append(got, fmt.Sprint("push ", l.GetSeq())); l.GetSeq() == 9 {
			close(done)
		}
	})
	cancel := s.OnGap(func(g Gap) { got = append(got, fmt.Sprint("gap ", g.Key, " ", g.Missed)) })
	gap := func(missed uint64) {
		s.conn.control(&wirepb.Control{Control: &wirepb.Control_Gap{Gap: &wirepb.Gap{KeyType: 2, KeyZone: 1, KeyId: "go", Missed: missed}}})
	}
	s.conn.push(&chatpb.Line{Seq: 1}, 1)
	gap(3)
	s.conn.push(&chatpb.Line{Seq: 5}, 2)
	gap(0)
	s.conn.push(&chatpb.Line{Seq: 9}, 3)
	receive(t, done, "the last push")
	k := zmsg.Key{Type: 2, Zone: 1, ID: "go"}
	if want := []string{"push 1", fmt.Sprint("gap ", k, " 3"), "push 5", fmt.Sprint("gap ", k, " 0"), "push 9"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	cancel()
	gap(1)
	eventually(t, "gaps are counted", func() bool { return s.Stats().Gaps == 3 })
}
