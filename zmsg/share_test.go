package zmsg_test

import (
	"testing"

	"zgame/zmsg"
)

// A shared body outlives its message: neither poison nor the next use of the message reaches it.
func TestShareBody(t *testing.T) {
	t.Parallel()
	for range 100 {
		m := zmsg.NewMessage(1)
		m.SetBody([]byte("shared"))
		b := m.ShareBody()
		m.Release()
		next := zmsg.NewMessage(2)
		next.SetBody([]byte("others"))
		if string(b) != "shared" {
			t.Fatalf("the body is %q now", b)
		}
		next.Release()
	}
	borrowed := []byte("borrowed")
	m := zmsg.NewMessage(1)
	m.BorrowBody(borrowed)
	if b := m.ShareBody(); &b[0] != &borrowed[0] {
		t.Error("a borrowed body was copied")
	}
	m.Release()
	if b := zmsg.NewMessage(1).ShareBody(); b != nil {
		t.Errorf("no body is %q", b)
	}
}
