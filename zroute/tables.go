package zroute

import (
	"slices"

	"zgame/zmsg"
)

// LocalTable is where a Dispatcher looks up actors of its own node. Where it is a LocalViewer too, nothing is copied.
type LocalTable interface {
	Lookup(id uint32) []LocalCandidate
}

// LocalViewer gives read-only views of a LocalTable. *Local is one.
type LocalViewer interface {
	View(id uint32) []LocalCandidate
	ClientView(id uint32) []LocalCandidate
}

// RemoteTable is where a Dispatcher looks up actors of other nodes. Where it is a RemoteViewer too, nothing is copied
// or searched.
type RemoteTable interface {
	Candidates() []RemoteCandidate
}

// RemoteViewer gives read-only views of a RemoteTable by message id. *Remote is one.
type RemoteViewer interface {
	ByID(id uint32) []RemoteCandidate
	ClientByID(id uint32) []RemoteCandidate
}

// DrainingViewer gives read-only views that hold candidates of draining nodes too. *Remote is one.
type DrainingViewer interface {
	EveryByID(id uint32, client bool) []RemoteCandidate
}

// Sharder says of a table whether a message id is sharded, and which field of the body is the key (0: the session).
// Without it a Dispatcher looks at each candidate. *Local and *Remote are Sharders.
type Sharder interface {
	Shard(id uint32) (field uint32, sharded bool)
}

// Shard reports whether an actor advertises id as sharded. Where fields differ the highest number counts, so that
// all nodes agree.
func (l *Local) Shard(id uint32) (field uint32, sharded bool) { return l.table.Load().Shard(id) }

// Shard implements Sharder, for a table that may be nil.
func (t *localTable) Shard(id uint32) (field uint32, sharded bool) {
	if t != nil {
		if e := (*t)[id]; e != nil {
			return e.field, e.sharded
		}
	}
	return 0, false
}

// Shard reports whether an actor advertises id as sharded. Where fields differ the highest number counts, so that
// all nodes agree.
func (r *Remote) Shard(id uint32) (field uint32, sharded bool) { return r.load().Shard(id) }

// Shard implements Sharder.
func (t *remoteTable) Shard(id uint32) (field uint32, sharded bool) {
	if e := t.byID[id]; e != nil {
		return e.field, e.sharded
	}
	return 0, false
}

var (
	_ LocalTable   = (*Local)(nil)
	_ LocalViewer  = (*Local)(nil)
	_ Sharder      = (*Local)(nil)
	_ RemoteTable  = (*Remote)(nil)
	_ RemoteViewer = (*Remote)(nil)
	_ Sharder      = (*Remote)(nil)

	_ DrainingViewer = (*Remote)(nil)

	_ LocalTable  = (*localTable)(nil)
	_ LocalViewer = (*localTable)(nil)
	_ Sharder     = (*localTable)(nil)

	_ RemoteTable    = (*remoteTable)(nil)
	_ RemoteViewer   = (*remoteTable)(nil)
	_ DrainingViewer = (*remoteTable)(nil)
	_ Sharder        = (*remoteTable)(nil)
)

// lookup finds the candidates of messages in two tables, by views where they offer them.
type lookup struct {
	local       LocalTable
	localView   LocalViewer
	localShard  Sharder
	remote      RemoteTable
	remoteView  RemoteViewer
	remoteShard Sharder
	remoteEvery DrainingViewer
}

func newLookup(l LocalTable, r RemoteTable) lookup {
	k := lookup{local: l, remote: r}
	k.localView, _ = l.(LocalViewer)
	k.localShard, _ = l.(Sharder)
	k.remoteView, _ = r.(RemoteViewer)
	k.remoteShard, _ = r.(Sharder)
	k.remoteEvery, _ = r.(DrainingViewer)
	return k
}

func (k *lookup) locals(id uint32, client bool) []LocalCandidate {
	switch {
	case k.local == nil:
		return nil
	case k.localView != nil && client:
		return k.localView.ClientView(id)
	case k.localView != nil:
		return k.localView.View(id)
	}
	c := k.local.Lookup(id)
	if client {
		c = slices.DeleteFunc(c, func(c LocalCandidate) bool { return !c.Advert.Client })
	}
	return c
}

func (k *lookup) remotes(id uint32, client bool) []RemoteCandidate {
	switch {
	case k.remote == nil:
		return nil
	case k.remoteView != nil && client:
		return k.remoteView.ClientByID(id)
	case k.remoteView != nil:
		return k.remoteView.ByID(id)
	}
	return slices.DeleteFunc(k.remote.Candidates(), func(c RemoteCandidate) bool {
		ad, ok := c.Advert(id)
		return !ok || client && !ad.Client
	})
}

// every is remotes with those of draining nodes, where the table tells.
func (k *lookup) every(id uint32, client bool) []RemoteCandidate {
	if k.remoteEvery == nil {
		return k.remotes(id, client)
	}
	return k.remoteEvery.EveryByID(id, client)
}

func (k *lookup) shard(id uint32) (field uint32, sharded bool) {
	see := func(ad zmsg.Advert) {
		if ad.Sharded {
			field, sharded = max(field, ad.KeyField), true
		}
	}
	switch {
	case k.localShard != nil:
		field, sharded = k.localShard.Shard(id)
	case k.local != nil:
		for _, c := range k.local.Lookup(id) {
			see(c.Advert)
		}
	}
	switch {
	case k.remoteShard != nil:
		f, s := k.remoteShard.Shard(id)
		field, sharded = max(field, f), sharded || s
	case k.remote != nil:
		for _, c := range k.remote.Candidates() {
			ad, _ := c.Advert(id)
			see(ad)
		}
	}
	return field, sharded
}
