package zactor_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
)

// till is an actor whose state can be written down.
type till struct{ coins int64 }

func (a *till) Handlers() []zactor.Handler {
	return []zactor.Handler{zactor.HandleTell(func(c *zactor.Context, m *testpb.Note) error {
		a.coins += m.GetN()
		if a.coins < 0 {
			panic(fmt.Sprintf("%d coins", a.coins))
		}
		return nil
	})}
}

func (a *till) Snapshot() ([]byte, error) { return binary.AppendVarint(nil, a.coins), nil }

func (a *till) Restore(b []byte) error {
	coins, n := binary.Varint(b)
	if n <= 0 {
		return errors.New("no number of coins")
	}
	a.coins = coins
	return nil
}

func ExampleReplay() {
	dir, err := os.MkdirTemp("", "records")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // an example
	g, m, err := zactor.NewManual(zactor.Config{RecordDir: dir})
	if err != nil {
		panic(err)
	}
	newTill := func() zactor.Actor { return &till{} }
	ref, err := g.Spawn("till", newTill, zactor.WithRecorder(zactor.RecorderOptions{Messages: 2}))
	if err != nil {
		panic(err)
	}
	for _, n := range []int64{5, 5, 5, -3, -3, -10} {
		_ = ref.Tell(&testpb.Note{N: n})
	}
	m.Run(100)

	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	rec, err := zactor.OpenRecord(files[0])
	if err != nil {
		panic(err)
	}
	report, err := zactor.Replay(rec, newTill, zactor.ReplayOptions{})
	if err != nil {
		panic(err)
	}
	fmt.Println(rec.Header.Dropped, "inputs before the snapshot,", rec.Inputs(), "after it")
	fmt.Println(report.Verdict())
	// Output:
	// 2 inputs before the snapshot, 4 after it
	// the same panic: -1 coins in zgame/zactor_test.(*till).Handlers.func1
}
