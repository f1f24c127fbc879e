// Stand-ins for pieces that are on their way.

package zrouter

import (
	"reflect"
	"time"

	"google.golang.org/protobuf/proto"
	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/zstore"
)

type Settings struct {
	CacheUpdateInterval, CacheFreeTimeout, ObjectFreeTimeout, CacheRetryInterval, ObjectRetryInterval, StoreTimeout, MaxUnsavedAge, SaveDelay time.Duration
	MaxWaiting, RetryMaxTTL, MaxQueue, MaxRoutes, StoreOps, Dedup                                                                             int
	Durable                                                                                                                                   bool
}

func (s Settings) withDefaults() Settings {
	d := func(p *time.Duration, v time.Duration) {
		if *p == 0 {
			*p = v
		}
	}
	i := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	d(&s.CacheUpdateInterval, 1800*time.Second)
	d(&s.CacheFreeTimeout, 600*time.Second)
	d(&s.ObjectFreeTimeout, 1500*time.Second)
	d(&s.CacheRetryInterval, 256*time.Millisecond)
	d(&s.StoreTimeout, 5*time.Second)
	d(&s.MaxUnsavedAge, 60*time.Second)
	d(&s.SaveDelay, 5*time.Second)
	i(&s.RetryMaxTTL, 3)
	i(&s.MaxQueue, 1024)
	i(&s.MaxRoutes, 1<<20)
	i(&s.StoreOps, 256)
	i(&s.MaxWaiting, 65536)
	return s
}
func (s Settings) validate() error { return nil }
func (s Settings) merge(k Settings) Settings {
	if k.SaveDelay != 0 {
		s.SaveDelay = k.SaveDelay
	}
	if k.Dedup != 0 {
		s.Dedup = k.Dedup
	}
	s.Durable = s.Durable || k.Durable
	if k.ObjectFreeTimeout != 0 {
		s.ObjectFreeTimeout = k.ObjectFreeTimeout
	}
	return s
}
func (s Settings) MaxHops() int                      { return 3 }
func (s Settings) EffectiveSaveDelay() time.Duration { return s.SaveDelay }
func (s Settings) ReleasesOnIdle() bool              { return true }

type Codec[S any] interface {
	Append(dst []byte, s S) ([]byte, error)
	Decode(raw []byte) (S, error)
}
type protoCodec[S any] struct{}

func (protoCodec[S]) Append(dst []byte, s S) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.MarshalAppend(dst, any(s).(proto.Message))
}

func (protoCodec[S]) Decode(raw []byte) (S, error) {
	s := reflect.New(reflect.TypeFor[S]().Elem()).Interface().(S)
	return s, proto.Unmarshal(raw, any(s).(proto.Message))
}

func defaultCodec[S any]() Codec[S] {
	if _, ok := any(*new(S)).(proto.Message); ok {
		return protoCodec[S]{}
	}
	return nil
}

func decodeState[S any](c Codec[S], version uint32, migrate func(uint32, []byte) (S, error), schema uint32, raw []byte) (S, error) {
	return c.Decode(raw)
}

type doneRing struct{}

func newDoneRing(int, []zstore.Done) *doneRing   { return &doneRing{} }
func (*doneRing) find(string) (zmsg.Reply, bool) { return zmsg.Reply{}, false }
func (*doneRing) add(string, *zmsg.Reply) error  { return nil }
func (*doneRing) list() []zstore.Done            { return nil }
func encoded(r *zmsg.Reply) zmsg.Reply           { return *r }

func goneStub(n zmsg.NodeRef, s *zdiscovery.Snapshot) bool {
	for i := range s.Nodes {
		if s.Nodes[i].Ref == n {
			return false
		}
	}
	return int64(n.Epoch) <= s.Revision
}
