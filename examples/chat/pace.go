package chat

import "zgame/examples/chat/chatpb"

// pace bounds how much a user may say: burst at once, and rate in a second from then on. A rate below 0 is no bound.
type pace struct{ rate, burst float64 }

// take counts one thing that user says, at nowMs in Unix milliseconds, and reports whether he may. It forgets, a few at a time, users whose buckets are
// empty.
func (p pace) take(all map[string]*chatpb.Pace, user string, nowMs int64) bool {
	if p.rate < 0 {
		return true
	}
	some := 4
	for name, b := range all {
		if p.leak(b, nowMs); b.GetLevel() <= 0 {
			delete(all, name)
		}
		if some--; some == 0 {
			break
		}
	}
	b := all[user]
	if b == nil {
		b = &chatpb.Pace{AtMs: nowMs}
		all[user] = b
	}
	if p.leak(b, nowMs); b.GetLevel()+1 > p.burst {
		return false
	}
	b.Level++
	return true
}

func (p pace) leak(b *chatpb.Pace, nowMs int64) {
	b.Level = max(0, b.GetLevel()-float64(max(0, nowMs-b.GetAtMs()))/1000*p.rate)
	b.AtMs = max(b.GetAtMs(), nowMs)
}
