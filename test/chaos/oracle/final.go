package oracle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Check says whether f is what it should be: every acknowledged append is in it, once and where its answer said; one
// that ended before another began stands before it; no answer showed what is not in the final list; and nothing is in it that was not
// executed, or that nobody appended.
func (f Final) Check(ops []Op) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, "final: "+fmt.Sprintf(format, args...)) }
	keys := byKey(ops)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		list := f[key]
		at, hashes := index(list), chains(list)
		if len(at) != len(list) {
			fault("list %s: %d of its %d entries are there more than once", key, len(list)-len(at), len(list))
		}
		known := map[uint64]bool{}
		for _, o := range keys[key] {
			known[o.Append] = true
			switch {
			case o.Outcome == NotExecuted && o.Append != 0 && at[o.Append] != 0:
				fault("list %s: entry %x is there (place %d of %d), but was not executed", key, o.Append, at[o.Append], len(list))
			case o.Outcome != OK:
			case o.Append != 0 && at[o.Append] == 0:
				fault("list %s: entry %x was acknowledged (as number %d, by version %d), and is lost", key, o.Append, o.Len, o.Version)
			case o.Append != 0 && uint64(at[o.Append]) != o.Len:
				fault("list %s: entry %x was acknowledged as number %d, and is number %d", key, o.Append, o.Len, at[o.Append])
			case o.Len > uint64(len(list)) || hashes[o.Len] != o.Hash:
				fault("list %s: an answer of version %d showed %d entries that are not the first ones of the final list", key, o.Version, o.Len)
			}
		}
		for _, op := range list {
			if !known[op] {
				fault("list %s: nobody appended entry %x", key, op)
			}
		}
		faults = append(faults, ordered(key, keys[key])...)
	}
	return faults
}

// ordered checks that who began after another had ended saw at least as much, and more where he appended.
func ordered(key string, ops []Op) (faults []string) {
	var done []Op
	for _, o := range ops {
		if o.Outcome == OK {
			done = append(done, o)
		}
	}
	began := slices.Clone(done)
	slices.SortFunc(began, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
	slices.SortFunc(done, func(a, b Op) int { return cmp.Compare(a.Return, b.Return) })
	var most uint64
	for _, b := range began {
		for len(done) > 0 && done[0].Return < b.Call {
			most = max(most, done[0].Len)
			done = done[1:]
		}
		if b.Len < most || b.Append != 0 && b.Len == most {
			faults = append(faults, fmt.Sprintf("final: list %s: an answer of version %d showed %d entries, one that had ended before it began %d", key, b.Version, b.Len, most))
		}
	}
	return faults
}
