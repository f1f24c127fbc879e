package zrouter

import (
	"time"

	"zgame/zmsg"
	"zgame/zrouter/internal/entry"
)

// disturb lets things go wrong, now and then.
func (w *simWorld) disturb() {
	if w.calm {
		return
	}
	const every = 200 * time.Millisecond
	w.after(every, nil, w.disturb)
	now := func(perSecond float64) bool { return w.chance(perSecond * every.Seconds()) }
	c := &w.cfg
	p := w.nodes[w.rng.IntN(len(w.nodes))].proc
	if p == nil || p.dead {
		return
	}
	lease := c.lease
	k := w.oracle.keys[w.rng.IntN(len(w.oracle.keys))]
	if now(c.pause) {
		d := w.between(10*time.Millisecond, 2*lease)
		w.log("%s: stands still for %v", p.ref, d)
		p.pausedUntil = max(p.pausedUntil, w.now+d)
	}
	if now(c.cutLease) {
		d := w.between(0, 2*lease)
		w.log("%s: does not reach the service of leases for %v", p.ref, d)
		p.cutLease = w.now + d
	}
	if now(c.cutBus) {
		w.cutOffBus(p, w.between(0, 3*time.Second))
	}
	if now(c.cutStore) {
		d, who := w.between(0, 4*time.Second), p.id
		if w.chance(0.3) {
			who = "*"
		}
		w.log("%s: does not reach the store for %v", who, d)
		w.store.cut[who] = w.now + d
	}
	if now(c.alone) {
		d := w.between(0, 4*lease)
		w.log("%s: is alone for %v", p.ref, d)
		p.cutLease, w.store.cut[p.id] = w.now+d, w.now+d+w.between(-time.Second, time.Second)
		w.cutOffBus(p, d)
	}
	if other := w.nodes[w.rng.IntN(len(w.nodes))]; now(c.cutOff) && other.id != p.id {
		d := w.between(0, 3*time.Second)
		w.log("%s does not get through to %s for %v", p.id, other.id, d)
		w.blocked[[2]string{p.id, other.id}] = w.now + d
		if w.chance(0.5) {
			w.blocked[[2]string{other.id, p.id}] = w.now + d
		}
	}
	if now(c.meanwhile) {
		w.takeMeanwhile(k)
	}
	if now(c.leave) {
		w.after(0, p, func() { p.leave(k) })
	}
	if now(c.moves) {
		w.moveSome(k)
	}
	if now(c.forget) {
		w.after(0, p, func() { p.set.forget(k) })
	}
	if owners := w.oracle.committed[k]; now(c.oldNews) && len(owners) > 0 {
		v := w.rng.IntN(len(owners))
		if !owners[v].IsZero() {
			w.after(0, p, func() {
				p.set.Control(&zmsg.Envelope{ID: UpdateID, Key: k, Version: zmsg.RouteVersion(v + 1), Owner: owners[v]}, owners[v])
			})
		}
	}
	switch {
	case now(c.crash):
		p.crash("crashes")
		w.restart(p.node)
	case now(c.closing) && !p.closing():
		w.after(0, p, func() { p.close(func() { w.restart(p.node) }) })
	}
}

// takeMeanwhile has the owner of a key stand still until another has taken the object over, and given it up again.
func (w *simWorld) takeMeanwhile(k zmsg.Key) {
	p := w.byRef[w.store.records[k].Own.Node]
	other := w.nodes[w.rng.IntN(len(w.nodes))].proc
	if p == nil || p.dead || other == p {
		return
	}
	d := w.between(w.members.lasts(), 3*w.cfg.lease)
	w.log("%s: stands still for %v, while others take %s", p.ref, d, k.ID)
	p.pausedUntil = max(p.pausedUntil, w.now+d)
	w.after(w.members.lasts()+w.between(0, d/4), nil, func() {
		if other.dead {
			return
		}
		w.ask(other, simOp{name: "get"}, k, nil, func(*simAttempt) {
			if q := w.byRef[w.store.records[k].Own.Node]; q != nil {
				w.after(0, q, func() { q.leave(k) })
			}
		})
	})
}

func (w *simWorld) restart(n *simNode) {
	w.after(w.between(0, 2*w.cfg.lease), nil, func() {
		if n.proc.dead {
			w.startProc(n)
		}
	})
}

// cutOffBus takes the bus away from a process, which notices soon.
func (w *simWorld) cutOffBus(p *simProc, d time.Duration) {
	w.log("%s: does not reach the bus for %v", p.ref, d)
	until := w.now + d
	p.cutBus = until
	w.after(w.between(0, time.Second), p, func() {
		if w.now < p.cutBus {
			p.busLost()
		}
	})
	w.after(d, p, func() {
		if p.cutBus <= w.now {
			p.busDown = false
		}
	})
}

// leave gives an object up, as ManagerSet.release does, and does not wait.
func (p *simProc) leave(k zmsg.Key) {
	t := p.set.shard(k).lock()
	if o := t.sh.objects[k]; o != nil && o.res != nil {
		p.w.log("%s: is to give up %s", p.ref, k.ID)
		t.tell(o, &entry.Event{Kind: entry.Leave})
		t.settle(o)
	}
	t.end()
}

// moveSome has an object moved to another node, or to nobody, and sometimes lets something go wrong with one of the two while that is
// under way.
func (w *simWorld) moveSome(k zmsg.Key) {
	p := w.byRef[w.store.records[k].Own.Node]
	if p == nil || p.dead {
		return
	}
	var to zmsg.NodeRef
	target := w.nodes[w.rng.IntN(len(w.nodes))].proc
	if !w.chance(0.1) {
		to = target.refs[len(target.refs)-1-w.rng.IntN(min(2, len(target.refs)))]
	}
	w.oracle.move(p, k, to, w.chance(0.2))
	if !w.chance(w.cfg.atStep) {
		return
	}
	victim := p
	if w.chance(0.5) {
		victim = target
	}
	w.after(w.between(0, 25*time.Millisecond), nil, func() {
		if victim.dead || w.calm {
			return
		}
		d := w.between(10*time.Millisecond, 2*w.cfg.lease)
		switch w.rng.IntN(5) {
		case 0:
			victim.crash("crashes in a move")
			w.restart(victim.node)
		case 1:
			w.log("%s: stands still for %v in a move", victim.ref, d)
			victim.pausedUntil = max(victim.pausedUntil, w.now+d)
		case 2:
			w.cutOffBus(victim, d)
		case 3:
			w.log("%s: does not reach the store for %v in a move", victim.id, d)
			w.store.cut[victim.id] = w.now + d
		default:
			w.log("%s: does not reach the service of leases for %v in a move", victim.ref, d)
			victim.cutLease = w.now + d
		}
	})
}
