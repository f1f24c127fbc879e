package zactortest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zactor/zactortest"
)

func TestReplay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sulky := func(mended bool) func() zactor.Actor {
		return func() zactor.Actor {
			return handlers{zactor.HandleTell(func(*zactor.Context, *testpb.Note) error {
				if !mended {
					panic("no")
				}
				return nil
			})}
		}
	}
	g, s := zactortest.NewSteps(t, zactor.Config{RecordDir: dir, Recorder: &zactor.RecorderOptions{}})
	ref, err := g.Spawn("sulky", sulky(false))
	if err != nil {
		t.Fatal(err)
	}
	s.Send(ref, &testpb.Note{})
	s.Run()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, record, want string
		mended             bool
	}{
		{"broken", string(b), "the same panic: no", false},
		{"mended", string(b), "", true},
		{"left out", strings.Replace(string(b), `"kind":"message"`, `"kind":"message","missing":"too long"`, 1), "did not come to the end: input 1", true},
		{"no record", "{}", "no record", true},
	} {
		tb := &fakeTB{TB: t}
		said := tb.run(func() { zactortest.Replay(tb, c.record, sulky(c.mended)) })
		if !strings.Contains(said, c.want) || (said == "") != (c.want == "") {
			t.Errorf("%s: the kit says %q, want %q", c.name, said, c.want)
		}
	}
	zactortest.ReplayFile(t, files[0], sulky(true))
	tb := &fakeTB{TB: t}
	if said := tb.run(func() { zactortest.ReplayFile(tb, "no such file", sulky(true)) }); !strings.Contains(said, "no such file") {
		t.Errorf("the kit says %q", said)
	}
}
