package zroute

import (
	"cmp"
	"slices"

	"zgame/zdiscovery"
	"zgame/zmsg"
)

// order is the sequence in which the candidates of one message are tried. It is a value, and next a pure function of
// it.
//
// An id that is not sharded has remote candidates only here: first the preferred one, then the others in list order, or, with
// a strategy, in the order in which it picks among those that are left and ready.
// The candidates of a sharded id are local and remote together, by falling score; equal scores, and all of them when
// the message has no key, by node id and actor id. So each node makes the same sequence, and when the first is gone the
// second is the one that gets the key anyway.
type order struct {
	remote    []RemoteCandidate
	preferred int
	given     int            // how many next has returned
	strategy  RemoteStrategy // nil: list order

	sharded bool
	keyed   bool
	key     uint64
	self    string // node id of the local candidates
	local   []LocalCandidate
	last    rank
}

// rank is a candidate's place among those of a sharded id.
type rank struct {
	score uint64
	node  string
	actor uint64
}

// before reports whether a is tried before b.
func (a rank) before(b rank) bool {
	if a.score != b.score {
		return a.score > b.score
	}
	return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.actor, b.actor)) < 0
}

// next returns the next candidate for m, local or remote, or neither at the end. What it returned before is not good any
// more.
func (o *order) next(m *zmsg.Message) (*LocalCandidate, *RemoteCandidate) {
	switch {
	case o.sharded:
		return o.nextShard()
	case o.strategy != nil && o.given > 0:
		return nil, o.nextBest(m)
	}
	if o.given >= len(o.remote) {
		return nil, nil
	}
	i := o.given
	switch {
	case i == 0:
		i = o.preferred
	case i <= o.preferred:
		i--
	}
	o.given++
	return nil, &o.remote[i]
}

// nextBest lets the strategy pick once more, without those that were tried. It copies the list: falling back is rare.
func (o *order) nextBest(m *zmsg.Message) *RemoteCandidate {
	if o.given == 1 {
		left := make([]RemoteCandidate, 0, len(o.remote)-1)
		for i := range o.remote {
			if i != o.preferred && o.remote[i].State != zdiscovery.Draining {
				left = append(left, o.remote[i])
			}
		}
		o.remote = left
	} else {
		o.remote = slices.Delete(o.remote, o.preferred, o.preferred+1)
	}
	if len(o.remote) == 0 {
		return nil
	}
	i := inRange(o.strategy.Pick(m, o.remote), len(o.remote))
	if i < 0 {
		o.remote = o.remote[:0]
		return nil
	}
	o.preferred = i
	o.given++
	return &o.remote[i]
}

func (o *order) nextShard() (l *LocalCandidate, r *RemoteCandidate) {
	if o.given >= len(o.local)+len(o.remote) {
		return nil, nil
	}
	var best rank
	for i := range o.local {
		if k := o.rank(o.self, o.local[i].Actor, 0); o.follows(k) && (l == nil || k.before(best)) {
			best, l = k, &o.local[i]
		}
	}
	for i := range o.remote {
		c := &o.remote[i]
		if k := o.rank(c.Node.ID, c.Actor, c.seed); o.follows(k) && (l == nil && r == nil || k.before(best)) {
			best, l, r = k, nil, c
		}
	}
	o.last = best
	o.given++
	return l, r
}

func (o *order) rank(node string, actor, seed uint64) rank {
	k := rank{node: node, actor: actor}
	if o.keyed {
		if seed == 0 {
			seed = scoreSeed(node, actor)
		}
		k.score = score(o.key, seed)
	}
	return k
}

// follows reports whether k comes after the candidate that was returned last.
func (o *order) follows(k rank) bool { return o.given == 0 || o.last.before(k) }

// shardKey takes the key of a sharded id from m: the marked field, or the session.
func shardKey(m *zmsg.Message, field uint32) (key uint64, ok bool) {
	if field != 0 {
		return fieldKey(m, field)
	}
	return DefaultKey(m)
}
