package znode_test

import (
	"path/filepath"
	"testing"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/znode"
)

// grumpy panics at every line.
type grumpy struct{}

func (grumpy) Handlers() []zactor.Handler {
	return []zactor.Handler{zactor.HandleTell(func(*zactor.Context, *chatpb.Say) error { panic("quiet") })}
}

func TestRecordSettings(t *testing.T) {
	for _, all := range []bool{true, false} {
		dir := t.TempDir()
		cfg := newRig().config("n1", znode.App{})
		cfg.Settings.Actors.RecordDir, cfg.Settings.Actors.Record = dir, all
		n := start(t, cfg)
		for name, opts := range map[string][]zactor.SpawnOption{"silent": nil, "asked": {zactor.WithRecorder(zactor.RecorderOptions{})}} {
			ref, err := n.Spawn(name, func() zactor.Actor { return grumpy{} }, opts...)
			if err != nil {
				t.Fatal(err)
			}
			if err := ref.Tell(&chatpb.Say{Room: "x"}); err != nil {
				t.Fatal(err)
			}
		}
		stop(t, n)
		files, err := filepath.Glob(filepath.Join(dir, "*.record.jsonl"))
		if want := map[bool]int{true: 2, false: 1}[all]; err != nil || len(files) != want {
			t.Errorf("record: %v: %q (%v), want %d", all, files, err, want)
		}
	}
	cfg := newRig().config("n1", znode.App{})
	cfg.Settings.Actors.Record = true
	if _, err := znode.New(cfg); err == nil {
		t.Error("records that have nowhere to go")
	}
}
