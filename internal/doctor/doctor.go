// Package doctor says what is wrong, or will be, with where a node runs and with a cluster. It decides; what there is, others look at.
package doctor

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"zgame/zdiscovery"
)

// Level is how bad a finding is.
type Level uint8

// The levels.
const (
	Good  Level = iota // it was looked at, and is as it should be
	Note               // worth knowing
	Warn               // it will hurt some time
	Fault              // it does not work
)

// String is the level as it is printed.
func (l Level) String() string { return [...]string{"ok", "note", "WARN", "FAULT"}[l] }

// Finding is one thing that was looked at.
type Finding struct {
	Level  Level
	About  string
	Text   string
	Remedy string // what to do; "" where nothing is to be
}

// Facts are what there is.
type Facts struct {
	Machine     Limits
	MemoryLimit uint64 // GOMEMLIMIT; math.MaxInt64: none
	Gate        bool   // the settings have one
	MaxSessions int    // and so many
	Others      int    // connections besides that may be open
	Unbounded   []string
	Files       error // what is wrong with the files that the settings name
	Servers     error // why bus, discovery or store cannot be used
	Nodes       []Node
}

// Node is a node of the cluster.
type Node struct {
	Record zdiscovery.Node
	Asked  bool  // its admin port
	Err    error // why that does not answer
	Skew   time.Duration
	Rate   float64 // of its clock, by ours; 0: not known
}

// idle is what a session costs that does nothing, with its goroutine, in bytes: docs/benchmarks.md.
const idle = 10 << 10

// The clocks of nodes may differ by so much.
const (
	maxSkew = 5 * time.Second
	maxRate = 0.1 // leases hold to a third
)

// Diagnose returns what there is to say, the machine first.
func Diagnose(f *Facts) []Finding {
	var all []Finding
	add := func(l Level, about, remedy, format string, args ...any) {
		all = append(all, Finding{l, about, fmt.Sprintf(format, args...), remedy})
	}
	f.machine(add)
	if len(f.Unbounded) > 0 {
		add(Warn, "limits", "give each a number: what has no limit lets one client take what all others need", "no limit: %s", strings.Join(f.Unbounded, ", "))
	} else {
		add(Good, "limits", "", "all limits of clients are set")
	}
	if f.Files != nil {
		add(Fault, "settings", "put files there that fit, or correct the settings", "files that the settings name have faults:\n%v", f.Files)
	}
	if f.Servers != nil {
		add(Fault, "servers", "a node with these settings does not start", "%v", f.Servers)
	} else {
		add(Good, "servers", "", "bus, discovery and store answer")
	}
	f.cluster(add)
	return all
}

type adder func(l Level, about, remedy, format string, args ...any)

func (f *Facts) machine(add adder) {
	if need := uint64(f.MaxSessions + f.Others); !f.Gate || f.Machine.OpenFiles == 0 {
		add(Note, "files", "", "not looked at: no gate in the settings, or a system that does not tell")
	} else if f.Machine.OpenFiles < need {
		add(Warn, "files", fmt.Sprintf("raise the limit (ulimit -n, LimitNOFILE=%d), or lower gate.max_sessions", need),
			"%d may be open; gate.max_sessions and what there is besides can be %d: accepting ends with errors before the limit of sessions turns clients away", f.Machine.OpenFiles, need)
	} else {
		add(Good, "files", "", "%d may be open, %d are needed at most", f.Machine.OpenFiles, need)
	}
	memory := f.Machine.Memory
	switch need := uint64(f.MaxSessions) * idle; {
	case memory == 0:
		add(Note, "memory", "", "not looked at: the system does not tell")
	case f.Gate && need > memory/2:
		add(Warn, "memory", "lower gate.max_sessions, or give the node more memory",
			"%s; gate.max_sessions idle sessions alone take %s", bytes(memory), bytes(need))
	case f.MemoryLimit >= math.MaxInt64:
		add(Note, "memory", fmt.Sprintf("set GOMEMLIMIT to about nine tenths of it (GOMEMLIMIT=%dMiB), so that the collector works harder before the system ends the process", memory/10*9>>20),
			"%s, and GOMEMLIMIT is not set", bytes(memory))
	case f.MemoryLimit > memory:
		add(Warn, "memory", "set it to about nine tenths of the memory", "GOMEMLIMIT is %s, and there are %s", bytes(f.MemoryLimit), bytes(memory))
	default:
		add(Good, "memory", "", "%s, GOMEMLIMIT is %s", bytes(memory), bytes(f.MemoryLimit))
	}
}

func (f *Facts) cluster(add adder) {
	if len(f.Nodes) == 0 {
		add(Note, "cluster", "", "no nodes")
		return
	}
	versions, schemas := map[string][]string{}, map[string]map[uint32][]string{}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		f.node(n, add)
		versions[n.Record.Version] = append(versions[n.Record.Version], n.Record.Ref.ID)
		for _, k := range n.Record.Kinds {
			if schemas[k.Name] == nil {
				schemas[k.Name] = map[uint32][]string{}
			}
			schemas[k.Name][k.Schema] = append(schemas[k.Name][k.Schema], n.Record.Ref.ID)
		}
	}
	if len(versions) > 1 {
		add(Note, "versions", "as it should be while a program is rolled out; otherwise find out who was left behind", "%s", sides(versions))
	} else {
		add(Good, "versions", "", "all nodes run the same program")
	}
	for _, name := range sorted(schemas) {
		if len(schemas[name]) > 1 {
			add(Note, "schemas", "objects that a newer node has written live at newer nodes only: do not take the last of those away", "of the kind %s: %s", name, sides(schemas[name]))
		}
	}
	f.ids(add)
}

func (f *Facts) node(n *Node, add adder) {
	about, ref := "node "+n.Record.Ref.ID, n.Record.Ref
	level := Good
	if s := n.Record.State; s != zdiscovery.Ready {
		add(Note, about, "", "%s is %s", ref, s)
		level = Note
	}
	switch {
	case !n.Asked:
		add(Note, about, "set admin.address: drain, move and health go by it", "%s has no admin port", ref)
		return
	case n.Err != nil:
		add(Warn, about, "where it listens at another address for operators: admin.url", "the admin port of %s does not answer: %v", ref, n.Err)
		return
	}
	if n.Skew.Abs() > maxSkew {
		add(Warn, about, "let NTP set the clock: times of logs, and of tokens that expire, are wrong otherwise", "its clock differs from here by %s", n.Skew.Round(time.Millisecond))
		level = Warn
	}
	if n.Rate != 0 && math.Abs(n.Rate-1) > maxRate {
		add(Fault, about, "mend the clock of that machine, or of this one: leases rest on clocks that run alike", "its clock runs %.2f times as fast as here", n.Rate)
		level = Fault
	}
	if level == Good {
		add(Good, about, "", "%s is ready, and its clock is right", ref)
	}
}

// ids finds message ids, types and names that mean different things at different nodes.
func (f *Facts) ids(add adder) {
	type user struct{ what, node string }
	ids, types, names := map[uint32][]user{}, map[uint32][]user{}, map[string][]user{}
	for i := range f.Nodes {
		n := &f.Nodes[i].Record
		for _, k := range n.Kinds {
			types[k.Type] = append(types[k.Type], user{k.Name, n.Ref.ID})
			names[k.Name] = append(names[k.Name], user{fmt.Sprintf("type %d", k.Type), n.Ref.ID})
			for _, a := range k.Adverts {
				ids[a.ID] = append(ids[a.ID], user{"the kind " + k.Name, n.Ref.ID})
			}
		}
		for _, a := range n.Actors {
			for _, ad := range a.Adverts {
				ids[ad.ID] = append(ids[ad.ID], user{"the actor " + a.Type, n.Ref.ID})
			}
		}
	}
	faults := 0
	clash := func(l Level, what, remedy string, users []user) {
		who := map[string][]string{}
		for _, u := range users {
			if !slices.Contains(who[u.what], u.node) {
				who[u.what] = append(who[u.what], u.node)
			}
		}
		if len(who) > 1 {
			faults++
			add(l, "names", remedy, "%s: %s", what, sides(who))
		}
	}
	for _, id := range sorted(ids) {
		level, remedy := Warn, "meant so? Requests go to one of them by the strategy of the route"
		if slices.ContainsFunc(ids[id], func(u user) bool { return strings.HasPrefix(u.what, "the kind") }) {
			level, remedy = Fault, "give one of them another (zgame.id): the kind gets the messages of both"
		}
		clash(level, fmt.Sprintf("message id %d", id), remedy, ids[id])
	}
	for _, t := range sorted(types) {
		clash(Fault, fmt.Sprintf("the type %d of kinds", t), "give one of the kinds another Type: records of one are taken for the other's", types[t])
	}
	for _, name := range sorted(names) {
		clash(Fault, "the kind "+name, "one name, one Type: keys of one node's are not found at the other", names[name])
	}
	if faults == 0 {
		add(Good, "names", "", "message ids and kinds mean the same at all nodes")
	}
}

// sides says who is on which side: "v1.2.0: a b; v1.3.0: c".
func sides[K interface{ ~string | ~uint32 }](m map[K][]string) string {
	parts := make([]string, 0, len(m))
	for _, k := range sorted(m) {
		parts = append(parts, fmt.Sprintf("%v: %s", k, strings.Join(m[k], " ")))
	}
	return strings.Join(parts, "; ")
}

func sorted[K interface{ ~string | ~uint32 }, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func bytes(n uint64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	default:
		return fmt.Sprintf("%d MiB", n>>20)
	}
}
