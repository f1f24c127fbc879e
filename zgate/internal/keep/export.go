package keep

import "bytes"

// Answer is, in a State, the kind of a response that was sent on a connection before: it waits for the client to ask for it.
const Answer Kind = 3

// State is what a Log holds, to be held by another one.
type State struct {
	Records []Record // in their order; answers are ahead
	Gone    uint64   // as Log.Gone
	Blind   bool     // a notice is missing
	Before  uint64   // and the number of the last push that was sent before it, at least
}

// Record is an Item, with a body of its own.
type Record struct {
	Kind Kind
	N    uint64
	ID   uint32
	Body []byte
	Age  int64 // since it was sent
}

// Export returns what l holds. The bodies are copies, but for those that nobody changes.
func (l *Log) Export(now int64) State {
	s := State{Gone: l.gone, Blind: l.blind, Before: l.before}
	if l.held == nil {
		return s
	}
	s.Records = make([]Record, 0, l.Len())
	for _, a := range l.answers {
		s.Records = append(s.Records, Record{Kind: Answer, N: a.seq, Body: a.body, Age: now - a.at})
	}
	for c := l.front(); ; {
		at := l.age(c)
		it, ok := l.read(&c)
		if !ok {
			return s
		}
		if !it.Own {
			it.Body = bytes.Clone(it.Body)
		}
		s.Records = append(s.Records, Record{Kind: it.Kind, N: it.N, ID: it.ID, Body: it.Body, Age: now - at})
	}
}

// Import makes an empty Log hold what another one has exported; it keeps the bodies, which nobody may change any more.
func (l *Log) Import(s *State, now int64) {
	l.gone, l.blind, l.before = s.Gone, s.Blind, s.Before
	for i := range s.Records {
		r := &s.Records[i]
		if r.Kind != Answer {
			l.add(r.Kind, r.N, r.ID, r.Body, true, now-r.Age)
			continue
		}
		if l.held == nil {
			l.held = helds.Get().(*held)
		}
		l.answers = append(l.answers, answer{r.N, r.Body, now - r.Age})
		l.bytes += len(r.Body) + overhead
	}
}
