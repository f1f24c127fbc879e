package oracle

import "fmt"

// Write is one write of the store, in its order.
type Write struct {
	Seq          uint64 // of all writes of the store, counted from 1
	Key          string
	Rev, Version uint64
	Owner        string // with its epoch; "" for nobody
}

// Journal checks that the revision of each list rises by one with each write, its route version by one with each change of owner and
// with nothing else. Where writes are missing from what was seen (numbers of Seq), a list may rise by as many more as are missing;
// it still only rises.
func Journal(writes []Write) (faults []string) {
	fault := func(w Write, format string, args ...any) {
		faults = append(faults, fmt.Sprintf("journal: list %s, write %d: ", w.Key, w.Seq)+fmt.Sprintf(format, args...))
	}
	type seen struct {
		Write
		missing uint64
	}
	last := map[string]seen{}
	var seq, missing uint64
	for _, w := range writes {
		if w.Seq <= seq {
			fault(w, "it comes after write %d", seq)
			continue
		}
		missing += w.Seq - seq - 1
		seq = w.Seq
		was := last[w.Key]
		last[w.Key] = seen{w, missing}
		unseen := missing - was.missing // of this list, at most
		switch {
		case w.Rev <= was.Rev || w.Rev > was.Rev+1+unseen:
			fault(w, "revision %d follows %d", w.Rev, was.Rev)
		case w.Version < was.Version || w.Version > was.Version+1+unseen:
			fault(w, "route version %d follows %d", w.Version, was.Version)
		case w.Version == was.Version && w.Owner != was.Owner:
			fault(w, "the owner changes from %q to %q within route version %d", was.Owner, w.Owner, w.Version)
		}
	}
	return faults
}
