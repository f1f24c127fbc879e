package zdiscovery

// Latest is the channel of a Watch for drivers to fill: it holds the newest Snapshot only. One goroutine puts and
// closes.
type Latest chan *Snapshot

// NewLatest makes an empty one.
func NewLatest() Latest { return make(Latest, 1) }

// Put replaces what the reader has not taken yet.
func (l Latest) Put(s *Snapshot) {
	select {
	case <-l:
	default:
	}
	l <- s // nobody else puts, so there is room
}
