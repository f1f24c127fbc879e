package gen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path"
	"strings"
)

// filesOf returns the .proto files below dir that a revision has, by their paths in dir.
func filesOf(ctx context.Context, dir, revision string) (files []string, err error) {
	out, err := git(ctx, dir, "ls-tree", "-r", "-z", "--name-only", "--end-of-options", revision, ".")
	for name := range strings.SplitSeq(string(out), "\x00") {
		if path.Ext(name) == ".proto" {
			files = append(files, name)
		}
	}
	return files, err
}

// fileOf opens a file below dir as a revision has it.
func fileOf(ctx context.Context, dir, revision, name string) (io.ReadCloser, error) {
	out, err := git(ctx, dir, "show", "--end-of-options", revision+":./"+name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return io.NopCloser(bytes.NewReader(out)), nil
}

func git(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, errors.New(strings.TrimSpace(string(failed.Stderr)))
	}
	return out, err
}
