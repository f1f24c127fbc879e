package zrouter

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"zgame/zmsg"
	"zgame/zrouter/internal/testpb"
	"zgame/zstore"
)

// What the oracle sees of objects that move from node to node.

// simMove is one transfer that was asked for.
type simMove struct {
	p       *simProc
	ref     zmsg.NodeRef // of p, when it was asked for
	key     zmsg.Key
	to      zmsg.NodeRef
	begun   time.Duration
	ended   bool
	perhaps bool // it has happened, or may have
}

// simCommit is a write that made another node the owner.
type simCommit struct {
	p   *simProc
	key zmsg.Key
	to  zmsg.NodeRef
	at  time.Duration
}

// move asks a process to move an object.
func (o *simOracle) move(p *simProc, k zmsg.Key, to zmsg.NodeRef, silent bool) {
	w := o.w
	w.after(0, p, func() {
		m := &simMove{p: p, ref: p.ref, key: k, to: to, begun: w.now}
		o.moves = append(o.moves, m)
		w.log("%s: is to move %s to %s", p.ref, k.ID, to)
		p.set.startMove(k, &move{to: to, silent: silent, private: []byte("to " + to.ID), then: func(r Route, err error) { o.moved(m, r, err) }})
	})
}

// moved is told how a transfer ended.
func (o *simOracle) moved(m *simMove, r Route, err error) {
	w := o.w
	if m.p.dead {
		return
	}
	w.log("%s: moving %s to %s ends: %v, owner %s since %d", m.p.ref, m.key.ID, m.to, err, r.Owner, r.Version)
	if m.ended {
		w.fail("a transfer of %s by %s ends twice", m.key.ID, m.ref)
	}
	m.ended = true
	m.perhaps = err == nil || errors.Is(err, errUnconfirmed) || zmsg.OutcomeOf(err) != zmsg.NotExecuted && !errors.Is(err, errLookAgain)
	if err == nil {
		if r.Owner != m.to && r.Owner.ID != m.p.id || r.Owner.ID != m.to.ID || !o.knows(m.key, r) { // that a node is to move it to itself is of all its identities
			w.fail("I3: a transfer of %s to %s ends well, with the owner %s since version %d", m.key.ID, m.to, r.Owner, r.Version)
		}
		o.transfers++
		return
	}
	if m.to.IsZero() || errors.Is(err, errLookAgain) || zmsg.OutcomeOf(err) != zmsg.NotExecuted {
		return
	}
	for _, x := range o.moves {
		if x != m && x.p == m.p && x.key == m.key && x.to == m.to && x.perhaps {
			return // it may have been that one
		}
	}
	for _, c := range o.commits {
		if c.p == m.p && c.key == m.key && c.to == m.to && c.at >= m.begun {
			w.fail("a transfer of %s to %s ends with %v, and has happened", m.key.ID, m.to, err)
		}
	}
}

// committed is told of each write that makes another node the owner, or nobody.
func (o *simOracle) commitsMove(p *simProc, c *zstore.Change) {
	o.commits = append(o.commits, simCommit{p, c.Key, c.Node, o.w.now})
}

// frozen is told by BeforeRemove.
func (o *simOracle) freezes(p *simProc, c *Context[*testpb.Log]) error {
	w, res := o.w, c.cell.res
	if len(o.running[c.Key()]) > 0 {
		for _, r := range o.running[c.Key()] {
			if r.p == p && r.version == c.Version() {
				w.fail("D5: %s is to go from %s while a handler runs", c.Key().ID, p.ref)
			}
		}
	}
	if o.frozen[res] {
		w.fail("BeforeRemove of %s on %s is called twice", c.Key().ID, p.ref)
	}
	if w.chance(w.cfg.veto) {
		w.log("%s: %s is not to go", p.ref, c.Key().ID)
		return errSimVeto
	}
	o.frozen[res] = true
	return nil
}

var errSimVeto = errors.New("the simulation does not let it go")

// gives is OnHandoff: what it returns says what the state is.
func (o *simOracle) gives(p *simProc, c *Context[*testpb.Log]) ([]byte, error) {
	if !o.frozen[c.cell.res] {
		o.w.fail("OnHandoff of %s on %s is called, and BeforeRemove was not", c.Key().ID, p.ref)
	}
	if o.w.chance(o.w.cfg.veto / 2) {
		return nil, errSimVeto
	}
	return []byte(strconv.Itoa(len(c.State().Lines))), nil
}

// thaws is RemoveAborted.
func (o *simOracle) thaws(p *simProc, c *Context[*testpb.Log]) {
	if !o.frozen[c.cell.res] {
		o.w.fail("RemoveAborted of %s on %s is called, and BeforeRemove was not", c.Key().ID, p.ref)
	}
	o.w.log("%s: %s stays", p.ref, c.Key().ID)
	delete(o.frozen, c.cell.res)
}

// adopts is OnAdopt: what was handed over is of the state that is there.
func (o *simOracle) adopts(p *simProc, c *Context[*testpb.Log], attachment []byte) error {
	w := o.w
	w.log("%s: adopts %s with %q", p.ref, c.Key().ID, attachment)
	if want := fmt.Sprint(len(c.State().Lines)); string(attachment) != want {
		w.fail("%s adopts %s with %s lines, and is handed over what belongs to %s", p.ref, c.Key().ID, want, attachment)
	}
	if len(c.Private()) == 0 {
		w.fail("%s adopts %s without the private argument of its transfer", p.ref, c.Key().ID)
	}
	if w.chance(w.cfg.unusable) {
		return errSimActivate
	}
	return nil
}

// unended looks for transfers that have not ended.
func (o *simOracle) unended(p *simProc) {
	for _, m := range o.moves {
		if m.p == p && !m.ended {
			o.w.fail("a transfer of %s by %s to %s has not ended", m.key.ID, p.ref, m.to)
		}
	}
}
