package filelock_test

import (
	"errors"
	"path/filepath"
	"testing"

	"zgame/internal/filelock"
)

func TestOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "b", "lock")
	f, err := filelock.Open(path, 0o700, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := filelock.Open(path, 0o700, 0o600); !errors.Is(err, filelock.ErrHeld) {
		t.Errorf("a second time: %v, want %v", err, filelock.ErrHeld)
	}
	f.Close()
	if f, err = filelock.Open(path, 0o700, 0o600); err != nil {
		t.Fatalf("when it is free again: %v", err)
	}
	f.Close()
	if _, err := filelock.Open(filepath.Join(path, "below a file"), 0o700, 0o600); err == nil || errors.Is(err, filelock.ErrHeld) {
		t.Errorf("below a file: %v", err)
	}
}
