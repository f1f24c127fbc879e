package zstoretest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"zgame/zmsg"
	"zgame/zstore"
)

const runsPerStore = 10

// Model runs random calls against one store and against a map, and compares every answer and every record. It is a
// property test: the usual -rapid.* flags apply, a failing sequence is shrunk and printed.
func Model(t *testing.T, open Open) {
	t.Helper()
	var s zstore.Store
	t.Cleanup(func() { closeStore(t, s) })
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		// Each run has keys and nodes of its own, so that one store serves several; a new one now and then, because
		// there are servers that look at every document to find one.
		if run%runsPerStore == 0 {
			if s != nil {
				closeStore(t, s)
			}
			s = open(t)
		}
		run++
		m := &model{ctx: t.Context(), s: s, docs: map[zmsg.Key]*doc{}, writes: map[zmsg.Key][]zstore.Change{}}
		for i := range 2 {
			m.keys = append(m.keys, zmsg.Key{Type: 9, Zone: uint32(i), ID: fmt.Sprintf("run %d", run)})
		}
		m.nodes = []zmsg.NodeRef{{}, {ID: fmt.Sprintf("a%d", run), Epoch: 1}, {ID: fmt.Sprintf("a%d", run), Epoch: 2}, {ID: fmt.Sprintf("b%d", run), Epoch: 1}}
		rt.Repeat(map[string]func(*rapid.T){
			"create": func(rt *rapid.T) { m.write(rt, zstore.OpCreate) },
			"claim":  func(rt *rapid.T) { m.write(rt, zstore.OpClaim) },
			"save":   func(rt *rapid.T) { m.write(rt, zstore.OpSave) },
			"move":   func(rt *rapid.T) { m.write(rt, zstore.OpMove) },
			"delete": func(rt *rapid.T) { m.write(rt, zstore.OpDelete) },
			"repeat": m.repeat,
			"scan":   m.scan,
			"":       m.check,
		})
	})
}

// model is what a store should be, as simple as it can be said, and apart from zstore.Change on purpose.
type model struct {
	ctx    context.Context //nolint:containedctx // one test's
	s      zstore.Store
	keys   []zmsg.Key
	nodes  []zmsg.NodeRef
	docs   map[zmsg.Key]*doc
	writes map[zmsg.Key][]zstore.Change // issued before, with success or without
}

type doc struct {
	node    zmsg.NodeRef
	version zmsg.RouteVersion
	pending bool
	rev     uint64
	wid     zstore.WriteID
	text    string
	schema  uint32
	carried string // the attachment
	deleted bool
}

func (m *model) write(rt *rapid.T, op zstore.Op) {
	c := zstore.Change{Op: op, Key: rapid.SampledFrom(m.keys).Draw(rt, "key"), WID: id()}
	if op == zstore.OpCreate || op == zstore.OpSave || op == zstore.OpMove {
		c.Schema = rapid.Uint32Range(0, 3).Draw(rt, "schema")
		c.State = []byte(rapid.StringN(0, 5, 10).Draw(rt, "state"))
	}
	if op == zstore.OpMove {
		c.Attachment = []byte(rapid.StringN(0, 2, 5).Draw(rt, "attachment"))
	}
	if op == zstore.OpCreate || op == zstore.OpClaim || op == zstore.OpMove {
		nodes := m.nodes
		if op == zstore.OpClaim {
			nodes = nodes[1:]
		}
		c.Node = rapid.SampledFrom(nodes).Draw(rt, "node")
	}
	if d := m.docs[c.Key]; d != nil && op != zstore.OpCreate {
		c.Own = zstore.Own{Node: d.node, Version: d.version, Pending: d.pending}
		c.Rev = d.rev
	}
	if op != zstore.OpCreate { // mostly right, sometimes wrong in one point
		switch rapid.IntRange(0, 12).Draw(rt, "wrong") {
		case 0:
			c.Own.Node = rapid.SampledFrom(m.nodes).Draw(rt, "wrong node")
		case 1:
			c.Own.Version += zmsg.RouteVersion(rapid.IntRange(-2, 2).Draw(rt, "wrong version"))
		case 2:
			c.Rev += uint64(rapid.IntRange(-2, 2).Draw(rt, "wrong revision"))
		case 3:
			c.Own.Pending = !c.Own.Pending // not compared
		}
	}
	m.writes[c.Key] = append(m.writes[c.Key], c)
	m.issue(rt, c)
}

// repeat issues an earlier write again.
func (m *model) repeat(rt *rapid.T) {
	k := rapid.SampledFrom(m.keys).Draw(rt, "key")
	if len(m.writes[k]) == 0 {
		return
	}
	// The last ones are the interesting ones.
	all := m.writes[k]
	m.issue(rt, all[len(all)-1-rapid.IntRange(0, min(3, len(all)-1)).Draw(rt, "back")])
}

func (m *model) issue(rt *rapid.T, c zstore.Change) {
	want, wantErr := m.apply(c)
	got, err := c.Do(m.ctx, m.s)
	if !errors.Is(err, wantErr) {
		rt.Fatalf("%s of %+v: error %v, want %v", c.Op, c, err, wantErr)
	}
	if err != nil {
		return
	}
	if r := want.record(c.Key); got.Own != r.Own || got.Rev != r.Rev || (c.Op != zstore.OpDelete && !equal(got, r)) {
		rt.Fatalf("%s returned %+v, want %+v", c.Op, got, r)
	}
}

// apply says what a write must do, case by case.
func (m *model) apply(c zstore.Change) (*doc, error) {
	d := m.docs[c.Key]
	if d != nil && d.wid == c.WID {
		return d, nil // in this test an id is used for one write alone
	}
	exists := d != nil && !d.deleted
	matches := exists && d.node == c.Own.Node && d.version == c.Own.Version && d.rev == c.Rev
	var n doc
	switch c.Op { //nolint:exhaustive // the writes alone
	case zstore.OpCreate:
		if exists {
			return nil, zstore.ErrConflict
		}
		n = doc{node: c.Node, version: 1, rev: 1, text: string(c.State), schema: c.Schema}
		if d != nil {
			n.version, n.rev = d.version+1, d.rev+1
		}
	case zstore.OpClaim:
		if !exists {
			return nil, zstore.ErrNotFound
		}
		if !matches {
			return nil, zstore.ErrConflict
		}
		n = doc{node: c.Node, version: d.version + 1, rev: d.rev + 1, text: d.text, schema: d.schema, carried: d.carried}
	case zstore.OpSave, zstore.OpMove, zstore.OpDelete:
		if !matches {
			return nil, zstore.ErrConflict
		}
		switch c.Op { //nolint:exhaustive // these three, says the line above
		case zstore.OpSave:
			n = doc{node: d.node, version: d.version, rev: d.rev + 1, text: string(c.State), schema: c.Schema}
		case zstore.OpMove:
			n = doc{node: c.Node, version: d.version + 1, pending: c.Node.ID != "", rev: d.rev + 1, text: string(c.State), schema: c.Schema, carried: string(c.Attachment)}
		case zstore.OpDelete:
			n = doc{version: d.version + 1, rev: d.rev + 1, deleted: true}
		}
	}
	n.wid = c.WID
	m.docs[c.Key] = &n
	return &n, nil
}

func (d *doc) record(k zmsg.Key) zstore.Record {
	return zstore.Record{
		Key: k, Own: zstore.Own{Node: d.node, Version: d.version, Pending: d.pending}, Rev: d.rev, WID: d.wid,
		Schema: d.schema, State: []byte(d.text), Attachment: []byte(d.carried), Deleted: d.deleted,
	}
}

func (m *model) scan(rt *rapid.T) {
	owner := rapid.SampledFrom(m.nodes[1:]).Draw(rt, "owner")
	got := map[zmsg.Key]zstore.Own{}
	if err := m.s.Scan(m.ctx, owner, func(k zmsg.Key, own zstore.Own) bool { got[k] = own; return true }); err != nil {
		rt.Fatal(err)
	}
	n := 0
	for k, d := range m.docs {
		if d.node != owner {
			continue
		}
		n++
		if own, ok := got[k]; !ok || own != d.record(k).Own {
			rt.Fatalf("Scan gave %s as %+v (%t), want %+v", k, own, ok, d.record(k).Own)
		}
	}
	if len(got) != n {
		rt.Fatalf("Scan gave %d records, want %d", len(got), n)
	}
}

// check compares every record.
func (m *model) check(rt *rapid.T) {
	for _, k := range m.keys {
		got, err := m.s.Read(m.ctx, k)
		d := m.docs[k]
		if d == nil || d.deleted {
			if !errors.Is(err, zstore.ErrNotFound) {
				rt.Fatalf("Read(%s): error %v, want not found", k, err)
			}
		} else if err != nil {
			rt.Fatalf("Read(%s): %v", k, err)
		}
		if d != nil && !equal(got, d.record(k)) {
			rt.Fatalf("record is %+v, want %+v", got, d.record(k))
		}
	}
}
