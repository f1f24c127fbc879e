package zactor

// tape keeps the last inputs of an instance, between keep and about 2.5 times as many, and the state before the first one. It
// has two generations: when the younger one is full, a snapshot of the state begins the next, and the older one goes. It is no
// goroutine's: the recorder guards it.
//
// The bound on bytes counts bodies, states and a flat sum for each input. When it is passed the older generation goes at once, and
// then the oldest inputs of the younger one.
type tape struct {
	keep, bytes int

	start    *recordedInput // OnStart: kept for the whole life of the instance
	old, cur generation
	turns    uint64 // the last turn begun
	lost     uint64 // turns dropped
	short    bool   // bytes, not their number, have dropped inputs
}

// generation is a run of inputs after a state.
type generation struct {
	base   RecordBase // "" is no generation
	state  []byte
	inputs []*recordedInput
	size   int
}

// inputOverhead is what an input counts beside its bodies: about what it takes in memory.
const inputOverhead = 512

func newTape(keep, bytes int) *tape {
	return &tape{keep: keep, bytes: bytes, cur: generation{base: BaseStart}}
}

// due reports whether the state is wanted before the next input. One that waits for continuations can not be rebuilt from its
// state alone: then the snapshot is put off, up to half as many inputs more.
func (t *tape) due(pending bool) bool {
	switch n := len(t.cur.inputs); {
	case n == 0:
		return false
	case t.cur.size-len(t.cur.state) >= t.roomFor(t.cur.base):
		return true
	default:
		return n >= t.keep && (!pending || n >= t.keep+t.keep/2)
	}
}

// roomFor returns how many bytes of inputs a generation takes. With states there are up to two generations with a quarter for each
// state; without, the younger one's inputs are all that is left when the older one goes.
func (t *tape) roomFor(base RecordBase) int {
	if base == BaseSnapshot {
		return t.bytes / 4
	}
	return t.bytes / 2
}

// turnOver begins the next generation: with the state, or with none where there was none to have.
func (t *tape) turnOver(state []byte, ok bool) {
	t.short = t.short || len(t.cur.inputs) < t.keep
	t.drop(&t.old)
	t.old, t.cur = t.cur, generation{base: BaseNone}
	if ok && len(state) <= t.bytes/4 {
		t.cur.base, t.cur.state, t.cur.size = BaseSnapshot, state, len(state)
	}
}

// add appends an input and gives it its turn.
func (t *tape) add(in *recordedInput) {
	t.turns++
	in.Turn = t.turns
	t.cur.inputs = append(t.cur.inputs, in)
	t.grow(in, inputOverhead+len(in.Body))
}

// grow counts what an input has come to hold beside that.
func (t *tape) grow(in *recordedInput, n int) {
	in.size += n
	if g := t.holder(in); g != nil {
		g.size += n
	}
	if t.old.base != "" && t.old.size+t.cur.size > t.bytes {
		t.short = true
		t.drop(&t.old)
	}
	for t.cur.size > t.bytes && len(t.cur.inputs) > 1 {
		t.short = true
		t.cur.size -= t.cur.inputs[0].size + len(t.cur.state)
		t.cur.inputs[0] = nil
		t.cur.inputs = t.cur.inputs[1:]
		t.cur.base, t.cur.state = BaseNone, nil
		t.lost++
	}
}

// holder returns the generation that in is in, nil for none: it has been dropped, or is the start.
func (t *tape) holder(in *recordedInput) *generation {
	for _, g := range []*generation{&t.cur, &t.old} {
		if n := len(g.inputs); n > 0 && in.Turn >= g.inputs[0].Turn && in.Turn <= g.inputs[n-1].Turn {
			return g
		}
	}
	return nil
}

func (t *tape) drop(g *generation) {
	t.lost += uint64(len(g.inputs))
	*g = generation{}
}

// record returns what is kept: the longest run after a known state, else the longest run.
func (t *tape) record() (h RecordHeader, inputs []*recordedInput) {
	from := &t.old
	if t.old.base == "" || t.old.base == BaseNone && t.cur.base == BaseSnapshot {
		from = &t.cur
	}
	h = RecordHeader{Format: recordFormat, Base: from.base, State: from.state, Dropped: t.lost}
	if t.start != nil {
		inputs = append(inputs, t.start)
	}
	if from == &t.old {
		inputs = append(inputs, t.old.inputs...)
	} else {
		h.Dropped += uint64(len(t.old.inputs))
	}
	inputs = append(inputs, t.cur.inputs...)
	h.Truncated = t.short && h.Dropped > 0 && t.turns-h.Dropped < uint64(t.keep)
	return h, inputs
}
