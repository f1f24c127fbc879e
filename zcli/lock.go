package zcli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"zgame/internal/filelock"
)

// dataLock is held by the process that uses a data directory. The system frees it when the process ends, however it
// ends.
type dataLock struct{ f *os.File }

// lockData takes the directory's lock, or says who holds it.
func lockData(dir, address string) (*dataLock, error) {
	path := filepath.Join(dir, "lock")
	f, err := filelock.Open(path, 0o755, 0o644)
	switch {
	case errors.Is(err, filelock.ErrHeld):
		holder, _ := os.ReadFile(path + ".holder")
		return nil, fmt.Errorf("the data directory %s is in use by %s; end that process, or take another directory with --data",
			dir, orUnknown(strings.TrimSpace(string(holder))))
	case err != nil:
		return nil, fmt.Errorf("--data: %w", err)
	}
	text := fmt.Sprintf("pid %d (gate %s)\n", os.Getpid(), address)
	// In a file of its own: a locked file cannot be read by others on every system.
	if err := os.WriteFile(path+".holder", []byte(text), 0o644); err != nil {
		f.Close()
		return nil, fmt.Errorf("--data: %w", err)
	}
	return &dataLock{f}, nil
}

func orUnknown(s string) string {
	if s == "" {
		return "another process"
	}
	return s
}

func (l *dataLock) release() { l.f.Close() }
