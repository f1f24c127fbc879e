package zgate

import (
	"time"

	"zgame/zmsg/wirepb"
)

// allowance is what a client may send; rate -1: no limit. Sessions share one, since there are many of them.
type allowance struct {
	rate, burst         int // requests
	byteRate, byteBurst int
	inFlight            int // requests
}

// rates are the token buckets of what one client sends. Owned by the reading goroutine.
type rates struct {
	*allowance // set at construction

	requests bucket
	bytes    bucket
	over     bool // the message at hand is above byteRate
	warned   bool // and the client knows that it sends too much
}

// of a session, and of a client before its login.
func (c *Config) allowances() (session, guest *allowance) {
	return &allowance{c.Rate, c.Burst, c.ByteRate, c.ByteBurst, c.MaxInFlight},
		&allowance{controlRate, controlBurst, -1, 0, min(guestInFlight, c.MaxInFlight)}
}

func newRates(a *allowance, now int64) rates {
	return rates{
		allowance: a,
		requests:  bucket{tokens: float64(a.burst), last: now}, bytes: bucket{tokens: float64(a.byteBurst), last: now},
	}
}

// message counts a message of n bytes. Its heartbeats are answered in any case; its requests are refused where it is too much.
func (r *rates) message(s *Session, n int, now time.Time) {
	if r.byteRate < 0 {
		return
	}
	if r.over = !r.bytes.takeN(s.g.at(now), n, r.byteRate, r.byteBurst); r.over {
		r.exceeded(s, r.bytes.strikes >= r.byteBurst, "more than "+itoa(r.byteRate)+" bytes per second")
	}
}

// request reports whether one more request is to be run.
func (r *rates) request(s *Session, now time.Time) bool {
	if r.over {
		return false
	}
	if r.rate < 0 {
		return true
	}
	if r.requests.take(s.g.at(now), r.rate, r.burst) {
		if r.requests.strikes == 0 && r.bytes.strikes == 0 {
			r.warned = false
		}
		return true
	}
	r.exceeded(s, r.requests.strikes >= r.burst, "more than "+itoa(r.rate)+" requests per second")
	return false
}

// exceeded warns the client, once until it has kept to its limits again for a while, and closes one that goes on.
func (r *rates) exceeded(s *Session, last bool, why string) {
	switch {
	case last:
		if s.c.Load().close(CloseRate, "too much: "+why, closing{delay: time.Second}) {
			if n, ok := s.g.rateLog.Allow(time.Now()); ok {
				s.g.log.Warn("client closed that sends too much", "why", why, "session", s.ref.ID, "user", s.user, "remote", s.c.Load().remote.String(), "suppressed", n)
			}
		}
	case !r.warned:
		r.warned = true
		s.g.count.Warnings.Inc()
		s.c.Load().sendControl(&wirepb.Control{Control: &wirepb.Control_Warning{Warning: &wirepb.Warning{
			Code: uint32(CloseRate), Text: "too much: " + why + "; the connection is closed if this goes on",
		}}})
	}
}
