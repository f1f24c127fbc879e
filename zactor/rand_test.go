package zactor_test

import (
	"testing"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
)

// Without Config.Seed no two actors draw the same.
func TestRandDiffers(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	drawn := make(chan uint64, 8)
	for range 2 {
		ref := spawn(t, g, "", factory(zactor.HandleTell(func(c *zactor.Context, _ *testpb.Note) error {
			drawn <- c.Rand().Uint64()
			return nil
		})))
		for range 2 {
			if err := ref.Tell(&testpb.Note{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	seen := map[uint64]bool{}
	for range 4 {
		seen[receive(t, drawn)] = true
	}
	if len(seen) != 4 {
		t.Errorf("%d different numbers in 4 turns of 2 actors", len(seen))
	}
}
