package zgate

import (
	"bytes"
	"slices"
	"time"

	"zgame/zgate/internal/keep"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// This file is a session's state as it goes from gate to gate. exportLocked and importLocked read and write a session, and decide nothing.

// exportLocked returns all that the gate knows of the session, but for who watches it, which each node knows by itself, and what it is bound to (boundTo). s.mu and the session's
// connection c are held.
func (s *Session) exportLocked(c *conn) *wirepb.SessionState {
	r, now := s.resume, s.g.now()
	w := &wirepb.SessionState{
		User: s.user, Client: s.client, WindowMs: uint32(r.window.Milliseconds()), Text: c.text.Load(), Login: s.login.Load(),
		Pushes: s.pushes, LastSeq: s.requests.last, Shown: r.shown,
	}
	log := r.log.Export(now)
	w.Gone, w.Blind, w.BlindBefore = s.pushes, log.Blind, log.Before
	answered := make(map[uint64]bool)
	for _, k := range log.Records {
		w.Kept = append(w.Kept, &wirepb.KeptRecord{Kind: uint32(k.Kind), Number: k.N, Id: k.ID, Body: k.Body, AgeMs: uint32(k.Age / int64(time.Millisecond))})
		if k.Kind == keep.Push {
			w.Gone = min(w.GetGone(), k.N-1)
		}
		answered[k.N] = answered[k.N] || k.Kind == keep.Response || k.Kind == keep.Answer
	}
	for i := range c.q.latest {
		e := &c.q.latest[i].e
		w.Latest = append(w.Latest, &wirepb.WaitingPush{Id: e.id, Of: e.of, Body: bytes.Clone(e.body)})
	}
	for _, f := range s.requests.pending() {
		if !answered[f.seq] { // else its response is in the log, and its slot about to be free
			left := max(0, f.deadline-now) / int64(time.Millisecond)
			w.Pending = append(w.Pending, &wirepb.PendingRequest{Seq: f.seq, LeftMs: uint32(left)})
		}
	}
	for name := range s.groups {
		w.Groups = append(w.Groups, name)
	}
	slices.Sort(w.Groups)
	if routes := s.routes.Load(); routes != nil {
		for _, o := range *routes {
			to := *o.to
			to.IDs = []uint32{o.id}
			w.Routes = append(w.Routes, to.Wire())
		}
	}
	w.Secrets, w.Key, w.Any = r.secrets.bytes(), r.key[:], r.any
	for _, p := range s.publishedLocked(now) {
		w.Published = append(w.Published, &wirepb.Published{Node: p.node.ID, Epoch: p.node.Epoch, Number: p.n, AgeMs: uint32((now - p.at) / int64(time.Millisecond))})
	}
	return w
}

// importLocked makes w the state of a session that is just coming and has none: all that is guarded by its connection, which is c. The rest is done by
// settled, without the locks.
func (s *Session) importLocked(c *conn, w *wirepb.SessionState) {
	g, r, now := s.g, s.resume, s.g.now()
	c.text.Store(w.GetText())
	s.client = cut(w.GetClient(), 64)
	s.login.Store(w.GetLogin())
	s.pushes = w.GetPushes()
	s.requests.resumed(w.GetLastSeq())
	r.shown, r.key, r.any = w.GetShown(), secret(w.GetKey()), w.GetAny()
	for _, x := range w.GetSecrets() {
		r.secrets = append(r.secrets, secret(x))
	}
	state := keep.State{Gone: w.GetGone(), Blind: w.GetBlind(), Before: w.GetBlindBefore()}
	for _, k := range w.GetKept() {
		state.Records = append(state.Records, keep.Record{
			Kind: keep.Kind(k.GetKind()), N: k.GetNumber(), ID: k.GetId(), Body: k.GetBody(), Age: int64(k.GetAgeMs()) * int64(time.Millisecond),
		})
	}
	r.log.Import(&state, now)
	g.kept.Add(int64(r.log.Bytes()))
	for _, p := range w.GetLatest() {
		e := encoded{g: g, id: p.GetId(), class: zmsg.Latest, of: p.GetOf(), body: orEmpty(p.GetBody()), owned: true}
		c.q.latest = append(c.q.latest, waiting{s, e})
		c.q.queued += e.weight()
	}
	if n := weightOf(c.q.latest); n > 0 {
		r.latest = n
		g.kept.Add(int64(n))
	}
	for _, p := range w.GetPending() {
		deadline := now + int64(p.GetLeftMs())*int64(time.Millisecond)
		if _, ok := s.requests.add(p.GetSeq(), deadline, maxInFlightBound); ok {
			g.requests.Add(1)
		}
	}
	if len(w.GetRoutes()) > 0 {
		routes := make([]ownRoute, 0, len(w.GetRoutes()))
		for _, x := range w.GetRoutes() {
			to := zmsg.SessionRouteOf(x)
			if len(to.IDs) == 1 {
				id := to.IDs[0]
				to.IDs = nil
				routes = append(routes, ownRoute{id, &to})
			}
		}
		slices.SortFunc(routes, func(a, b ownRoute) int { return compareID(a, b.id) })
		s.routes.Store(&routes)
	}
	if len(w.GetGroups())+len(w.GetPublished()) > 0 {
		s.beginOverlapLocked(w.GetPublished())
	}
}

// validState reports whether w makes sense as far as the gate relies on it.
func validState(w *wirepb.SessionState) bool {
	if w.GetUser() == "" || len(w.GetLatest()) > latestLimit || len(w.GetPending()) > maxInFlightBound {
		return false
	}
	last := w.GetGone()
	for _, k := range w.GetKept() {
		switch keep.Kind(k.GetKind()) {
		case keep.Push:
			if k.GetNumber() != last+1 {
				return false
			}
			last++
		case keep.Response, keep.Notice, keep.Answer:
		default:
			return false
		}
	}
	for _, x := range w.GetSecrets() {
		if len(x) != len(secret{}) {
			return false
		}
	}
	return last == w.GetPushes() && len(w.GetKey()) == len(secret{}) && len(w.GetSecrets()) > 0 && len(w.GetSecrets()) <= maxSecrets
}

func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
