package zroute

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"zgame/zmsg"
)

// ErrRegistered says that the actor is in the table already.
var ErrRegistered = errors.New("zroute: actor is registered already")

// Local is the table of this node: message id to the actors that handle it, in the order of their registration.
//
// Readers take a snapshot behind an atomic pointer and never wait. A change copies the map of ids and builds new
// slices only for the ids that it touches. The zero value is ready to use.
type Local struct {
	table atomic.Pointer[localTable]

	mu       sync.Mutex // writers
	actors   map[uint64]registration
	onChange []func()
}

// localTable is one state of a Local: it and what it points to are never changed once stored.
type localTable map[uint32]*localEntry

// localEntry is what the table knows about one id.
type localEntry struct {
	all     []LocalCandidate
	client  []LocalCandidate // those that clients may call; the same slice as all where that is everyone
	sharded bool             // at least one advertises the id as sharded
	field   uint32           // the key's field, the highest of those that are advertised
}

type registration struct {
	typ string
	ads []zmsg.Advert
}

// Entry is what a snapshot tells about one actor of this node.
type Entry struct {
	Actor   uint64
	Type    string
	Adverts []zmsg.Advert // sorted by id, read only
}

// Register adds an actor with the message ids that it handles. An actor without any takes part in nothing and is
// not kept. Errors: ErrRegistered, or an id that is named twice.
func (l *Local) Register(actor uint64, typ string, t Target, ads []zmsg.Advert) error {
	if len(ads) == 0 {
		return nil
	}
	ads = slices.SortedFunc(slices.Values(ads), func(a, b zmsg.Advert) int { return cmp.Compare(a.ID, b.ID) })
	for i := 1; i < len(ads); i++ {
		if ads[i].ID == ads[i-1].ID {
			return fmt.Errorf("zroute: actor %d (%s) advertises message id %d twice", actor, typ, ads[i].ID)
		}
	}
	changed, err := l.register(actor, typ, t, ads)
	if err != nil {
		return err
	}
	tell(changed)
	return nil
}

func (l *Local) register(actor uint64, typ string, t Target, ads []zmsg.Advert) ([]func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, there := l.actors[actor]; there {
		return nil, fmt.Errorf("%w: %d (%s)", ErrRegistered, actor, typ)
	}
	if l.actors == nil {
		l.actors = make(map[uint64]registration)
	}
	l.actors[actor] = registration{typ, ads}
	table := l.copyTable()
	for _, ad := range ads {
		c := LocalCandidate{Actor: actor, Type: typ, Target: t, Advert: ad}
		var all []LocalCandidate
		if old := table[ad.ID]; old != nil {
			all = old.all
		}
		// Clipped: the append must not write behind a slice that readers share.
		table[ad.ID] = newLocalEntry(append(slices.Clip(all), c))
	}
	l.table.Store(&table)
	return l.onChange, nil
}

// Unregister takes an actor out of the table; one that is not there is no fault.
func (l *Local) Unregister(actor uint64) { tell(l.unregister(actor)) }

func (l *Local) unregister(actor uint64) []func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	reg, there := l.actors[actor]
	if !there {
		return nil
	}
	delete(l.actors, actor)
	table := l.copyTable()
	for _, ad := range reg.ads {
		old := table[ad.ID].all
		left := make([]LocalCandidate, 0, len(old)-1)
		for i := range old {
			if old[i].Actor != actor {
				left = append(left, old[i])
			}
		}
		if len(left) == 0 {
			delete(table, ad.ID)
			continue
		}
		table[ad.ID] = newLocalEntry(left)
	}
	l.table.Store(&table)
	return l.onChange
}

// copyTable returns a copy of the map of ids that may be changed; the caller holds mu.
func (l *Local) copyTable() localTable {
	if p := l.table.Load(); p != nil {
		return maps.Clone(*p)
	}
	return make(localTable)
}

func newLocalEntry(all []LocalCandidate) *localEntry {
	e := &localEntry{all: all}
	n := 0
	for i := range all {
		if all[i].Advert.Client {
			n++
		}
		if all[i].Advert.Sharded {
			e.sharded, e.field = true, max(e.field, all[i].Advert.KeyField)
		}
	}
	switch n {
	case 0:
	case len(all):
		e.client = all
	default:
		e.client = make([]LocalCandidate, 0, n)
		for i := range all {
			if all[i].Advert.Client {
				e.client = append(e.client, all[i])
			}
		}
	}
	return e
}

// View returns the candidates for id without copying: the slice is never changed, and must not be.
func (l *Local) View(id uint32) []LocalCandidate { return l.table.Load().View(id) }

// View implements LocalViewer, for a table that may be nil.
func (t *localTable) View(id uint32) []LocalCandidate {
	if t != nil {
		if e := (*t)[id]; e != nil {
			return e.all
		}
	}
	return nil
}

// ClientView is View without the candidates that clients may not call.
func (l *Local) ClientView(id uint32) []LocalCandidate { return l.table.Load().ClientView(id) }

// ClientView implements LocalViewer, for a table that may be nil.
func (t *localTable) ClientView(id uint32) []LocalCandidate {
	if t != nil {
		if e := (*t)[id]; e != nil {
			return e.client
		}
	}
	return nil
}

// Lookup returns a copy of the candidates for id.
func (l *Local) Lookup(id uint32) []LocalCandidate { return slices.Clone(l.View(id)) }

// Lookup implements LocalTable.
func (t *localTable) Lookup(id uint32) []LocalCandidate { return slices.Clone(t.View(id)) }

// Adverts returns the actors of the table, sorted by actor: what discovery tells the other nodes.
func (l *Local) Adverts() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]Entry, 0, len(l.actors))
	for actor, reg := range l.actors {
		out = append(out, Entry{Actor: actor, Type: reg.typ, Adverts: reg.ads})
	}
	slices.SortFunc(out, func(a, b Entry) int { return cmp.Compare(a.Actor, b.Actor) })
	return out
}

// OnChange calls f after each change from now on, on the goroutine that made it, with no lock held. f reads the new
// state by Adverts; two changes at once may lead to two calls that both see the last state.
func (l *Local) OnChange(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onChange = append(slices.Clip(l.onChange), f)
}

func tell(fs []func()) {
	for _, f := range fs {
		f()
	}
}
