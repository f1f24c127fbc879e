package zactor

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// cronLook is how often a cron timer looks at the wall clock: how late it may be after that was set forward, or after the
// machine was suspended.
const cronLook = time.Minute

// cronSkips bounds the times that are counted as left out at once, because counting them takes time.
const cronSkips = 1000

// Cron runs fn in a turn of the actor at the times of spec, which is one of
//
//	30 4 * * mon-fri   minute, hour, day of month, month, day of week, as crontab(5) has them
//	@daily             also @hourly, @weekly, @monthly, @yearly, @midnight, @annually
//	@every 1h30m       as Every does: counted from now, not by the wall clock; at least 1s
//
// with, if wanted, CRON_TZ=Europe/Berlin and a space before it; else the times are of the zone that Config.Clock is in,
// the machine's.
//
// Times are those of the wall clock. When it is set back, a time that was served is not served again: fn runs at the first time
// after the last one. When it is set forward, or the machine slept, or the actor was busy, times that went by make one run,
// at most a minute late; the others are counted as left out (Timer.Skipped, at most 1,000 at once). Where a zone changes
// to summer time, a time that does not exist that day is left out; where it changes back, a time of the hour that comes
// twice is served in both.
//
// Errors: what is wrong with spec, among that a time that never comes (30 February).
func (c *Context) Cron(spec string, fn func(c *Context)) (Timer, error) {
	s, err := parseCron(spec)
	if err != nil {
		return Timer{}, fmt.Errorf("zactor: cron spec %q: %w", spec, err)
	}
	if every, ok := s.(cron.ConstantDelaySchedule); ok {
		return c.Every(every.Delay, fn), nil
	}
	now := c.cell.g.clock.Now()
	next := s.Next(now.Round(0))
	if next.IsZero() {
		return Timer{}, fmt.Errorf("zactor: cron spec %q: no such time within five years", spec)
	}
	t := c.newTimer("", false)
	t.fn, t.cron = fn, &cronTimer{schedule: s}
	return t.armWall(next, now), nil
}

var cronParser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

func parseCron(spec string) (cron.Schedule, error) {
	spec = strings.TrimSpace(spec)
	rest := spec
	if zone, isZone := cutZone(spec); isZone {
		name, after, found := strings.Cut(zone, " ")
		if !found || strings.TrimSpace(after) == "" { // the parser panics
			return nil, errors.New("a time zone, and nothing after it")
		}
		if name == "" { // the parser takes it for UTC
			return nil, errors.New("the time zone has no name")
		}
		rest = strings.TrimSpace(after)
	}
	if text, isEvery := strings.CutPrefix(rest, "@every "); isEvery {
		d, err := time.ParseDuration(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		if d < time.Second { // the parser makes a second of it
			return nil, fmt.Errorf("@every %v: want 1s or more", d)
		}
		if rest != spec {
			return nil, errors.New("@every does not go by the wall clock: it has no time zone")
		}
		return cron.ConstantDelaySchedule{Delay: d}, nil
	}
	for f := range strings.FieldsSeq(rest) {
		if strings.Trim(f, ",") == "" { // the parser takes it for "never"
			return nil, fmt.Errorf("the field %q is empty", f)
		}
	}
	return cronParser.Parse(spec)
}

func cutZone(spec string) (rest string, ok bool) {
	if rest, ok = strings.CutPrefix(spec, "CRON_TZ="); !ok {
		rest, ok = strings.CutPrefix(spec, "TZ=")
	}
	return rest, ok
}

// cronTimer is the state of a Cron, owned by the actor's turn.
type cronTimer struct{ schedule cron.Schedule }

// after returns the time after due, or after now where that is later, and how many between were left out. The zero time is
// none.
func (k *cronTimer) after(due, now time.Time) (next time.Time, skipped uint64) {
	next = k.schedule.Next(due)
	for !next.IsZero() && !next.After(now) {
		if skipped++; skipped == cronSkips {
			return k.schedule.Next(now), skipped
		}
		next = k.schedule.Next(next)
	}
	return next, skipped
}

func (k *cronTimer) turn(c *Context, t *timer) {
	now := t.pool.g.clock.Now()
	t.mu.Lock()
	due := t.wall
	t.mu.Unlock()
	next, skipped := k.after(due, now.Round(0))
	t.skip(skipped)
	fn := t.fn
	if next.IsZero() {
		c.cell.extra.Load().timers.end(t)
	} else {
		t.armWall(next, now)
	}
	fn(c)
}

// armWall asks the clock for a call at a time of the wall clock, which is now.
func (t *timer) armWall(at, now time.Time) Timer {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wall = at
	t.askLocked(max(0, untilWall(at, now)))
	return Timer{t, t.gen}
}

// untilWall is how long to wait for a time of the wall clock before looking at it again; not positive when it has come.
func untilWall(at, now time.Time) time.Duration { return min(at.Sub(now.Round(0)), cronLook) }
