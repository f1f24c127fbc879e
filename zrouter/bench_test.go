package zrouter_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"zgame/internal/cputime"
	"zgame/zactor"
	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zrouter/internal/testpb"
)

// plain is an actor that does what the object does.
type plain struct{}

var lines = &testpb.Lines{}

func (plain) Handlers() []zactor.Handler {
	return []zactor.Handler{zactor.Handle(func(*zactor.Context, *testpb.Get) (*testpb.Lines, error) { return lines, nil })}
}

func quick(*logContext, *testpb.Get) (*testpb.Lines, error) { return lines, nil }

func quickKind() zrouter.Kind[*testpb.Log] {
	k := logs()
	k.Handlers = []zrouter.Handler[*testpb.Log]{zrouter.Handle(quick)}
	return k
}

type chanReplier chan struct{}

func (c chanReplier) Reply(uint64, *zmsg.Reply) { c <- struct{}{} }

func request(to zmsg.Replier) *zmsg.Message {
	m := zmsg.NewMessage(4103)
	m.Value = proto.Message(getX)
	m.SetReplier(to, 0)
	return m
}

var getX = &testpb.Get{Log: "x"}

// A request to an object in memory here, next to the same request to an actor.
func BenchmarkLocal(b *testing.B) {
	w := newWorld(b)
	n := w.start("a", zrouter.Settings{}, quickKind())
	ref, err := n.group.Spawn("", func() zactor.Actor { return plain{} })
	if err != nil {
		b.Fatal(err)
	}
	k := key("x")
	done := make(chanReplier, 1)
	b.Run("actor", func(b *testing.B) {
		b.ReportAllocs()
		start := cputime.Used()
		for b.Loop() {
			if err := ref.Deliver(request(done)); err != nil {
				b.Fatal(err)
			}
			<-done
		}
		b.ReportMetric(float64(cputime.Used()-start)/float64(b.N), "cpu-ns/op")
	})
	b.Run("object", func(b *testing.B) {
		b.ReportAllocs()
		start := cputime.Used()
		for b.Loop() {
			if err := n.set.DeliverObject(k, request(done)); err != nil {
				b.Fatal(err)
			}
			<-done
		}
		b.ReportMetric(float64(cputime.Used()-start)/float64(b.N), "cpu-ns/op")
	})
}
