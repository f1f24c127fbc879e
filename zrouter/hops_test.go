package zrouter_test

import "testing"

// Who asks by an old route is sent on once, and asks the new owner from then on.
func TestOneHopMoreOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	a, b, c := w.order[0], w.order[1], w.order[2]
	if _, err := w.own(a, "k"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.append("k", "learns where it is"); err != nil {
		t.Fatal(err)
	}
	r := a.transfer("k", b)
	if old, err := c.set.Lookup(t.Context(), key("k")); err != nil || old.Owner != a.ref {
		t.Fatalf("nobody has told c, and it knows %+v, %v", old, err)
	}
	if _, err := c.append("k", "is sent on"); err != nil {
		t.Fatal(err)
	}
	if now, err := c.set.Lookup(t.Context(), key("k")); err != nil || now != r {
		t.Errorf("after a request that was sent on c knows %+v, %v, want %+v", now, err, r)
	}
}

// Who hears that a node owns nothing any more does not ask it again, for what it has sent to it before and has not learned of.
func TestForgetOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	a, b, c := w.order[0], w.order[1], w.order[2]
	for _, k := range []string{"k", "l"} {
		if _, err := w.own(a, k); err != nil {
			t.Fatal(err)
		}
		if _, err := c.append(k, "learns where it is"); err != nil {
			t.Fatal(err)
		}
	}
	r := a.transfer("k", b)
	c.set.ForgetOwner(b.ref)
	if old, err := c.set.Lookup(t.Context(), key("k")); err != nil || old.Owner != a.ref {
		t.Fatalf("of another node c knows %+v, %v", old, err)
	}
	c.set.ForgetOwner(a.ref)
	if now, err := c.set.Lookup(t.Context(), key("k")); err != nil || now != r {
		t.Errorf("c knows %+v, %v, want %+v", now, err, r)
	}
	if n, err := c.append("l", "is there still"); n != 2 || err != nil {
		t.Errorf("what has not moved: %d, %v", n, err)
	}
}
