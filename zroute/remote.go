package zroute

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"zgame/zdiscovery"
	"zgame/zmsg"
)

// Remote is the table of the other nodes' actors, made of what discovery knows. Nodes in state Ready take part; what
// draining ones have is kept apart, for strategies that ask for it (KeepDraining). Lists are sorted by node id, then actor id: the
// same order on every node.
//
// Readers take a snapshot behind an atomic pointer and never wait. Apply keeps the slices of ids whose candidates did
// not change. The zero value is ready to use.
type Remote struct {
	table atomic.Pointer[remoteTable]
	mu    sync.Mutex // one Apply at a time
}

// remoteTable is never changed once stored.
type remoteTable struct {
	nodes     []zmsg.NodeRef    // those that are ready or draining, sorted, with actors or without
	all       []RemoteCandidate // draining ones too
	byID      map[uint32]*remoteEntry
	placement uint64 // rises when more than loads have changed: by key, a strategy may pick others
}

// remoteEntry is what the table knows about one id.
type remoteEntry struct {
	ready   remoteLists
	every   remoteLists // draining ones too; the same as ready where there is none
	sharded bool        // at least one that is ready advertises the id as sharded
	field   uint32      // the key's field, the highest of those that are advertised
}

type remoteLists struct {
	all    []RemoteCandidate
	client []RemoteCandidate // those that clients may call; the same slice as all where that is everyone
}

// Apply makes s the state of the cluster as seen from self, whose own record is left out whatever its epoch is.
func (r *Remote) Apply(s *zdiscovery.Snapshot, self zmsg.NodeRef) {
	var all []RemoteCandidate
	var nodes []zmsg.NodeRef
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.State != zdiscovery.Ready && n.State != zdiscovery.Draining || n.Ref.ID == self.ID {
			continue
		}
		nodes = append(nodes, n.Ref)
		for _, a := range n.Actors {
			all = append(all, RemoteCandidate{
				seed: scoreSeed(n.Ref.ID, a.ID),
				Node: n.Ref, Actor: a.ID, Type: a.Type, Adverts: sortedAdverts(a.Adverts),
				State: n.State, Zone: n.Zone, Version: n.Version, Weight: n.Weight, Load: n.Load, Labels: n.Labels,
			})
		}
	}
	slices.SortFunc(nodes, compareNodes)
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
	next := &remoteTable{nodes: nodes, all: all, byID: make(map[uint32]*remoteEntry, len(byID)), placement: old.placement}
	if slices.EqualFunc(all, old.all, equalRemote) && slices.Equal(nodes, old.nodes) {
		return
	}
	if !slices.EqualFunc(all, old.all, equalPlace) {
		next.placement++
	}
	for id, cands := range byID {
		if e := old.byID[id]; e != nil && slices.EqualFunc(e.every.all, cands, equalRemote) {
			next.byID[id] = e
			continue
		}
		next.byID[id] = newRemoteEntry(id, slices.Clip(cands))
	}
	r.table.Store(next)
}

func compareNodes(a, b zmsg.NodeRef) int {
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Epoch, b.Epoch))
}

// has reports whether the node is in the list.
func (t *remoteTable) has(n zmsg.NodeRef) bool {
	_, ok := slices.BinarySearchFunc(t.nodes, n, compareNodes)
	return ok
}

// sortedAdverts returns ads sorted by id, the first of an id alone: what came over the network is not trusted to be so.
func sortedAdverts(ads []zmsg.Advert) []zmsg.Advert {
	sorted := true
	for i := 1; i < len(ads) && sorted; i++ {
		sorted = ads[i-1].ID < ads[i].ID
	}
	if sorted {
		return ads
	}
	ads = slices.Clone(ads)
	slices.SortStableFunc(ads, func(a, b zmsg.Advert) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(ads, func(a, b zmsg.Advert) bool { return a.ID == b.ID })
}

func newRemoteEntry(id uint32, every []RemoteCandidate) *remoteEntry {
	e := &remoteEntry{every: newRemoteLists(id, every)}
	e.ready = e.every
	if slices.ContainsFunc(every, isDraining) {
		e.ready = newRemoteLists(id, slices.DeleteFunc(slices.Clone(every), isDraining))
	}
	for i := range e.ready.all {
		if ad, _ := e.ready.all[i].Advert(id); ad.Sharded {
			e.sharded, e.field = true, max(e.field, ad.KeyField)
		}
	}
	return e
}

func isDraining(c RemoteCandidate) bool { return c.State == zdiscovery.Draining }

func newRemoteLists(id uint32, all []RemoteCandidate) remoteLists {
	l := remoteLists{all: all}
	n := 0
	for i := range all {
		if ad, _ := all[i].Advert(id); ad.Client {
			n++
		}
	}
	switch n {
	case 0:
	case len(all):
		l.client = all
	default:
		l.client = make([]RemoteCandidate, 0, n)
		for i := range all {
			if ad, _ := all[i].Advert(id); ad.Client {
				l.client = append(l.client, all[i])
			}
		}
	}
	return l
}

var emptyRemote = &remoteTable{}

func (r *Remote) load() *remoteTable {
	if t := r.table.Load(); t != nil {
		return t
	}
	return emptyRemote
}

// ByID returns the candidates that advertise id without copying: the slice is never changed, and must not be.
func (r *Remote) ByID(id uint32) []RemoteCandidate { return r.load().ByID(id) }

// ClientByID is ByID without the candidates that clients may not call.
func (r *Remote) ClientByID(id uint32) []RemoteCandidate { return r.load().ClientByID(id) }

// EveryByID is ByID, or ClientByID, with the candidates of draining nodes.
func (r *Remote) EveryByID(id uint32, client bool) []RemoteCandidate {
	return r.load().EveryByID(id, client)
}

// Candidates returns a copy of all candidates that are ready, for any id.
func (r *Remote) Candidates() []RemoteCandidate { return r.load().Candidates() }

// ByID implements RemoteViewer.
func (t *remoteTable) ByID(id uint32) []RemoteCandidate {
	if e := t.byID[id]; e != nil {
		return e.ready.all
	}
	return nil
}

// ClientByID implements RemoteViewer.
func (t *remoteTable) ClientByID(id uint32) []RemoteCandidate {
	if e := t.byID[id]; e != nil {
		return e.ready.client
	}
	return nil
}

// EveryByID implements DrainingViewer.
func (t *remoteTable) EveryByID(id uint32, client bool) []RemoteCandidate {
	e := t.byID[id]
	switch {
	case e == nil:
		return nil
	case client:
		return e.every.client
	}
	return e.every.all
}

// Candidates implements RemoteTable.
func (t *remoteTable) Candidates() []RemoteCandidate {
	return slices.DeleteFunc(slices.Clone(t.all), isDraining)
}
