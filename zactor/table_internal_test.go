package zactor

import "testing"

// Actors that come and go one after the other leave nothing behind.
func TestTableForgetsChunks(t *testing.T) {
	t.Parallel()
	var tab table
	for range 10 << chunkBits {
		c := new(cell)
		tab.add(c)
		if tab.get(c.id) != c {
			t.Fatalf("%d is not there", c.id)
		}
		tab.remove(c)
	}
	kept := 0
	for i := range *tab.dir.Load() {
		if (*tab.dir.Load())[i].Load() != nil {
			kept++
		}
	}
	if kept > 1 {
		t.Errorf("%d chunks are kept, and no actor is there", kept)
	}
}
