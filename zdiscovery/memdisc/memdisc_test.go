package memdisc_test

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"zgame/zdiscovery"
	"zgame/zdiscovery/memdisc"
	"zgame/zdiscovery/zdiscoverytest"
	"zgame/zmsg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	zdiscoverytest.Run(t, func(*testing.T) zdiscoverytest.Features {
		hub := memdisc.NewTTL(time.Second)
		return zdiscoverytest.Features{
			Open:   func(testing.TB, time.Duration) zdiscovery.Discovery { return hub.Discovery() }, // leases end when the test says so
			TTL:    time.Second,
			Expire: func(_ testing.TB, ref zmsg.NodeRef) { hub.Expire(ref.ID) },
			Delete: func(_ testing.TB, ref zmsg.NodeRef) { hub.Expire(ref.ID) },
			SetUp:  func(_ testing.TB, up bool) { hub.SetUp(up) },
			Cut: func(tb testing.TB, d zdiscovery.Discovery, cut bool) {
				tb.Helper()
				d.(*memdisc.Disc).SetUp(!cut)
			},
		}
	})
}

// TestAwayForLongerThanTheLease runs on virtual time: the member may act for 0.6 of the lease, and is lost when the
// service comes back after the lease.
func TestAwayForLongerThanTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := memdisc.New()
		d := hub.Discovery()
		m, err := d.Join(t.Context(), zdiscovery.Node{Ref: zmsg.NodeRef{ID: "a"}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		hub.SetUp(false)
		away := time.Now()
		time.Sleep(9 * time.Second)
		if until := m.ServeUntil(); until.Sub(away) != 6*time.Second {
			t.Errorf("may serve %v into the outage, want 6s", until.Sub(away))
		}
		hub.SetUp(true)
		select {
		case <-m.Lost():
			t.Error("lost within the lease")
		default:
		}
		hub.SetUp(false)
		time.Sleep(10 * time.Second)
		hub.SetUp(true)
		<-m.Lost()
		if err := d.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
