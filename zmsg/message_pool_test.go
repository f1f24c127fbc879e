package zmsg

import (
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/emptypb"
)

// F10 of known-faults.md: what a message carried does not come back with its memory.
func TestReleasedMessageIsEmpty(t *testing.T) {
	t.Parallel()
	reused := 0
	for range 10_000 {
		m := NewMessage(7)
		m.Seq, m.User, m.Client, m.Deadline, m.Hops, m.Once, m.Resent, m.Value, m.Queued = 1, "ann", true, time.Now(), 3, "key", true, &emptypb.Empty{}, 4
		m.Session, m.From, m.Trace, m.Chain = SessionRef{ID: 1, Gen: 1}, Address{Actor: 1}, Trace{ID: TraceID{1}, Span: 2}, []uint64{1}
		m.SetBody([]byte("body"))
		m.SetReplier(replierFunc(func() {}), 5)
		v := reflect.ValueOf(m).Elem()
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Fatalf("%s is not set here: a new field is to be", v.Type().Field(i).Name)
			}
		}
		m.Release()
		n := NewMessage(8)
		if n == m {
			reused++
		}
		v = reflect.ValueOf(n).Elem()
		for i := range v.NumField() {
			switch name := v.Type().Field(i).Name; name {
			case "ID", "pooled":
			case "buf": // memory alone
				if v.Field(i).Len() != 0 {
					t.Fatal("its buffer has bytes")
				}
			default:
				if !v.Field(i).IsZero() {
					t.Fatalf("%s has come back", name)
				}
			}
		}
		n.Release()
	}
	if reused == 0 {
		t.Error("no message was used again: this proves nothing")
	}
}

type replierFunc func()

func (replierFunc) Reply(uint64, *Reply) {}
