package zroute

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"zgame/zdiscovery"
	"zgame/zmsg"
)

// Remote is the table of the other nodes' actors, made of what discovery knows. Only nodes in state Ready take part.
// Lists are sorted by node id, then actor id: the same order on every node.
//
// Readers take a snapshot behind an atomic pointer and never wait. Apply keeps the slices of ids whose candidates did
// not change. The zero value is ready to use.
type Remote struct {
	table atomic.Pointer[remoteTable]
	mu    sync.Mutex // one Apply at a time
}

// remoteTable is never changed once stored.
type remoteTable struct {
	all  []RemoteCandidate
	byID map[uint32]*remoteEntry
}

// remoteEntry is what the table knows about one id.
type remoteEntry struct {
	all     []RemoteCandidate
	client  []RemoteCandidate // those that clients may call; the same slice as all where that is everyone
	sharded bool              // at least one advertises the id as sharded
	field   uint32            // the key's field, the highest of those that are advertised
}

// Apply makes s the state of the cluster as seen from self, whose own record is left out whatever its epoch is.
func (r *Remote) Apply(s *zdiscovery.Snapshot, self zmsg.NodeRef) {
	var all []RemoteCandidate
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.State != zdiscovery.Ready || n.Ref.ID == self.ID {
			continue
		}
		for _, a := range n.Actors {
			all = append(all, RemoteCandidate{Node: n.Ref, Actor: a.ID, Type: a.Type, Adverts: sortedAdverts(a.Adverts)})
		}
	}
	slices.SortStableFunc(all, func(a, b RemoteCandidate) int { return compareRemote(&a, &b) })

	byID := make(map[uint32][]RemoteCandidate)
	for i := range all {
		for _, ad := range all[i].Adverts {
			byID[ad.ID] = append(byID[ad.ID], all[i])
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.load()
	next := &remoteTable{all: all, byID: make(map[uint32]*remoteEntry, len(byID))}
	if slices.EqualFunc(all, old.all, equalRemote) {
		return
	}
	for id, cands := range byID {
		if e := old.byID[id]; e != nil && slices.EqualFunc(e.all, cands, equalRemote) {
			next.byID[id] = e
			continue
		}
		next.byID[id] = newRemoteEntry(id, slices.Clip(cands))
	}
	r.table.Store(next)
}

// sortedAdverts returns ads sorted by id, the first of an id alone: what came over the network is not trusted to be so.
func sortedAdverts(ads []zmsg.Advert) []zmsg.Advert {
	ads = slices.Clone(ads)
	slices.SortStableFunc(ads, func(a, b zmsg.Advert) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(ads, func(a, b zmsg.Advert) bool { return a.ID == b.ID })
}

func newRemoteEntry(id uint32, all []RemoteCandidate) *remoteEntry {
	e := &remoteEntry{all: all}
	n := 0
	for i := range all {
		ad, _ := all[i].Advert(id)
		if ad.Client {
			n++
		}
		if ad.Sharded {
			e.sharded, e.field = true, max(e.field, ad.KeyField)
		}
	}
	switch n {
	case 0:
	case len(all):
		e.client = all
	default:
		e.client = make([]RemoteCandidate, 0, n)
		for i := range all {
			if ad, _ := all[i].Advert(id); ad.Client {
				e.client = append(e.client, all[i])
			}
		}
	}
	return e
}

var emptyRemote = &remoteTable{}

func (r *Remote) load() *remoteTable {
	if t := r.table.Load(); t != nil {
		return t
	}
	return emptyRemote
}

// ByID returns the candidates that advertise id without copying: the slice is never changed, and must not be.
func (r *Remote) ByID(id uint32) []RemoteCandidate {
	if e := r.load().byID[id]; e != nil {
		return e.all
	}
	return nil
}

// ClientByID is ByID without the candidates that clients may not call.
func (r *Remote) ClientByID(id uint32) []RemoteCandidate {
	if e := r.load().byID[id]; e != nil {
		return e.client
	}
	return nil
}

// Candidates returns a copy of all candidates, for any id.
func (r *Remote) Candidates() []RemoteCandidate { return slices.Clone(r.load().all) }
