package zroute_test

import (
	"testing"

	"zgame/zmsg"
	"zgame/zroute"
)

func BenchmarkDispatchLocal(b *testing.B) {
	b.ReportAllocs()
	var l zroute.Local
	register(b, &l, 1, takes(func() error { return nil }), zmsg.Advert{ID: 5, Client: true})
	d := dispatcher(b, zroute.Config{Local: &l})
	m := message(5)
	m.Client = true
	for b.Loop() {
		if res, _, _ := d.Dispatch(m); res != zroute.OnLocal {
			b.Fatal(res)
		}
	}
}

func BenchmarkPick(b *testing.B) {
	cs := hundred()
	m := message(5)
	m.Session.ID, m.User = 7, "ann"
	for _, c := range []struct {
		name string
		s    zroute.RemoteStrategy
	}{{"first", zroute.First()}, {"round-robin", zroute.RoundRobin()}, {"rendezvous", zroute.Rendezvous(nil)}, {"user", zroute.Rendezvous(zroute.UserKey)}} {
		b.Run(c.name+"/candidates=100", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.s.Pick(m, cs)
			}
		})
	}
}
