package zbots

import "sync"

// Numbered is what became of numbered messages.
type Numbered struct {
	Lost    uint64 `json:"lost"`    // did not come
	Doubled uint64 `json:"doubled"` // came again
	Swapped uint64 `json:"swapped"` // came behind a later one
}

// sequences judges the streams of one bot.
type sequences struct {
	mu      sync.Mutex
	streams map[string]*sequence
}

// sequence is one stream: all up to last have come, but for the holes.
type sequence struct {
	begun            bool
	last, expected   uint64
	holes            map[uint64]bool
	doubled, swapped uint64
}

func (s *sequences) of(stream string) *sequence {
	if s.streams == nil {
		s.streams = map[string]*sequence{}
	}
	q := s.streams[stream]
	if q == nil {
		q = &sequence{}
		s.streams[stream] = q
	}
	return q
}

// maxHoles bounds what is remembered of one stream; a hole above it is lost, whatever comes later.
const maxHoles = 1 << 16

func (s *sequences) got(stream string, n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.of(stream)
	switch {
	case !q.begun:
		q.begun, q.last = true, n
	case n > q.last:
		for hole := q.last + 1; hole < n && len(q.holes) < maxHoles; hole++ {
			if q.holes == nil {
				q.holes = map[uint64]bool{}
			}
			q.holes[hole] = true
		}
		q.last = n
	case q.holes[n]:
		delete(q.holes, n)
		q.swapped++
	default:
		q.doubled++
	}
}

func (s *sequences) expect(stream string, last uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.of(stream)
	q.expected = max(q.expected, last)
}

// missing is how many of the expected are still to come.
func (s *sequences) missing() (n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.streams {
		n += uint64(len(q.holes))
		if q.expected > q.last {
			n += q.expected - q.last
		}
	}
	return n
}

// sum adds up what became of all streams.
func (s *sequences) sum() (n Numbered) {
	n.Lost = s.missing()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.streams {
		n.Doubled += q.doubled
		n.Swapped += q.swapped
	}
	return n
}
