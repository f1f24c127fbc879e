package zrouter

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zrouter/internal/testpb"
	"zgame/zstore"
)

func TestDoneRoundTrip(t *testing.T) {
	t.Parallel()
	answer := &testpb.Appended{N: 7}
	body, err := proto.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct{ told, want zmsg.Reply }{
		{zmsg.Reply{}, zmsg.Reply{}},
		{zmsg.Reply{ID: 4102, Body: body}, zmsg.Reply{ID: 4102, Body: body}},
		{zmsg.Reply{ID: 4102, Value: answer}, zmsg.Reply{ID: 4102, Body: body}},
		{zmsg.Reply{Code: 1001, Text: "join first"}, zmsg.Reply{Code: 1001, Text: "join first"}},
		{zmsg.Reply{Code: zmsg.CodePanicked, Outcome: zmsg.Unknown, Text: "\xff"}, zmsg.Reply{Code: zmsg.CodePanicked, Outcome: zmsg.Unknown, Text: "\ufffd"}},
		{zmsg.Reply{ID: 1, Body: make([]byte, maxKeptReply)}, notKept},
		{zmsg.Reply{ID: 1, Value: &testpb.Append{Line: strings.Repeat("x", maxKeptReply)}}, notKept},
		{zmsg.Reply{Code: 1001, Text: strings.Repeat("x", maxKeptReply)}, notKept},
	} {
		r := newDoneRing(3, zstore.MaxDone, nil)
		if err := r.add("id", &c.told); err != nil {
			t.Error(err)
		}
		again := newDoneRing(3, zstore.MaxDone, r.list()) // as from the record
		got, ok := again.find("id")
		if !ok || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%d: %+v %v, want %+v", i, got, ok, c.want)
		}
	}
}

func TestDoneThatDoesNotEncode(t *testing.T) {
	t.Parallel()
	bad := &zmsg.Reply{ID: 1, Value: &testpb.Append{Line: "\xff"}}
	r := newDoneRing(3, zstore.MaxDone, nil)
	if err := r.add("id", bad); err == nil {
		t.Error("no error")
	}
	if got, ok := r.find("id"); !ok || got.Code != zmsg.CodeTooLarge || got.Outcome != zmsg.Executed {
		t.Errorf("%+v %v", got, ok)
	}
	if got := encoded(bad); !reflect.DeepEqual(got, notKept) {
		t.Errorf("%+v", got)
	}
	for _, raw := range [][]byte{nil, {0xff}, {8, 1}} { // of another program
		r := newDoneRing(3, zstore.MaxDone, []zstore.Done{{Origin: "x", Reply: raw}})
		if got, ok := r.find("x"); !ok || !reflect.DeepEqual(got, notKept) {
			t.Errorf("%x: %+v %v", raw, got, ok)
		}
	}
}

// What encoded returns lives longer than the reply.
func TestEncodedIsItsOwn(t *testing.T) {
	t.Parallel()
	told := zmsg.Reply{ID: 1, Body: []byte("abc")}
	kept := encoded(&told)
	copy(told.Body, "xyz")
	if string(kept.Body) != "abc" || kept.Value != nil {
		t.Errorf("%+v", kept)
	}
	r := newDoneRing(1, zstore.MaxDone, nil)
	if err := r.add("id", &kept); err != nil {
		t.Fatal(err)
	}
	copy(kept.Body, "xyz")
	if got, _ := r.find("id"); string(got.Body) != "abc" {
		t.Errorf("%+v", got)
	}
}

func TestDoneIDs(t *testing.T) {
	t.Parallel()
	r := newDoneRing(3, zstore.MaxDone, nil)
	for _, id := range []string{"", "\xff", strings.Repeat("x", zmsg.MaxOnce+1)} {
		err := r.add(id, &zmsg.Reply{})
		if zmsg.CodeOf(err) != zmsg.CodeBadRequest || zmsg.OutcomeOf(err) != zmsg.NotExecuted || !strings.Contains(fmt.Sprint(err), "expected 1 to 128 bytes") {
			t.Errorf("%.10q: %v", id, err)
		}
	}
	if r.list() != nil {
		t.Error("they are remembered")
	}
	var none *doneRing
	if _, ok := none.find("a"); ok || none.add("a", &zmsg.Reply{}) != nil || none.list() != nil {
		t.Error("nil")
	}
	r = newDoneRing(0, zstore.MaxDone, []zstore.Done{{Origin: "a"}})
	if err := r.add("b", &zmsg.Reply{}); err != nil || r.list() != nil {
		t.Errorf("%v %v", err, r.list())
	}
}

// Against a list: the newest are found, each with its first answer; what was given to the store is never changed; the store takes it.
func TestDoneModel(t *testing.T) {
	t.Parallel()
	type told struct {
		id   string
		size int
		code zmsg.Code
	}
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]int{1, 2, 5, 1024}).Draw(t, "limit")
		r := newDoneRing(limit, zstore.MaxDone, nil)
		var model []told
		var given [][]zstore.Done
		var copies [][]zstore.Done
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			id := fmt.Sprint(rapid.IntRange(0, 20).Draw(t, "id"))
			code := zmsg.Code(rapid.IntRange(1000, 2000).Draw(t, "code"))
			size := rapid.SampledFrom([]int{0, 10, maxKeptReply - 100, maxKeptReply + 1}).Draw(t, "size")
			if err := r.add(id, &zmsg.Reply{Code: code, Body: bytes.Repeat([]byte{7}, size)}); err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(model, func(m told) bool { return m.id == id }) {
				model = append(model, told{id, size, code})
			}
			total := func() (n int) {
				for _, m := range model {
					d := zstore.Done{Origin: m.id}
					if m.size <= maxKeptReply {
						d.Reply, _ = encodeReply(&zmsg.Reply{Code: m.code, Body: make([]byte, m.size)})
					}
					n += d.Size()
				}
				return n
			}
			for len(model) > limit || total() > zstore.MaxDone {
				model = model[1:]
			}
			switch rapid.IntRange(0, 5).Draw(t, "then") {
			case 0:
				given, copies = append(given, r.list()), append(copies, slices.Clone(r.list()))
			case 1:
				r = newDoneRing(limit, zstore.MaxDone, r.list())
			}
			for i := range 21 {
				id := fmt.Sprint(i)
				at := slices.IndexFunc(model, func(m told) bool { return m.id == id })
				got, ok := r.find(id)
				if ok != (at >= 0) {
					t.Fatalf("%s is remembered: %v, want %v", id, ok, at >= 0)
				}
				if !ok {
					continue
				}
				want := model[at].code
				if model[at].size > maxKeptReply {
					want = zmsg.CodeTooLarge
				} else if len(got.Body) != model[at].size {
					t.Fatalf("%s: %d bytes, want %d", id, len(got.Body), model[at].size)
				}
				if got.Code != want || got.Outcome != zmsg.Executed {
					t.Fatalf("%s: %v, want %v", id, got.Code, want)
				}
			}
			save := zstore.Change{Op: zstore.OpSave, Key: zmsg.NumKey(1, 0, 1), WID: zstore.NewWriteID(), Write: zstore.Write{Done: r.list()}}
			if err := save.Check(1); err != nil {
				t.Fatal(err)
			}
		}
		for i := range given {
			if !reflect.DeepEqual(given[i], copies[i]) {
				t.Fatalf("what was given to the store has changed")
			}
		}
	})
}
