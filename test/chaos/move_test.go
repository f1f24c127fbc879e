//go:build linux

package chaos

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"zgame/test/chaos/chaospb"
	"zgame/test/chaos/seam"
)

// moveTime is how long a move may take, with what was done to those who take part.
const moveTime = 20 * time.Second

// owner returns the node that owns the list, as its record says.
func (w *world) owner(list string) *node {
	w.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		ctx, cancel := context.WithTimeout(context.Background(), requestTime)
		rec, err := w.client.Store().Read(ctx, chaospb.Key(list))
		cancel()
		for _, n := range w.nodes {
			if err == nil && n.id == rec.Own.Node.ID {
				return n
			}
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("nobody owns %s: %v, %v", list, rec.Own, err)
		}
		wait(10 * time.Millisecond)
	}
}

// move has the list's owner move it, as an operator does.
func (w *world) move(list string, from, to *node) error {
	return post(fmt.Sprintf("http://%s:9090/objects/%d/0/%s/move?to=%s", from.host.address, chaospb.ListType, list, to.id))
}

// moveSilently does so without telling the target, which loads the list with the first request. It has a private argument.
func (w *world) moveSilently(list string, from, to *node) error {
	return post(fmt.Sprintf("http://%s:9091/move?list=%s&to=%s&notify=no", from.host.address, list, to.id))
}

func post(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), moveTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return err
}

// third returns the node that is neither.
func (w *world) third(a, b *node) *node {
	for _, n := range w.nodes {
		if n != a && n != b {
			return n
		}
	}
	panic("there are three nodes")
}

// another draws a node that is not n.
func (w *world) another(n *node) *node {
	for {
		if o := w.any(); o != n {
			return o
		}
	}
}

// Lists move to and fro under load: no request fails, and nothing is lost or doubled, nor any push.
func TestMoves(t *testing.T) { inWorlds(t, options{calm: true}, toAndFro) }

// So it is with what was acknowledged from memory: without a crash nothing of it is lost.
func TestMovesFromMemory(t *testing.T) { inWorlds(t, options{calm: true, memory: true}, toAndFro) }

func toAndFro(w *world) {
	l := w.begin(8, 6, 8, pace)
	l.served()
	for range 200 {
		key := l.any()
		from := w.owner(key)
		move := []func(string, *node, *node) error{w.move, w.moveSilently}[w.rng.IntN(2)]
		to := w.another(from)
		err := move(key, from, to)
		for tries := 0; tries < 5 && err != nil && strings.Contains(err.Error(), "try again"); tries++ {
			w.t.Logf("moving %s: %v", key, err) // a busy machine: the target did not say in time that it has room. The object stays where it is
			err = move(key, from, to)
		}
		if err != nil {
			w.t.Errorf("moving %s: %v", key, err)
		}
	}
	l.served()
	l.check(w.t)
	l.noFailures(w.t)
	l.connected(w.t)
}

// Who takes part in a move is killed at each of its steps: the owner, the target, and the list's home, which is neither.
func TestKillDuringMove(t *testing.T) {
	inWorlds(t, options{}, func(w *world) {
		t := w.t
		l := w.begin(8, 6, 4, pace)
		l.served()
		homes := map[string]*node{}
		for _, k := range l.keys {
			homes[k] = w.owner(k) // nobody has moved it yet
		}
		for _, step := range []struct {
			seam.Step
			atTarget bool
		}{{seam.Handoff, false}, {seam.Move, false}, {seam.Moved, false}, {seam.Activate, true}, {seam.Adopt, true}} {
			for _, who := range []string{"owner", "target", "home"} {
				key := l.any()
				from := w.owner(key)
				if from == homes[key] {
					to := w.another(from)
					if err := w.move(key, from, to); err != nil {
						t.Fatalf("moving %s from its home: %v", key, err)
					}
					from = to
				}
				to := w.third(from, homes[key])
				victim := map[string]*node{"owner": from, "target": to, "home": homes[key]}[who]
				at := seam.At{Node: from.id, Step: step.Step, Key: key}
				if step.atTarget {
					at.Node = to.id
				}
				w.killAt(l, at, victim, from, to)
			}
		}
		l.check(t)
	})
}

// killAt moves a list and kills the victim when the step is reached; it starts it again, at once or when others serve.
func (w *world) killAt(l *load, at seam.At, victim, from, to *node) {
	w.t.Helper()
	hold := w.seam.Hold(at)
	defer hold.Release()
	moved := make(chan error, 1)
	go func() { moved <- w.move(at.Key, from, to) }() // ends with the request, which is waited for below
	select {
	case <-hold.Reached():
	case <-time.After(patience):
		w.t.Fatalf("%+v was not reached", at)
	}
	victim.die()
	hold.Release()
	w.t.Logf("%s moves from %s to %s: %s was killed at %s of %s; the move says: %v", at.Key, from.id, to.id, victim.id, at.Step, at.Node, <-moved)
	if w.rng.IntN(2) == 0 {
		l.served()
	}
	victim.start()
	l.served()
}
