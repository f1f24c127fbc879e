package oracle

// Outcome is what a client knows of its request.
type Outcome uint8

// The outcomes.
const (
	OK          Outcome = iota // it was answered with success
	NotExecuted                // it did not run, and never will
	Unknown                    // it may have run, or may run yet
)

// String returns ok, not executed or unknown.
func (o Outcome) String() string { return [...]string{"ok", "not executed", "unknown"}[o] }

// Op is one operation of a client on a list.
type Op struct {
	Client  int
	Key     string
	Append  uint64 // what is appended; 0: a read
	Call    int64  // when it began
	Return  int64  // when it ended
	Outcome Outcome
	// What a success says: the length of the list, behind the entry where it is an append, and the hash of all of it.
	Len, Hash uint64
	Version   uint64 // of the ownership that answered
}

// Final is what a list is in the end, by its key.
type Final map[string][]uint64

// index returns where each entry stands, counted from 1.
func index(list []uint64) map[uint64]int {
	at := make(map[uint64]int, len(list))
	for i, op := range list {
		if _, twice := at[op]; !twice {
			at[op] = i + 1
		}
	}
	return at
}

// byKey sorts operations into their lists.
func byKey(ops []Op) map[string][]Op {
	m := map[string][]Op{}
	for _, o := range ops {
		m[o.Key] = append(m[o.Key], o)
	}
	return m
}
