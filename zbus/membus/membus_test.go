package membus_test

import (
	"testing"

	"go.uber.org/goleak"

	"zgame/zbus"
	"zgame/zbus/membus"
	"zgame/zbus/zbustest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	zbustest.Run(t, func(*testing.T) zbustest.Fixture {
		hub := membus.NewHub(membus.Config{MaxPayload: 1 << 20, Queue: 9000})
		return zbustest.Fixture{
			Bus:           func(testing.TB) zbus.Bus { return hub.Bus() },
			SetUp:         func(_ testing.TB, up bool) { hub.SetUp(up) },
			Pending:       9000,
			Subscriptions: hub.Subscriptions,
		}
	})
}

func TestPartitionAndLose(t *testing.T) {
	t.Parallel()
	hub := membus.New()
	a, b := hub.Bus(), hub.Bus()
	ctx := t.Context()
	got := make(chan zbus.Msg, 10)
	for bus, subject := range map[*membus.Bus]string{a: "r.*", b: "s"} {
		r, err := bus.Receive(func(m zbus.Msg) { got <- m })
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Subscribe(ctx, subject); err != nil {
			t.Fatal(err)
		}
	}
	send := func() zbus.Msg {
		t.Helper()
		if err := a.Publish("s", "r.1", []byte("x")); err != nil {
			t.Fatal(err)
		}
		return <-got
	}
	if m := send(); m.Subject != "s" {
		t.Errorf("got %+v", m)
	}
	hub.Partition(a, b, true)
	if m := send(); !m.NoResponders {
		t.Errorf("parted, but got %+v", m)
	}
	hub.Partition(a, b, false)
	if m := send(); m.Subject != "s" {
		t.Errorf("joined again, but got %+v", m)
	}
	hub.Lose(func(subject string, _ []byte) bool { return subject == "s" })
	if err := a.Publish("s", "r.1", nil); err != nil {
		t.Fatal(err)
	}
	hub.Lose(nil)
	if m := send(); string(m.Data) != "x" {
		t.Errorf("the lost message came: %+v", m)
	}
	for _, bus := range []*membus.Bus{a, b} {
		if err := bus.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}
