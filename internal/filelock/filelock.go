// Package filelock locks files for one process: the system frees the lock when the process ends, however it ends.
package filelock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrHeld says that another process, or another handle of this one, has the lock.
var ErrHeld = errors.New("filelock: the file is locked by another process")

// Open opens the file, which it makes with its directories if need be, and locks it until it is closed. Errors: ErrHeld, and those
// of the system.
func Open(path string, dir, perm os.FileMode) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), dir); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, perm)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w: %w", path, ErrHeld, err)
	}
	return f, nil
}
