package zrouter

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/zrouter/internal/drain"
)

// placement says where an object of one kind would live if nobody owned it: by weighted rendezvous hash over the nodes that are
// ready and host the kind, those of the key's zone first, and those that can load its state before all. It is made of one list of nodes
// and never changes, so all may read it.
//
// All nodes that have the same list give the same answer. Where a node joins or leaves, or a weight changes, keys move only to or
// from that node.
type placement struct {
	all   []homeNode
	zones map[uint32][]homeNode // by number, of those nodes whose zone is one
}

// homeNode is one candidate. The epoch is no part of the seed: a node that starts again gets its keys back.
type homeNode struct {
	ref    zmsg.NodeRef
	seed   uint64
	weight float64
	schema uint32 // the newest version of states that it can load
}

// newPlacement makes it for the kind typ, without the node called not, "" for none; s may be nil.
func newPlacement(s *zdiscovery.Snapshot, typ uint32, not string) *placement {
	p := &placement{}
	if s == nil {
		return p
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		at := slices.IndexFunc(n.Kinds, func(k zdiscovery.Kind) bool { return k.Type == typ })
		if n.State != zdiscovery.Ready || n.Ref.ID == not || at < 0 {
			continue
		}
		h := homeNode{n.Ref, zmsg.Mix(zmsg.HashBytes(n.Ref.ID)), float64(cmp.Or(n.Weight, zdiscovery.DefaultWeight)), n.Kinds[at].Schema}
		p.all = append(p.all, h)
		if z, ok := zoneNumber(n.Zone); ok {
			if p.zones == nil {
				p.zones = map[uint32][]homeNode{}
			}
			p.zones[z] = append(p.zones[z], h)
		}
	}
	return p
}

// zoneNumber returns the number that a node's zone is, if it is one: written as a key's zone is, without leading zeros.
func zoneNumber(zone string) (uint32, bool) {
	n, err := strconv.ParseUint(zone, 10, 32)
	if err != nil || n == 0 || zone[0] == '0' || zone[0] == '+' {
		return 0, false
	}
	return uint32(n), true
}

// home returns the node where k would live, whose state has the version schema, 0 for none yet; zero where there is none. While programs of
// several versions run side by side, an object lives where its state can be loaded, in its zone or not; where it cannot be anywhere, its home is
// one that says so. home does not allocate.
func (p *placement) home(k zmsg.Key, schema uint32) zmsg.NodeRef {
	for _, least := range [2]uint32{schema, 0} {
		if n := best(p.zones[k.Zone], k, least); n != nil { // no node has zone 0
			return n.ref
		}
		if n := best(p.all, k, least); n != nil {
			return n.ref
		}
	}
	return zmsg.NodeRef{}
}

// best returns the node of nodes where k would live, of those that know states of version schema; nil where there is none.
func best(nodes []homeNode, k zmsg.Key, schema uint32) *homeNode {
	if len(nodes) == 0 {
		return nil
	}
	key := placeSeed(k)
	best, top := (*homeNode)(nil), 0.0
	for i := range nodes {
		n := &nodes[i]
		if n.schema < schema {
			continue
		}
		// The score is weight / -ln(u) with u = 1 - v in (0, 1): shares are as the weights are. It is below weight / v, which saves
		// nearly all logarithms.
		v := n.draw(key)
		if n.weight < top*v {
			continue
		}
		s := n.weight / -math.Log1p(-v)
		if s > top || s == top && (best == nil || n.ref.ID < best.ref.ID) {
			best, top = n, s
		}
	}
	return best
}

func placeSeed(k zmsg.Key) uint64 {
	return zmsg.HashBytes(k.ID) ^ zmsg.Mix(uint64(k.Type)<<32|uint64(k.Zone))
}

// draw is a number in (0, 1) for a key on the node. 53 bits fit a float64; int64 because that conversion is one instruction.
func (n *homeNode) draw(key uint64) float64 {
	return (float64(int64(^zmsg.Mix(key^n.seed)>>11)) + 0.5) * 0x1p-53
}

// target returns where k, whose state has the version schema, is to be moved: the best by the hash of those that can load it with the best
// standing, of the key's zone unless all of that are away; zero where there is no node.
func (p *placement) target(k zmsg.Key, schema uint32, standing func(zmsg.NodeRef) drain.Standing) zmsg.NodeRef {
	if k.Zone != 0 {
		if to, how := bestOf(p.zones[k.Zone], k, schema, standing); how < drain.Away {
			return to
		}
	}
	to, _ := bestOf(p.all, k, schema, standing)
	return to
}

func bestOf(nodes []homeNode, k zmsg.Key, schema uint32, standing func(zmsg.NodeRef) drain.Standing) (best zmsg.NodeRef, how drain.Standing) {
	key, top := placeSeed(k), 0.0
	how = drain.Away + 1
	for i := range nodes {
		n := &nodes[i]
		is := standing(n.ref)
		if is > how || n.schema < schema {
			continue
		}
		s := n.weight / -math.Log1p(-n.draw(key))
		if is < how || s > top || s == top && n.ref.ID < best.ID {
			best, how, top = n.ref, is, s
		}
	}
	return best, how
}
