package zrouter

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Settings are what an operator, or the author of a kind, decides about objects. They stand for a node, for a kind in code, and for a
// kind in the configuration; the zero value of a field takes what the one behind says, and at last the default.
//
// Limits of time are at least a millisecond, those of routes a second, for routes know the time in seconds.
type Settings struct {
	// CacheUpdateInterval is how long a route to another node's object is trusted. An older one is looked up again by the next
	// request. Longer: fewer reads of records. Routes that are wrong are corrected by whoever gets their requests, whatever this says.
	// Defaults to 1800 s.
	CacheUpdateInterval time.Duration `yaml:"cache_update_interval" json:"cache_update_interval,omitempty" help:"a route to an object on another node is looked up again when it is older"`
	// CacheFreeTimeout is when a route that nobody asked for is forgotten. Of the node alone. Defaults to 600 s.
	CacheFreeTimeout time.Duration `yaml:"cache_free_timeout" json:"cache_free_timeout,omitempty" help:"a route that nobody used for so long is forgotten"`
	// ObjectFreeTimeout is when an object for which nothing came is saved, leaves memory, and is given up (see ReleaseOnIdle).
	// Defaults to 1500 s.
	ObjectFreeTimeout time.Duration `yaml:"object_free_timeout" json:"object_free_timeout,omitempty" help:"an object for which nothing came for so long leaves memory"`
	// ObjectSaveInterval is when a changed object is saved at the latest, where SaveDelay is negative. Defaults to 600 s.
	ObjectSaveInterval time.Duration `yaml:"object_save_interval" json:"object_save_interval,omitempty" help:"a changed object is saved after so long, where save_delay is negative"`
	// CacheRetryInterval is the upper end of the random wait before a store of one's own that said ErrAgain is read again;
	// ObjectRetryInterval that before PullOnlineServer is asked again. Default to 256 ms.
	CacheRetryInterval  time.Duration `yaml:"cache_retry_interval" json:"cache_retry_interval,omitempty" help:"upper end of the random wait before a route is looked up again"`
	ObjectRetryInterval time.Duration `yaml:"object_retry_interval" json:"object_retry_interval,omitempty" help:"upper end of the random wait before the hook that may know the owner is asked again"`
	// RetryMaxTTL is how often one of the two is called in all, 1 to 100. Defaults to 3.
	RetryMaxTTL int `yaml:"retry_max_ttl" json:"retry_max_ttl,omitempty" help:"how often such a look-up is tried in all"`
	// TransferMaxTTL is how often a request may be forwarded whatever MaxHops says, 1 to 255. Defaults to 16.
	TransferMaxTTL int `yaml:"transfer_max_ttl" json:"transfer_max_ttl,omitempty" help:"hard limit of max_hops"`
	// MaxHops is how often a request may be forwarded, up to TransferMaxTTL; one that follows an object which moves, each time by a newer
	// route, is not counted by it. After the first wrong hop the record is read, so 3 are more
	// than routing needs. Of the node alone. Defaults to 3.
	MaxHops int `yaml:"max_hops" json:"max_hops,omitempty" help:"how often a request may be forwarded from node to node"`

	// SaveDelay is how long after its first change an object is saved, give or take a fifth. Shorter: less is lost with a node;
	// longer: fewer writes. Negative: ObjectSaveInterval counts instead. Defaults to 5 s.
	SaveDelay time.Duration `yaml:"save_delay" json:"save_delay,omitempty" help:"a changed object is saved after so long; negative: after object_save_interval"`
	// MaxUnsavedAge bounds what a crash can lose: when saves failed for so long, the object takes no more requests until one has
	// worked. At least three times the delay of saves. Defaults to that, or 60 s where that is longer.
	MaxUnsavedAge time.Duration `yaml:"max_unsaved_age" json:"max_unsaved_age,omitempty" help:"an object that could not be saved for so long takes no more requests; 0: the larger of 60s and three times the delay"`
	// MaxQueue is how many requests may wait for one object, 1 to 2^20; one more ends with ErrBusy. Of the node alone. Defaults to 1024.
	MaxQueue int `yaml:"max_queue" json:"max_queue,omitempty" help:"requests that may wait for one object"`
	// MaxQueueBytes is how much memory the requests that wait for one object may take; one more ends with ErrBusy, unless it is alone.
	// Defaults to 1 MiB.
	MaxQueueBytes int `yaml:"max_queue_bytes" json:"max_queue_bytes,omitempty" help:"memory of the requests that may wait for one object"`
	// MaxWaiting is how many requests may wait for objects of this node that are not ready to run them. Of the node alone. Defaults
	// to 65536.
	MaxWaiting int `yaml:"max_waiting" json:"max_waiting,omitempty" help:"requests that may wait for all objects that are being found, loaded or moved"`
	// MaxWaitingBytes is how much memory they may take. Of the node alone. Defaults to 256 MiB.
	MaxWaitingBytes int `yaml:"max_waiting_bytes" json:"max_waiting_bytes,omitempty" help:"memory of the requests that may wait for all objects"`
	// MaxRoutes is how many routes the node remembers, up to 2^28, about 130 bytes each; for one more an old one goes. Of the node
	// alone. Defaults to 2^20.
	MaxRoutes int `yaml:"max_routes" json:"max_routes,omitempty" help:"routes to objects of other nodes that are remembered, at about 130 bytes each"`
	// MaxObjects is how many objects may be in memory; a request that would bring one more ends with ErrUnavailable. Of the node alone.
	// Negative: no limit, which is the default.
	MaxObjects int `yaml:"max_objects" json:"max_objects,omitempty" help:"objects in memory; 0 or negative: no limit"`

	// Durable has each answer wait until what the request changed is in the store. Defaults to Off: a crash can lose what
	// MaxUnsavedAge allows.
	Durable Switch `yaml:"durable" json:"durable,omitempty" help:"answers wait for the save"`
	// Dedup is how many requests with an id (Once) an object remembers, up to 1024, with their answers, in its record: they
	// take up to 64 KiB there. Negative: none, which is the default.
	Dedup int `yaml:"dedup" json:"dedup,omitempty" help:"requests with an idempotency key that each object remembers; 0 or negative: none"`
	// ClientDedup is how many requests of each client's session an object remembers, up to 1024, with their answers, in its record: they take up to
	// 32 KiB there, and leave as much for those with an id. A client whose gate was killed sends what was not answered again, at another gate: then it
	// runs once, and gets the answer that it got, where it names the object. As many as a client may have under way for one object are enough. Negative:
	// none, which is the default: such requests end as unknown.
	ClientDedup int `yaml:"client_dedup" json:"client_dedup,omitempty" help:"requests of each client's session that an object remembers, so that those sent again after the death of a gate run once; 0 or negative: none"`
	// ReleaseOnIdle has an idle object given up, so that any node can take it with the next request. Off: this node stays its owner, and
	// the next request loads it here again. Defaults to On.
	ReleaseOnIdle Switch `yaml:"release_on_idle" json:"release_on_idle,omitempty" help:"false: the node stays the owner of objects that left memory"`

	// PrepareTimeout is how long a transfer waits for the target to say that it can take the object, which serves meanwhile. Of the node
	// alone. Defaults to 1 s.
	PrepareTimeout time.Duration `yaml:"prepare_timeout" json:"prepare_timeout,omitempty" help:"how long a transfer waits for the target's consent"`
	// QuiesceTimeout is how long a transfer waits for what the object runs, and its hooks, to end, while new requests wait. Where they have not, the
	// object goes on serving, and the transfer ends with ErrHandoff. Defaults to 2 s.
	QuiesceTimeout time.Duration `yaml:"quiesce_timeout" json:"quiesce_timeout,omitempty" help:"how long a transfer waits for what the object runs, while new requests wait"`
	// Remember has an object brought into memory again, without a request, after its node has died: by its home, RememberRate at a time.
	// Defaults to Off.
	Remember Switch `yaml:"remember" json:"remember,omitempty" help:"after its node died an object is in memory again without a request"`
	// RememberRate is how many such objects the node takes over in a second, 1 to 2^20. Of the node alone. Defaults to 1000.
	RememberRate int `yaml:"remember_rate" json:"remember_rate,omitempty" help:"objects of dead nodes that this one brings into memory in a second"`

	// DrainMoves is how many objects a node that drains moves at once, 1 to 65536; DrainMovesPerNode how many of them to one other
	// node, likewise. Of the node alone. Default to 64 and 16.
	DrainMoves        int `yaml:"drain_moves" json:"drain_moves,omitempty" help:"objects that a drain moves at once"`
	DrainMovesPerNode int `yaml:"drain_moves_per_node" json:"drain_moves_per_node,omitempty" help:"of them to one node"`
	// DrainRate is how many objects a node that drains begins to move in a second, 1 to 2^20, as long as all are moved in time like that. Of the
	// node alone. Defaults to 1000.
	DrainRate int `yaml:"drain_rate" json:"drain_rate,omitempty" help:"objects that a drain moves in a second, while the time allows"`

	// StoreTimeout is how long one call of the store may take. The outcome of a write that takes longer counts as unknown. Of the
	// node alone. Defaults to 4 s: twice that and QuiesceTimeout fit the time-out of calls, see FitCalls.
	StoreTimeout time.Duration `yaml:"store_timeout" json:"store_timeout,omitempty" help:"how long one call of the store may take"`
	// StoreOps is how many calls of the store may be under way at once, 1 to 65536; others wait for their turn. Of the node alone.
	// Defaults to 256.
	StoreOps int `yaml:"store_ops" json:"store_ops,omitempty" help:"calls of the store at the same time"`
}

// DefaultSettings are those of a node for which nobody said anything. MaxUnsavedAge is 0 in them: it follows the delay of saves.
func DefaultSettings() Settings {
	return Settings{
		CacheUpdateInterval: 1800 * time.Second, CacheFreeTimeout: 600 * time.Second,
		ObjectFreeTimeout: 1500 * time.Second, ObjectSaveInterval: 600 * time.Second,
		CacheRetryInterval: 256 * time.Millisecond, ObjectRetryInterval: 256 * time.Millisecond,
		RetryMaxTTL: 3, TransferMaxTTL: 16, MaxHops: 3,
		SaveDelay: 5 * time.Second, MaxQueue: 1024, MaxQueueBytes: 1 << 20, MaxWaiting: 1 << 16, MaxWaitingBytes: 256 << 20, MaxRoutes: 1 << 20,
		Durable: Off, ReleaseOnIdle: On, Remember: Off, RememberRate: 1000, DrainMoves: 64, DrainMovesPerNode: 16, DrainRate: 1000,
		PrepareTimeout: time.Second, QuiesceTimeout: 2 * time.Second,
		StoreTimeout: 4 * time.Second, StoreOps: 256,
	}
}

// Limits of settings.
const (
	leastUnsavedAge = 60 * time.Second
	maxTTL          = 255 // of hops, which entries count in a byte
	maxRetries      = 100
	maxQueue        = 1 << 20
	maxRoutes       = 1 << 28
	maxDedup        = 1024
	maxStoreOps     = 1 << 16
	maxDrainMoves   = 1 << 16
	maxDrainRate    = 1 << 20
	maxRemember     = 1 << 20
)

// withDefaults fills what is zero.
func (s Settings) withDefaults() Settings {
	s = DefaultSettings().merge(s)
	s.MaxObjects, s.Dedup, s.ClientDedup = max(0, s.MaxObjects), max(0, s.Dedup), max(0, s.ClientDedup)
	s.MaxUnsavedAge = cmp.Or(s.MaxUnsavedAge, max(leastUnsavedAge, 3*s.saveDelay()))
	return s
}

// merge returns s with what k says: k is more special, and its zeros say nothing. The default of MaxUnsavedAge follows other settings,
// so all are merged before withDefaults.
func (s Settings) merge(k Settings) Settings {
	over(&s.CacheUpdateInterval, k.CacheUpdateInterval)
	over(&s.CacheFreeTimeout, k.CacheFreeTimeout)
	over(&s.ObjectFreeTimeout, k.ObjectFreeTimeout)
	over(&s.ObjectSaveInterval, k.ObjectSaveInterval)
	over(&s.CacheRetryInterval, k.CacheRetryInterval)
	over(&s.ObjectRetryInterval, k.ObjectRetryInterval)
	over(&s.RetryMaxTTL, k.RetryMaxTTL)
	over(&s.TransferMaxTTL, k.TransferMaxTTL)
	over(&s.MaxHops, k.MaxHops)
	over(&s.SaveDelay, k.SaveDelay)
	over(&s.MaxUnsavedAge, k.MaxUnsavedAge)
	over(&s.MaxQueue, k.MaxQueue)
	over(&s.MaxQueueBytes, k.MaxQueueBytes)
	over(&s.MaxWaiting, k.MaxWaiting)
	over(&s.MaxWaitingBytes, k.MaxWaitingBytes)
	over(&s.MaxRoutes, k.MaxRoutes)
	over(&s.MaxObjects, k.MaxObjects)
	over(&s.Durable, k.Durable)
	over(&s.Dedup, k.Dedup)
	over(&s.ClientDedup, k.ClientDedup)
	over(&s.ReleaseOnIdle, k.ReleaseOnIdle)
	over(&s.PrepareTimeout, k.PrepareTimeout)
	over(&s.QuiesceTimeout, k.QuiesceTimeout)
	over(&s.Remember, k.Remember)
	over(&s.RememberRate, k.RememberRate)
	over(&s.DrainMoves, k.DrainMoves)
	over(&s.DrainMovesPerNode, k.DrainMovesPerNode)
	over(&s.DrainRate, k.DrainRate)
	over(&s.StoreTimeout, k.StoreTimeout)
	over(&s.StoreOps, k.StoreOps)
	return s
}

func over[T comparable](to *T, from T) { *to = cmp.Or(from, *to) }

// saveDelay is how long after a change an object is saved.
func (s Settings) saveDelay() time.Duration {
	if s.SaveDelay < 0 {
		return s.ObjectSaveInterval
	}
	return s.SaveDelay
}

// cacheSeconds is CacheUpdateInterval as routes count time.
func (s *Settings) cacheSeconds() uint32 { return uint32(s.CacheUpdateInterval / time.Second) }

// Validate returns every fault of s, joined, with the defaults where s says nothing.
func (s Settings) Validate() error { return s.withDefaults().validate() }

// validate returns every fault of settings that are complete, joined. Each names the setting as the configuration does.
func (s Settings) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	least := func(name string, d, least time.Duration) {
		if d < least {
			fault("%s %s: expected at least %s", name, d, least)
		}
	}
	between := func(name string, n, from, to int) {
		if n < from || n > to {
			fault("%s %d: expected a number from %d to %d", name, n, from, to)
		}
	}
	least("cache_update_interval", s.CacheUpdateInterval, time.Second)
	least("cache_free_timeout", s.CacheFreeTimeout, time.Second)
	least("object_free_timeout", s.ObjectFreeTimeout, time.Millisecond)
	least("object_save_interval", s.ObjectSaveInterval, time.Millisecond)
	least("cache_retry_interval", s.CacheRetryInterval, time.Millisecond)
	least("object_retry_interval", s.ObjectRetryInterval, time.Millisecond)
	least("prepare_timeout", s.PrepareTimeout, time.Millisecond)
	least("quiesce_timeout", s.QuiesceTimeout, time.Millisecond)
	least("store_timeout", s.StoreTimeout, time.Millisecond)
	if s.SaveDelay >= 0 {
		least("save_delay", s.SaveDelay, time.Millisecond)
	}
	if s.MaxUnsavedAge < 3*s.saveDelay() {
		fault("max_unsaved_age %s: expected at least three times the delay of saves, which is %s: two saves that fail are not to stop the object",
			s.MaxUnsavedAge, s.saveDelay())
	}
	between("retry_max_ttl", s.RetryMaxTTL, 1, maxRetries)
	between("transfer_max_ttl", s.TransferMaxTTL, 1, maxTTL)
	if s.MaxHops < 1 || s.MaxHops > s.TransferMaxTTL {
		fault("max_hops %d: expected a number from 1 to transfer_max_ttl, which is %d", s.MaxHops, s.TransferMaxTTL)
	}
	between("max_queue", s.MaxQueue, 1, maxQueue)
	between("max_queue_bytes", s.MaxQueueBytes, 1<<10, 1<<30)
	if s.MaxWaitingBytes < 1<<20 {
		fault("max_waiting_bytes %d: expected at least 1048576", s.MaxWaitingBytes)
	}
	if s.MaxWaiting < 1 {
		fault("max_waiting %d: expected a number above 0", s.MaxWaiting)
	}
	between("max_routes", s.MaxRoutes, 1, maxRoutes)
	between("dedup", s.Dedup, 0, maxDedup)
	between("client_dedup", s.ClientDedup, 0, maxDedup)
	between("store_ops", s.StoreOps, 1, maxStoreOps)
	between("remember_rate", s.RememberRate, 1, maxRemember)
	between("drain_moves", s.DrainMoves, 1, maxDrainMoves)
	between("drain_moves_per_node", s.DrainMovesPerNode, 1, maxDrainMoves)
	between("drain_rate", s.DrainRate, 1, maxDrainRate)
	return errors.Join(faults...)
}

// FitCalls returns an error where a request that waits while its object moves would not live to see the end of that: what runs has
// QuiesceTimeout to end, the write that moves the object StoreTimeout, and so has the target that has to read the record.
// call is how long requests wait that set no deadline.
func (s Settings) FitCalls(call time.Duration) error {
	s = s.withDefaults()
	if need := s.QuiesceTimeout + 2*s.StoreTimeout; need > call {
		return fmt.Errorf("quiesce_timeout %s and twice store_timeout %s: expected at most %s together, the time-out of calls (actors.ask_timeout), but they are %s: "+
			"requests that wait while their object moves would time out", s.QuiesceTimeout, s.StoreTimeout, call, need)
	}
	return nil
}

// ofNode names what k sets although only a node can: an error, since it would do nothing for a kind.
func (s Settings) ofNode() error {
	var faults []error
	for _, n := range []struct {
		name string
		set  bool
	}{
		{"cache_free_timeout", s.CacheFreeTimeout != 0},
		{"transfer_max_ttl", s.TransferMaxTTL != 0},
		{"max_hops", s.MaxHops != 0},
		{"max_queue", s.MaxQueue != 0},
		{"max_waiting", s.MaxWaiting != 0},
		{"max_waiting_bytes", s.MaxWaitingBytes != 0},
		{"max_routes", s.MaxRoutes != 0},
		{"max_objects", s.MaxObjects != 0},
		{"prepare_timeout", s.PrepareTimeout != 0},
		{"remember_rate", s.RememberRate != 0},
		{"drain_moves", s.DrainMoves != 0},
		{"drain_moves_per_node", s.DrainMovesPerNode != 0},
		{"drain_rate", s.DrainRate != 0},
		{"store_timeout", s.StoreTimeout != 0},
		{"store_ops", s.StoreOps != 0},
	} {
		if n.set {
			faults = append(faults, fmt.Errorf("%s: is of the node, not of a kind; expected it in the node's settings", n.name))
		}
	}
	return errors.Join(faults...)
}

// Switch is a setting that is on, off, or not said. In a configuration it is true or false.
type Switch uint8

// The positions of a Switch.
const (
	Inherit Switch = iota // as the settings behind say
	On
	Off
)

// String returns true, false, or nothing.
func (s Switch) String() string {
	switch s {
	case On:
		return "true"
	case Off:
		return "false"
	default:
		return ""
	}
}

// MarshalText implements encoding.TextMarshaler.
func (s Switch) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler: true, false, or nothing.
func (s *Switch) UnmarshalText(b []byte) error {
	switch string(b) {
	case "true":
		*s = On
	case "false":
		*s = Off
	case "":
		*s = Inherit
	default:
		return fmt.Errorf("zrouter: %q: expected %s", b, s.Expected())
	}
	return nil
}

// Expected says what a configuration may say.
func (s *Switch) Expected() string { return "true or false" }
