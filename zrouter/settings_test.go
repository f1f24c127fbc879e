package zrouter

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"zgame/internal/settings"
)

// The names and values that the documents promise.
func TestDefaultSettings(t *testing.T) {
	t.Parallel()
	want := strings.TrimSpace(`
cache_update_interval: 30m0s
cache_free_timeout: 10m0s
object_free_timeout: 25m0s
object_save_interval: 10m0s
cache_retry_interval: 256ms
object_retry_interval: 256ms
retry_max_ttl: 3
transfer_max_ttl: 16
max_hops: 3
save_delay: 5s
max_unsaved_age: 1m0s
max_queue: 1024
max_queue_bytes: 1048576
max_waiting: 65536
max_waiting_bytes: 268435456
max_routes: 1048576
max_objects: 0
durable: false
dedup: 0
client_dedup: 0
release_on_idle: true
prepare_timeout: 1s
quiesce_timeout: 2s
remember: false
remember_rate: 1000
drain_moves: 64
drain_moves_per_node: 16
drain_rate: 1000
store_timeout: 4s
store_ops: 256`)
	s := Settings{}.withDefaults()
	got := regexp.MustCompile(`(?m) *# .*$`).ReplaceAllString(strings.TrimSpace(settings.Text(&s)), "")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if err := (Settings{}).Validate(); err != nil {
		t.Error(err)
	}
	if d := DefaultSettings(); d.withDefaults() != s || d.MaxUnsavedAge != 0 {
		t.Errorf("%+v", d)
	}
}

func TestSettingsFromText(t *testing.T) {
	t.Parallel()
	s := DefaultSettings()
	text := "save_delay: 30s\nrelease_on_idle: false\ndurable: true\nmax_objects: 7\n"
	if err := settings.Load(&s, []byte(text), "f", []string{"Z_DURABLE=false"}, "Z"); err != nil {
		t.Fatal(err)
	}
	s = s.withDefaults()
	if s.SaveDelay != 30*time.Second || s.ReleaseOnIdle != Off || s.Durable != Off || s.MaxObjects != 7 || s.MaxUnsavedAge != 90*time.Second {
		t.Errorf("%+v", s)
	}
	err := settings.Load(&s, []byte("durable: maybe\n"), "f", nil, "Z")
	if err == nil || !strings.Contains(err.Error(), `durable: "maybe" is not valid; expected true or false`) {
		t.Error(err)
	}
	raw, err := json.Marshal(Settings{SaveDelay: 1, Durable: On})
	if want := `{"save_delay":1,"durable":"true"}`; err != nil || string(raw) != want {
		t.Errorf("%s %v, want %s", raw, err, want)
	}
	var back Settings
	if err := json.Unmarshal(raw, &back); err != nil || back != (Settings{SaveDelay: 1, Durable: On}) {
		t.Errorf("%+v %v", back, err)
	}
}

// Field by field, so that none is forgotten: what the special settings say counts, where they say nothing the others do.
func TestSettingsMerge(t *testing.T) {
	t.Parallel()
	var a, b Settings
	va, vb := reflect.ValueOf(&a).Elem(), reflect.ValueOf(&b).Elem()
	for i := range va.NumField() {
		name := va.Type().Field(i).Name
		for from := range 4 {
			set(va.Field(i), from&1)
			set(vb.Field(i), from&2)
			merged := a.merge(b)
			got, want := reflect.ValueOf(merged).Field(i), vb.Field(i)
			if from&2 == 0 {
				want = va.Field(i)
			}
			if got.Interface() != want.Interface() {
				t.Errorf("%s: %v and %v are merged to %v", name, va.Field(i), vb.Field(i), got)
			}
			va.Field(i).SetZero()
			vb.Field(i).SetZero()
			if from == 0 && merged != (Settings{}) {
				t.Errorf("%s: %+v of nothing", name, merged)
			}
		}
	}
}

func set(v reflect.Value, n int) {
	if v.CanInt() {
		v.SetInt(int64(n))
	} else {
		v.SetUint(uint64(n))
	}
}

func TestSettingsFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s    Settings
		want []string // one for each fault
	}{
		{Settings{}, nil},
		{Settings{SaveDelay: -1}, nil},
		{Settings{SaveDelay: -1, MaxUnsavedAge: time.Hour}, nil},
		{Settings{SaveDelay: -1, ObjectSaveInterval: time.Second, MaxUnsavedAge: 3 * time.Second}, nil},
		{Settings{MaxObjects: -1, Dedup: -1, ClientDedup: -1, Durable: On, ReleaseOnIdle: Off, MaxHops: 16}, nil},
		{Settings{SaveDelay: time.Microsecond}, []string{"save_delay 1µs: expected at least 1ms"}},
		{Settings{SaveDelay: 21 * time.Second, MaxUnsavedAge: time.Minute}, []string{"max_unsaved_age 1m0s: expected at least three times the delay of saves, which is 21s"}},
		{Settings{SaveDelay: -1, MaxUnsavedAge: time.Minute}, []string{"which is 10m0s"}},
		{Settings{MaxUnsavedAge: -1}, []string{"max_unsaved_age -1ns"}},
		{Settings{MaxHops: 17}, []string{"max_hops 17: expected a number from 1 to transfer_max_ttl, which is 16"}},
		{Settings{MaxHops: -1, TransferMaxTTL: 256}, []string{"transfer_max_ttl 256: expected a number from 1 to 255", "max_hops -1"}},
		{
			Settings{MaxQueue: 1<<20 + 1, MaxRoutes: -1, Dedup: 1025, ClientDedup: 1025, StoreOps: 1 << 17, MaxWaiting: -1, RetryMaxTTL: 101},
			[]string{"retry_max_ttl 101", "max_queue 1048577", "max_waiting -1: expected a number above 0", "max_routes -1", "dedup 1025: expected a number from 0 to 1024", "client_dedup 1025: expected a number from 0 to 1024", "store_ops 131072"},
		},
		{
			Settings{CacheUpdateInterval: time.Millisecond, CacheFreeTimeout: -1, ObjectFreeTimeout: -1, ObjectSaveInterval: -1, CacheRetryInterval: 1, ObjectRetryInterval: 1, StoreTimeout: 1},
			[]string{"cache_update_interval 1ms: expected at least 1s", "cache_free_timeout", "object_free_timeout", "object_save_interval", "cache_retry_interval", "object_retry_interval", "store_timeout"},
		},
	} {
		err := c.s.Validate()
		if err == nil {
			if c.want != nil {
				t.Errorf("%+v: no fault", c.s)
			}
			continue
		}
		faults := strings.Split(err.Error(), "\n")
		if len(faults) != len(c.want) {
			t.Errorf("%+v: %d faults, want %d:\n%v", c.s, len(faults), len(c.want), err)
			continue
		}
		for i, w := range c.want {
			if !strings.Contains(faults[i], w) {
				t.Errorf("%s\nwant %s", faults[i], w)
			}
		}
	}
}

// What the documents call "of the node alone" is refused for a kind, and nothing else is.
func TestSettingsOfTheNode(t *testing.T) {
	t.Parallel()
	node := []string{
		"cache_free_timeout", "transfer_max_ttl", "max_hops", "max_queue", "max_waiting", "max_waiting_bytes", "max_routes", "max_objects", "prepare_timeout",
		"store_timeout", "store_ops",
		"remember_rate", "drain_moves", "drain_moves_per_node", "drain_rate",
	}
	var s Settings
	v := reflect.ValueOf(&s).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("yaml")
		set(v.Field(i), 1)
		err := s.ofNode()
		if refused := err != nil; refused != slices.Contains(node, name) || refused && !strings.Contains(fmt.Sprint(err), name+": ") {
			t.Errorf("%s: %v", name, err)
		}
		v.Field(i).SetZero()
	}
}

// A kind whose moves take longer than calls wait fails the start, also where its code says so.
func TestMovesFitCalls(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s    Settings
		call time.Duration
		fits bool
	}{
		{Settings{}, 10 * time.Second, true},
		{Settings{}, 10*time.Second - 1, false},
		{Settings{QuiesceTimeout: 100 * time.Millisecond, StoreTimeout: time.Second}, 2100 * time.Millisecond, true},
		{Settings{QuiesceTimeout: 3 * time.Second}, 10 * time.Second, false},
	} {
		if err := c.s.FitCalls(c.call); (err == nil) != c.fits {
			t.Errorf("%+v, calls of %v: %v", c.s, c.call, err)
		}
	}
}
