package protobuild

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Dirs is a Source of files in directories, the first that has one.
func Dirs(dirs []string) Source {
	return func(path string) (io.ReadCloser, error) {
		for _, d := range dirs {
			if f, err := os.Open(filepath.Join(d, filepath.FromSlash(path))); !os.IsNotExist(err) {
				return f, err
			}
		}
		return nil, fs.ErrNotExist
	}
}

// Find returns the .proto files below dir, by their import paths, sorted.
func Find(dir string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".proto" {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		files = append(files, filepath.ToSlash(rel))
		return err
	})
	slices.Sort(files)
	return files, err
}

// Write writes files below root, those that are not as they should be.
func Write(root string, files map[string][]byte) error {
	for _, name := range Stale(root, files) {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, files[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Stale returns the names of the files below root that are not as they should be, sorted.
func Stale(root string, files map[string][]byte) (names []string) {
	for name, want := range files {
		if have, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name))); err != nil || !bytes.Equal(have, want) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
