package oracle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// seen is all that the oracles are given.
type seen struct {
	ops    []Op
	runs   []Run
	procs  map[string]*Proc
	final  Final
	ends   []Ended
	writes []Write
}

func (s *seen) judge() []string {
	return slices.Concat(Linear(s.ops, s.final, 10*time.Second), Runs(s.runs, s.procs, s.ops), Ends(s.ends), s.final.Check(s.ops), Journal(s.writes))
}

// op returns the n-th append of the list with the outcome.
func (s *seen) op(n int, o Outcome) *Op {
	for i := range s.ops {
		if s.ops[i].Append != 0 && s.ops[i].Outcome == o {
			if n--; n < 0 {
				return &s.ops[i]
			}
		}
	}
	panic("there are not so many")
}

func (s *seen) run(op uint64) *Run {
	return &s.runs[slices.IndexFunc(s.runs, func(r Run) bool { return r.Op == op })]
}

// good makes what is seen where all is well: one list, n operations of four clients, an owner that is killed in the middle and
// paused near the end, with outcomes that the clients did not learn.
func good(seed uint64, n int) *seen {
	r := rand.New(rand.NewPCG(seed, 0))
	s := &seen{procs: map[string]*Proc{"a": {Peace: true}, "b": {Peace: true}, "c": {Peace: true}}, final: Final{}}
	const key = "x"
	now, version, rev, owner := int64(1000), uint64(1), uint64(1), "a"
	free := [4]int64{} // when each client may ask again
	var list []uint64
	var hash uint64
	s.writes = append(s.writes, Write{1, key, rev, version, owner})
	write := func() {
		rev++
		s.writes = append(s.writes, Write{uint64(len(s.writes)) + 1, key, rev, version, owner})
	}
	for i := range n {
		switch i {
		case n / 2:
			s.procs["a"].Died = now + 5
			now, version, owner = now+100, version+1, "b"
			write()
		case n * 3 / 4:
			s.procs["b"].Pauses = []Span{{now + 5, now + 5000}}
			now, version, owner = now+4000, version+1, "c"
			write()
		}
		client := r.IntN(len(free))
		call := max(free[client], now-r.Int64N(20)) + 1
		begin := max(call, now) + 1 + r.Int64N(5)
		end := begin + 1 + r.Int64N(5)
		now = end
		o := Op{Client: client, Key: key, Call: call, Return: end + 1 + r.Int64N(30), Version: version}
		free[client] = o.Return
		if r.IntN(4) > 0 {
			o.Append = uint64(i + 1)
			s.runs = append(s.runs, Run{owner, key, o.Append, version, begin, end, false})
			list, hash = append(list, o.Append), Chain(hash, o.Append)
			write()
		}
		o.Len, o.Hash = uint64(len(list)), hash
		switch r.IntN(10) {
		case 0:
			o.Outcome, o.Len, o.Hash = Unknown, 0, 0
		case 1: // refused: another that did not run
			s.ops = append(s.ops, Op{Client: client, Key: key, Append: 1<<32 + uint64(i), Call: call, Return: call + 1, Outcome: NotExecuted})
		}
		s.ops = append(s.ops, o)
	}
	s.final[key] = list
	for i := range s.ops {
		s.ends = append(s.ends, Ended{"client", uint64(i), 1})
	}
	return s
}

func TestGoodHistories(t *testing.T) {
	for seed := range uint64(50) {
		if faults := good(seed, 200).judge(); len(faults) > 0 {
			t.Fatalf("seed %d: %q", seed, faults)
		}
	}
}

// Each oracle finds what it is for: a good history with one fault in it.
func TestSeededFaults(t *testing.T) {
	for _, k := range []struct {
		name string
		by   []string // the oracles that must say so
		do   func(s *seen)
	}{
		{"an acknowledged append is lost", []string{"linear", "final"}, func(s *seen) {
			o := s.op(20, OK)
			s.final["x"] = slices.DeleteFunc(slices.Clone(s.final["x"]), func(e uint64) bool { return e == o.Append })
		}},
		{"the last acknowledged append is lost", []string{"linear", "final"}, func(s *seen) {
			s.ops = slices.DeleteFunc(s.ops, func(o Op) bool {
				return o.Append != 0 && o.Append == s.final["x"][len(s.final["x"])-1] && o.Outcome != OK
			})
			s.final["x"] = s.final["x"][:len(s.final["x"])-5]
		}},
		{"an append is there twice", []string{"linear", "final"}, func(s *seen) {
			s.final["x"] = append(slices.Clone(s.final["x"]), s.op(3, OK).Append)
		}},
		{"two acknowledged appends are swapped", []string{"linear", "final"}, func(s *seen) {
			s.final["x"][40], s.final["x"][41] = s.final["x"][41], s.final["x"][40]
		}},
		{"a refused append ran", []string{"linear", "final"}, func(s *seen) {
			s.final["x"] = append(slices.Clone(s.final["x"]), s.op(3, NotExecuted).Append)
		}},
		{"nobody's append is there", []string{"linear", "final"}, func(s *seen) { s.final["x"] = append(slices.Clone(s.final["x"]), 1<<40) }},
		{"a read shows what was long before", []string{"linear", "final"}, func(s *seen) {
			o := s.op(60, OK)
			old := s.op(10, OK)
			o.Append, o.Len, o.Hash = 0, old.Len, old.Hash
			s.ops = append(s.ops, Op{Key: "x", Append: s.final["x"][o.Len], Outcome: Unknown, Call: 0, Return: 1})
		}},
		{"a read shows what never was", []string{"linear", "final"}, func(s *seen) { s.op(30, OK).Hash++ }},
		{"an append took effect before it was asked for", []string{"linear"}, func(s *seen) {
			o := s.op(10, Unknown)
			o.Append, o.Call, o.Return = s.final["x"][5], 1<<40, 1<<41
			s.ops = slices.DeleteFunc(s.ops, func(p Op) bool { return p.Append == o.Append && p.Call != o.Call })
		}},
		{"two nodes run at once", []string{"runs"}, func(s *seen) {
			s.runs[10].Proc, s.runs[10].Version, s.runs[10].Begin = "c", 2, s.runs[9].Begin+1
		}},
		{"one owner runs two at once", []string{"runs"}, func(s *seen) { s.runs[10].Begin = s.runs[9].End - 1 }},
		{"an old owner goes on beside the new one", []string{"runs"}, func(s *seen) {
			s.procs["a"].Died = 0
			s.run(s.final["x"][20]).End = 1 << 40
		}},
		{"an old owner begins after the new one", []string{"runs"}, func(s *seen) {
			last := s.runs[len(s.runs)-1]
			s.runs = append(s.runs, Run{"a", "x", 1 << 41, 1, last.Begin - 1, last.End, false})
		}},
		{"after a pause an old owner runs what it acknowledges", []string{"runs"}, func(s *seen) {
			last := s.runs[len(s.runs)-1]
			s.runs = append(s.runs, Run{"b", "x", 1 << 41, 2, last.Begin + 1, last.End + 2, false})
			s.procs["b"].Pauses[0].To = last.Begin
			s.ops = append(s.ops, Op{Key: "x", Append: 1 << 41, Version: 2, Call: last.Begin, Return: last.End + 3, Outcome: OK})
		}},
		{"one ran twice within an ownership", []string{"runs"}, func(s *seen) {
			again := s.runs[30]
			again.Begin, again.End = again.End+1, again.End+1
			s.runs = append(s.runs, again)
		}},
		{"one ran again where it had been acknowledged", []string{"runs"}, func(s *seen) {
			again := *s.run(s.op(2, OK).Append)
			last := s.runs[len(s.runs)-1]
			again.Proc, again.Version, again.Begin, again.End = "c", 3, last.End+1, last.End+2
			s.runs = append(s.runs, again)
		}},
		{"one ran again though nothing had happened", []string{"runs"}, func(s *seen) {
			s.procs["a"].Died = 0
			again := *s.run(s.op(2, Unknown).Append)
			last := s.runs[len(s.runs)-1]
			again.Proc, again.Version, again.Begin, again.End = "c", 3, last.End+1, last.End+2
			s.runs = append(s.runs, again)
		}},
		{"one ran on what it had done", []string{"runs"}, func(s *seen) { s.runs[10].Had = true }},
		{"a request did not end", []string{"ends"}, func(s *seen) { s.ends[7].Times = 0 }},
		{"a request ended twice", []string{"ends"}, func(s *seen) { s.ends[7].Times = 2 }},
		{"a revision is skipped", []string{"journal"}, func(s *seen) { s.writes[50].Rev++ }},
		{"a revision comes twice", []string{"journal"}, func(s *seen) { s.writes[50].Rev-- }},
		{"a version falls", []string{"journal"}, func(s *seen) { s.writes[len(s.writes)-1].Version = 1 }},
		{"a version is skipped", []string{"journal"}, func(s *seen) { s.writes[50].Version += 2 }},
		{"the owner changes and the version does not", []string{"journal"}, func(s *seen) { s.writes[20].Owner = "b" }},
		{"more is skipped than was not seen", []string{"journal"}, func(s *seen) { s.writes = slices.Delete(s.writes, 30, 31); s.writes[40].Rev++ }},
	} {
		t.Run(k.name, func(t *testing.T) {
			for seed := range uint64(10) {
				s := good(seed, 300)
				k.do(s)
				faults := strings.Join(s.judge(), "\n")
				for _, by := range k.by {
					if !strings.Contains(faults, by+":") {
						t.Fatalf("seed %d: %s says nothing; all there is: %q", seed, by, faults)
					}
				}
			}
		})
	}
}

// What was not seen of the journal is no fault, and an execution in the wake of a pause that nobody was told of is none.
func TestWhatIsNoFault(t *testing.T) {
	s := good(1, 300)
	s.writes = slices.Delete(s.writes, 30, 35)
	last := s.runs[len(s.runs)-1]
	s.procs["b"].Pauses[0].To = last.Begin
	s.runs = append(s.runs, Run{"b", "x", 1 << 41, 2, last.Begin + 1, last.End + 2, false})
	if faults := s.judge(); len(faults) > 0 {
		t.Errorf("%q", faults)
	}
}

// Histories with many outcomes that nobody learned are judged in time.
func TestManyUnknown(t *testing.T) {
	s := good(1, 2000)
	for i := range 500 {
		s.ops = append(s.ops, Op{Key: "x", Append: 1<<33 + uint64(i), Call: s.ops[i].Call, Return: s.ops[i].Return, Outcome: Unknown})
	}
	for i := range s.ops {
		if o := &s.ops[i]; o.Outcome == OK && i%3 == 0 {
			o.Outcome = Unknown
		}
	}
	began := time.Now()
	if faults := Linear(s.ops, s.final, time.Minute); len(faults) > 0 {
		t.Error(faults)
	}
	t.Log(fmt.Sprint("judged in ", time.Since(began)))
}
