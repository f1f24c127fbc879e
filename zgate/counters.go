package zgate

import (
	"zgame/zmetrics"
	"zgame/zmsg"
)

// counters are the gate's counters with their labels resolved, since looking one up costs more than counting.
type counters struct {
	*zmetrics.Gate

	// Messages.
	gate, local, remote, object, ownRoute, busy, noRoute, noRouteHook, silenced, rateLimited, draining, rejected, failed zmetrics.Counter
	// Drops.
	dropClosed, dropLate, dropVolatile, dropReplaced, dropCut, dropNoSession, dropStale, dropWrongGate, dropWatcher, dropTooLarge, dropOldOwner, dropDoubled, dropKept, dropForward, dropTwice zmetrics.Counter
	// Objects.
	bindOK, bindOld, waitOver, waitTime, waitFull zmetrics.Counter
	// Resume.
	suspendFull, againAnswered, againFlying, againAsked, againForgotten zmetrics.Counter
	// Hand-over.
	handGiven, handTaken, handLate, handSilent, handLeft zmetrics.Counter
	// The directory of users.
	logins                  [zmsg.Lapsed + 1]zmetrics.Counter
	loginAgain, loginFailed zmetrics.Counter
	// Encodes.
	encodePB, encodeText zmetrics.Counter
	// Compression.
	sentPlain, sentDeflated, receivedPlain, receivedDeflated zmetrics.Counter

	responses   [zmsg.NumCodes]zmetrics.Counter
	application zmetrics.Counter
	framework   zmetrics.Counter
}

func newCounters(m *zmetrics.Gate) *counters {
	c := &counters{
		Gate: m,
		gate: m.Messages.With("gate"), local: m.Messages.With("local"), remote: m.Messages.With("remote"), object: m.Messages.With("object"), ownRoute: m.Messages.With("own_route"),
		busy: m.Messages.With("busy"), noRoute: m.Messages.With("no_route"),
		noRouteHook: m.Messages.With("no_route_hook"), silenced: m.Messages.With("silenced"),
		rateLimited: m.Messages.With("rate_limited"), draining: m.Messages.With("draining"),
		rejected: m.Messages.With("rejected"), failed: m.Messages.With("failed"),

		dropClosed: m.Drops.With("closed"), dropLate: m.Drops.With("late"), dropVolatile: m.Drops.With("volatile"),
		dropReplaced: m.Drops.With("replaced"), dropCut: m.Drops.With("cut"),
		dropNoSession: m.Drops.With("no_session"), dropStale: m.Drops.With("stale_session"),
		dropWrongGate: m.Drops.With("wrong_gate"), dropWatcher: m.Drops.With("watcher"), dropTooLarge: m.Drops.With("too_large"),

		dropOldOwner: m.Drops.With("old_owner"), dropDoubled: m.Drops.With("doubled"),
		dropForward: m.Drops.With("forward"), dropTwice: m.Drops.With("twice"),
		handGiven: m.Handovers.With("given"), handTaken: m.Handovers.With("taken"), handLate: m.Handovers.With("late"),
		handSilent: m.Handovers.With("silent"), handLeft: m.Handovers.With("left"),
		dropKept: m.Drops.With("kept"), suspendFull: m.Suspends.With("full"),
		againAnswered: m.Repeats.With("answered"), againFlying: m.Repeats.With("in_flight"), againForgotten: m.Repeats.With("forgotten"),
		againAsked: m.Repeats.With("asked"),
		bindOK:     m.Binds.With("ok"), bindOld: m.Binds.With("old_owner"),
		waitOver: m.PushWaits.With("over"), waitTime: m.PushWaits.With("time"), waitFull: m.PushWaits.With("full"),

		loginAgain: m.Logins.With("again"), loginFailed: m.Logins.With("failed"),

		encodePB: m.Encodes.With("pb"), encodeText: m.Encodes.With("text"),

		sentPlain: m.Compression.With("sent", "plain"), sentDeflated: m.Compression.With("sent", "deflated"),
		receivedPlain: m.Compression.With("received", "plain"), receivedDeflated: m.Compression.With("received", "deflated"),

		application: m.Responses.With(zmsg.CodeApplication.String()),
		framework:   m.Responses.With(zmsg.Code(999).String()),
	}
	for a := range c.logins {
		c.logins[a] = m.Logins.With(zmsg.Admission(a).String())
	}
	for code := range c.responses {
		c.responses[code] = m.Responses.With(zmsg.Code(code).String())
	}
	return c
}

// response counts a response by its code.
func (c *counters) response(code zmsg.Code) {
	switch {
	case int(code) < len(c.responses):
		c.responses[code].Inc()
	case code >= zmsg.CodeApplication:
		c.application.Inc()
	default:
		c.framework.Inc()
	}
}
