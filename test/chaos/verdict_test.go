//go:build linux

package chaos

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"zgame/test/chaos/chaospb"
	"zgame/test/chaos/notes"
	"zgame/test/chaos/oracle"
)

// judge ends the load and returns what the oracles have to say against what was seen, and how often lists have changed owners.
func (l *load) judge(t *testing.T) (faults []string, moves uint64) {
	t.Helper()
	w := l.w
	ends := l.end(t)
	final := l.final(t)
	l.lists = final
	runs, faults, err := notes.Read(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	writes, err := w.journal()
	if err != nil {
		t.Fatal("the journal: ", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	faults = slices.Concat(faults,
		oracle.Linear(l.ops, final, patience), oracle.Runs(runs, w.procs, l.ops), oracle.Ends(ends), final.Check(l.ops), oracle.Journal(writes))
	for _, u := range l.users {
		faults = append(faults, u.doubled()...)
	}
	outcomes := map[oracle.Outcome]int{}
	for _, o := range l.ops {
		outcomes[o.Outcome]++
	}
	last := map[string]uint64{}
	for _, x := range writes {
		last[x.Key] = x.Version
	}
	for _, v := range last {
		moves += v - 1
	}
	t.Logf("%d operations (%d ok, %d not executed, %d unknown), requests that failed on the way: %v, %d executions, %d writes, %d changes of owner",
		len(l.ops), outcomes[oracle.OK], outcomes[oracle.NotExecuted], outcomes[oracle.Unknown], l.failed, len(runs), len(writes), moves)
	return faults, moves
}

// check ends the load and fails the test where the oracles have something to say. It returns how often lists have changed owners.
func (l *load) check(t *testing.T) (moves uint64) {
	t.Helper()
	faults, moves := l.judge(t)
	for i, f := range faults {
		if i == 20 {
			t.Errorf("and %d more", len(faults)-i)
			break
		}
		t.Error(f)
	}
	return moves
}

// final reads what the lists are in the end.
func (l *load) final(t *testing.T) oracle.Final {
	t.Helper()
	f := oracle.Final{}
	by := &busClient{l, "final"}
	keys := map[string]bool{}
	for _, o := range l.ops {
		keys[o.Key] = true
	}
	for key := range keys {
		var c chaospb.Content
		var err error
		for deadline := time.Now().Add(patience); ; {
			ctx, cancel := context.WithTimeout(context.Background(), requestTime)
			err = by.ask(ctx, key, &chaospb.Read{List: key, All: true}, &c, "")
			cancel()
			if err == nil || time.Now().After(deadline) {
				break
			}
			wait(50 * time.Millisecond)
		}
		if err != nil {
			t.Fatal(fmt.Sprintf("the last read of %s: ", key), err)
		}
		f[key] = c.GetOps()
	}
	return f
}
