package doctor

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"zgame/zdiscovery"
	"zgame/zmsg"
)

// well is a cluster of two nodes where all is as it should be.
func well() *Facts {
	node := func(id string) Node {
		return Node{Asked: true, Rate: 1.001, Skew: 3 * time.Millisecond, Record: zdiscovery.Node{
			Ref: zmsg.NodeRef{ID: id, Epoch: 20}, State: zdiscovery.Ready, Version: "v1.2.0",
			Kinds:  []zdiscovery.Kind{{Type: 2, Name: "room", Schema: 1, Adverts: []zmsg.Advert{{ID: 1001}}}},
			Actors: []zdiscovery.Actor{{ID: 7, Type: "lobby", Adverts: []zmsg.Advert{{ID: 1002}}}},
		}}
	}
	return &Facts{
		Machine: Limits{OpenFiles: 200_000, Memory: 8 << 30}, MemoryLimit: 7 << 30, Gate: true, MaxSessions: 100_000, Others: 1200,
		Nodes: []Node{node("a"), node("b")},
	}
}

// Each thing that can be wrong is found, alone, with what to do; and nothing is where nothing is wrong.
func TestDiagnose(t *testing.T) {
	t.Parallel()
	for _, f := range Diagnose(well()) {
		if f.Level != Good || f.Remedy != "" {
			t.Errorf("all is well, and yet: %+v", f)
		}
	}
	for name, c := range map[string]struct {
		spoil func(f *Facts)
		level Level
		text  string
	}{
		"files":          {func(f *Facts) { f.Machine.OpenFiles = 1024 }, Warn, "1024 may be open; gate.max_sessions and what there is besides can be 101200"},
		"memory":         {func(f *Facts) { f.Machine.Memory = 1 << 30 }, Warn, "1024 MiB; gate.max_sessions idle sessions alone take 976 MiB"},
		"no GOMEMLIMIT":  {func(f *Facts) { f.MemoryLimit = math.MaxInt64 }, Note, "GOMEMLIMIT is not set"},
		"GOMEMLIMIT":     {func(f *Facts) { f.MemoryLimit = 16 << 30 }, Warn, "GOMEMLIMIT is 16 GiB, and there are 8192 MiB"},
		"no limit":       {func(f *Facts) { f.Unbounded = []string{"gate.rate"} }, Warn, "no limit: gate.rate"},
		"named files":    {func(f *Facts) { f.Files = errors.New("gate.tls.cert: no such file") }, Fault, "gate.tls.cert: no such file"},
		"servers":        {func(f *Facts) { f.Servers = errors.New("NATS is not there") }, Fault, "NATS is not there"},
		"nobody":         {func(f *Facts) { f.Nodes = nil }, Note, "no nodes"},
		"versions":       {func(f *Facts) { f.Nodes[1].Record.Version = "v1.3.0" }, Note, "v1.2.0: a; v1.3.0: b"},
		"schemas":        {func(f *Facts) { f.Nodes[1].Record.Kinds[0].Schema = 2 }, Note, "of the kind room: 1: a; 2: b"},
		"state":          {func(f *Facts) { f.Nodes[1].Record.State = zdiscovery.Draining }, Note, "b@k is draining"},
		"no admin port":  {func(f *Facts) { f.Nodes[1].Asked = false }, Note, "b@k has no admin port"},
		"no answer":      {func(f *Facts) { f.Nodes[1].Err = errors.New("refused") }, Warn, "the admin port of b@k does not answer: refused"},
		"skew":           {func(f *Facts) { f.Nodes[1].Skew = -time.Minute }, Warn, "its clock differs from here by -1m0s"},
		"rate":           {func(f *Facts) { f.Nodes[1].Rate = 1.5 }, Fault, "its clock runs 1.50 times as fast"},
		"ids of a kind":  {func(f *Facts) { f.Nodes[1].Record.Actors[0].Adverts[0].ID = 1001 }, Fault, "message id 1001: the actor lobby: b; the kind room: a b"},
		"ids of actors":  {func(f *Facts) { f.Nodes[1].Record.Actors[0].Type = "hall" }, Warn, "message id 1002: the actor hall: b; the actor lobby: a"},
		"types of kinds": {func(f *Facts) { f.Nodes[1].Record.Kinds[0].Name, f.Nodes[1].Record.Kinds[0].Adverts = "hall", nil }, Fault, "the type 2 of kinds: hall: b; room: a"},
		"names of kinds": {func(f *Facts) { f.Nodes[1].Record.Kinds[0].Type = 3 }, Fault, "the kind room: type 2: a; type 3: b"},
	} {
		f := well()
		c.spoil(f)
		var bad []Finding
		for _, x := range Diagnose(f) {
			if x.Level != Good {
				bad = append(bad, x)
			}
		}
		if len(bad) != 1 || bad[0].Level != c.level || !strings.Contains(bad[0].Text, c.text) {
			t.Errorf("%s: %+v, want %v %q", name, bad, c.level, c.text)
		}
		if len(bad) == 1 && bad[0].Level > Note && bad[0].Remedy == "" {
			t.Errorf("%s: nothing is said of what to do", name)
		}
	}
	f := well()
	f.Machine = Limits{}
	for _, x := range Diagnose(f) {
		if x.Level > Note {
			t.Errorf("a system that does not tell: %+v", x)
		}
	}
}
