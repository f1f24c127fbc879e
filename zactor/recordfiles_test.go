package zactor_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zactor/zactortest"
)

func panicker() zactor.Actor {
	return &actor{handlers: []zactor.Handler{zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { panic("ouch") })}}
}

var forever = zactor.WithPolicy(zactor.Policy{MaxRestarts: zactor.Unlimited, MinBackoff: -1})

// Files are the owner's alone, the newest stay, and one actor does not push out those of others.
func TestRecordFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "when needed")
	g, s := zactortest.NewSteps(t, zactor.Config{RecordDir: dir, RecordFiles: 8, Recorder: &zactor.RecorderOptions{}})
	var refs []zactor.Ref
	for i := range 3 {
		ref, err := g.Spawn(fmt.Sprintf("a/%d", i), panicker, forever)
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, ref)
	}
	fail := func(ref zactor.Ref, d time.Duration) {
		s.Send(ref, &testpb.Note{})
		s.Run()
		s.Advance(d)
	}
	fail(refs[1], time.Second)
	for range 10 {
		fail(refs[0], time.Second)
	}
	fail(refs[2], time.Second/2)
	fail(refs[2], time.Second/2) // too soon: one a second
	count := map[string]int{}
	for _, r := range records(t, dir) {
		count[r.Header.Name]++
	}
	if len(count) != 3 || count["a/0"] != 2 || count["a/1"] != 1 || count["a/2"] != 1 {
		t.Errorf("the files are of %v", count)
	}
	if runtime.GOOS != "windows" {
		for path, want := range map[string]os.FileMode{dir: 0o700, recordPaths(t, dir)[0]: 0o600} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
				t.Errorf("%s has %v (%v), want %v", path, info.Mode().Perm(), err, want)
			}
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 4 {
		t.Errorf("%v are there (%v)", entries, err)
	}
}

// A disk that fails is logged, and the actor goes on.
func TestRecordDiskFails(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	g, s := zactortest.NewSteps(t, zactor.Config{
		RecordDir: filepath.Join(file, "dir"), Recorder: &zactor.RecorderOptions{}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	ref, err := g.Spawn("a", panicker, forever)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s.Send(ref, &testpb.Note{})
		s.Advance(time.Second)
	}
	if n := strings.Count(log.String(), "the actor's record was not written"); n != 2 {
		t.Errorf("%d failures in the log:\n%s", n, log.String())
	}
}

// Recorders, their files, handlers' own goroutines and a shutdown, all at once.
func TestRecorderRaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := newGroup(t, func(c *zactor.Config) {
		c.RecordDir, c.RecordFiles, c.Recorder = dir, 4, &zactor.RecorderOptions{Messages: 4}
	})
	other := spawn(t, g, "other", factory(zactor.Handle(echo)))
	var asking sync.WaitGroup
	var refs []zactor.Ref
	for i := range 8 {
		refs = append(refs, spawn(t, g, fmt.Sprint("a", i), factory(zactor.HandleTell(func(c *zactor.Context, m *testpb.Note) error {
			ctx := c.Context()
			asking.Go(func() { _, _ = zactor.Ask[testpb.Pong](ctx, other, &testpb.Ping{N: 1}) })
			_, err := zactor.Ask[testpb.Pong](ctx, other, &testpb.Ping{N: 2})
			if m.GetN()%5 == 0 {
				panic(m.GetN())
			}
			return err
		})), forever))
	}
	var sending sync.WaitGroup
	for _, ref := range refs {
		sending.Go(func() {
			for i := range int64(100) {
				_ = ref.Tell(&testpb.Note{N: i})
			}
		})
	}
	sending.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	if err := g.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	asking.Wait()
	if n := len(records(t, dir)); n == 0 || n > 4 {
		t.Errorf("%d files", n)
	}
}

func TestRecorderOptionsAreChecked(t *testing.T) {
	t.Parallel()
	bad := zactor.RecorderOptions{Messages: -1}
	if _, err := zactor.NewGroup(zactor.Config{Recorder: &bad, RecordFiles: -1}); err == nil || !strings.Contains(err.Error(), "RecorderOptions -1 messages") ||
		!strings.Contains(err.Error(), "RecordFiles is -1") {
		t.Error(err)
	}
	if _, err := newGroup(t, nil).Spawn("a", panicker, zactor.WithRecorder(bad)); err == nil {
		t.Error("the spawn went well")
	}
}
