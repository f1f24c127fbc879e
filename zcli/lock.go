package zcli

import (
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
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("--data: %w", err)
	}
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("--data: %w", err)
	}
	if err := filelock.Lock(f); err != nil {
		holder, _ := os.ReadFile(path + ".holder")
		f.Close()
		return nil, fmt.Errorf("the data directory %s is in use by %s; end that process, or take another directory with --data",
			dir, orUnknown(strings.TrimSpace(string(holder))))
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
