package zrouter_test

import (
	"fmt"
	"testing"

	"zgame/zmsg"
	"zgame/zrouter"
)

// What operators see: an object in memory here, then there, the move with its pause on both sides, and only so many.
func TestHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.order[0], w.order[1]
	for _, id := range []string{"k", "other"} {
		if _, err := w.own(a, id); err != nil {
			t.Fatal(err)
		}
		if _, err := a.append(id, "one"); err != nil {
			t.Fatal(err)
		}
	}
	list, all := a.set.Residents("", "k", 10)
	if all != 1 || len(list) != 1 || list[0].Key != key("k") || list[0].Version != 1 || list[0].Phase != "active" || list[0].Used.IsZero() {
		t.Errorf("%d, %+v", all, list)
	}
	if list, all := a.set.Residents("", "", 1); all != 2 || len(list) != 1 || list[0].Key != key("other") {
		t.Errorf("the one that was used last: %d, %+v", all, list)
	}
	if list, all := a.set.Residents("no such kind", "", 10); all != 0 || len(list) != 0 {
		t.Errorf("%d, %+v", all, list)
	}
	a.transfer("k", b)
	if _, err := b.append("k", "two"); err != nil {
		t.Fatal(err)
	}
	if _, all := a.set.Residents("", "k", 10); all != 0 {
		t.Error("it is said to be in memory still")
	}
	what := func(n *testNode, since uint64, k zmsg.Key, most int) (list []string) {
		for _, p := range n.set.History(since, k, most) {
			list = append(list, fmt.Sprintf("%d %s %s v%d to %q", p.Number, p.Key.ID, p.What, p.Version, p.To))
		}
		return list
	}
	for _, c := range []struct {
		n     *testNode
		since uint64
		k     zmsg.Key
		most  int
		want  []string
	}{
		{a, 0, zmsg.Key{}, 10, []string{`1 k loaded v1 to ""`, `2 other loaded v1 to ""`, `3 k moved v2 to "b"`}},
		{a, 0, key("k"), 10, []string{`1 k loaded v1 to ""`, `3 k moved v2 to "b"`}},
		{a, 1, key("k"), 10, []string{`3 k moved v2 to "b"`}},
		{a, 0, zmsg.Key{}, 1, []string{`3 k moved v2 to "b"`}},
		{a, 3, zmsg.Key{}, 10, nil},
		{a, 99, zmsg.Key{}, 1, []string{`3 k moved v2 to "b"`}}, // of an earlier process
		{b, 0, zmsg.Key{}, 10, []string{`1 k loaded v2 to ""`}},
	} {
		if got := what(c.n, c.since, c.k, c.most); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("since %d, of %v, %d at most: %q, want %q", c.since, c.k, c.most, got, c.want)
		}
	}
	if p := a.set.History(2, key("k"), 1); p[0].Pause <= 0 || p[0].At.IsZero() {
		t.Errorf("the pause of the move is not known: %+v", p)
	}
}

// Of very many the oldest go.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	h := zrouter.NewHistory()
	const n = 5000
	for i := range n {
		h.Add(zrouter.Passage{Key: zmsg.NumKey(1, 0, uint64(i))})
	}
	list := h.Get(0, zmsg.Key{}, n)
	if len(list) != 2048 || list[0].Number != n-2047 || list[2047].Number != n || list[2047].Key != zmsg.NumKey(1, 0, n-1) {
		t.Errorf("%d are kept, %+v to %+v", len(list), list[0], list[len(list)-1])
	}
	if list := h.Get(n-3, zmsg.Key{}, n); len(list) != 3 || list[0].Number != n-2 {
		t.Errorf("since the third last: %+v", list)
	}
	if got := h.Get(0, zmsg.NumKey(1, 0, 3), n); len(got) != 0 {
		t.Errorf("one that has gone: %+v", got)
	}
}
