package kvstore

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"zgame/zmsg"
	"zgame/zstore"
)

// TestGoldenRecord holds the bytes in the bucket to testdata/record.hex: a stored record must stay readable.
func TestGoldenRecord(t *testing.T) {
	rec := zstore.Record{
		Key: zmsg.Key{Type: 3, Zone: 4, ID: "room/1"},
		Own: zstore.Own{Node: zmsg.NodeRef{ID: "lobby-7", Epoch: 42}, Version: 17, Pending: true},
		Rev: 1203, WID: zstore.WriteID{1, 2, 3, 15: 16}, Schema: 3, State: []byte("state"),
		Done: []zstore.Done{{Origin: "client-9", Seq: 5, Reply: []byte("reply")}},
	}
	got, err := encode(&rec, &[3][]byte{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/record.hex")
	if err != nil {
		t.Fatal(err)
	}
	if hex.EncodeToString(got) != strings.TrimSpace(string(want)) {
		t.Errorf("encoded %x, want %s", got, want)
	}
	back, err := decode(rec.Key, 9, got)
	if err != nil || back.rec.Own != rec.Own || back.rec.Rev != rec.Rev || back.rec.WID != rec.WID || string(back.rec.State) != "state" ||
		len(back.rec.Done) != 1 || back.seq != 9 {
		t.Errorf("decoded %+v, %v", back, err)
	}
	if s := subject("$KV.zgame.", rec.Key); s != "$KV.zgame.3.4.cm9vbS8x" {
		t.Errorf("subject %s", s)
	}
	if s := formatOwn(rec.Own); s != "bG9iYnktNw 42 17 1" {
		t.Errorf("owner header %q", s)
	}
}

func TestDecodeForeign(t *testing.T) {
	k := zmsg.Key{Type: 1, ID: "k"}
	other, err := encode(&zstore.Record{Key: zmsg.Key{Type: 1, ID: "other"}, Rev: 1}, &[3][]byte{})
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"empty": nil, "text": []byte("hello"), "another key's": other} {
		if h, err := decode(k, 1, b); err == nil {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

func TestNamesAndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := zmsg.Key{
			Type: rapid.Uint32().Draw(t, "type"), Zone: rapid.Uint32().Draw(t, "zone"),
			ID: rapid.StringN(1, 100, zstore.MaxID).Draw(t, "id"),
		}
		s := subject("$KV.b.", k)
		if back, ok := keyOf("$KV.b.", s); !ok || back != k {
			t.Fatalf("%q became %q and %q", k, s, back)
		}
		if strings.ContainsAny(strings.TrimPrefix(s, "$KV."), "*> \t\r\n$") || strings.Count(s, ".") != 4 {
			t.Fatalf("subject %q", s)
		}
		o := zstore.Own{
			Node:    zmsg.NodeRef{ID: rapid.StringN(1, 50, 200).Draw(t, "node"), Epoch: rapid.Uint64().Draw(t, "epoch")},
			Version: zmsg.RouteVersion(rapid.Uint64().Draw(t, "version")), Pending: rapid.Bool().Draw(t, "pending"),
		}
		if back, ok := parseOwn(formatOwn(o)); !ok || back != o {
			t.Fatalf("%+v became %q and %+v", o, formatOwn(o), back)
		}
	})
	for _, s := range []string{"", "$KV.b.", "$KV.b.1.2", "$KV.c.1.2.aw", "$KV.b.x.2.aw", "$KV.b.1.4294967296.aw", "$KV.b.1.2.!", "$KV.b.1.2.aw.aw"} {
		if k, ok := keyOf("$KV.b.", s); ok {
			t.Errorf("%q is the key %s", s, k)
		}
	}
	for _, s := range []string{"", "a", "bG8 1 2", "! 1 2 0", "bG8 -1 2 0", "bG8 1 2 0 0"} {
		if o, ok := parseOwn(s); ok {
			t.Errorf("%q is the owner %+v", s, o)
		}
	}
}

func TestTokens(t *testing.T) {
	k := func(id string) zmsg.Key { return zmsg.Key{ID: id} }
	h := func(id string, seq uint64) head {
		return head{seq: seq, rec: zstore.Record{Key: k(id), State: []byte("large")}}
	}
	c := newTokens(2)
	c.put(h("a", 1))
	c.put(h("b", 2))
	c.put(h("a", 5))
	c.put(h("a", 4)) // overtaken on the way
	c.put(h("c", 6)) // b is the one not used for longest
	if _, ok := c.get(k("b")); ok {
		t.Error("b is still there")
	}
	if a, ok := c.get(k("a")); !ok || a.seq != 5 || a.rec.State != nil {
		t.Errorf("a is %+v", a)
	}
	c.drop(k("a"))
	c.drop(k("a"))
	if _, ok := c.get(k("a")); ok || c.order.Len() != 1 || len(c.byKey) != 1 {
		t.Error("a is still there")
	}
	none := newTokens(-1)
	none.put(h("a", 1))
	if _, ok := none.get(k("a")); ok {
		t.Error("something is remembered")
	}
}
