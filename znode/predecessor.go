package znode

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"zgame/internal/filelock"
	"zgame/zdiscovery"
)

// predecessor knows whether the process that had this node's id before, on this machine, has ended: by a file that a node holds
// locked while it lives, and in which stands a token that its record names too. Whoever locks the file and finds the token of the
// record in it has the file that its holder had, and the holder is gone, for the system frees a lock only when the process
// ends. The token names the boot of the machine: the same file on another machine proves nothing. Methods may be called on
// nil: nothing is known, and a lease ends by itself.
type predecessor struct {
	file        *os.File
	before, own string // tokens
}

// bootFile has a name of its own for each boot of the system; other systems than Linux have none such.
const bootFile = "/proc/sys/kernel/random/boot_id"

// defaultLockDir is empty where the user has no directory for such things.
func defaultLockDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "zgame", "nodes")
}

// lookForPredecessor locks the node's file. It returns nil where that cannot be done: the process that has it lives, or there is no
// such file for it.
func lookForPredecessor(s *Settings, log *slog.Logger) *predecessor {
	boot, err := os.ReadFile(bootFile)
	if err != nil || s.Node.LockDir == "" {
		return nil
	}
	p, err := lockNodeFile(filepath.Join(s.Node.LockDir, s.Node.Cluster+"-"+s.Node.ID), strings.TrimSpace(string(boot)))
	if err != nil {
		log.Debug("a start after a crash will wait for the lease to end", "err", err)
		return nil
	}
	return p
}

func lockNodeFile(path, boot string) (*predecessor, error) {
	f, err := filelock.Open(path, 0o700, 0o600)
	if err != nil {
		return nil, fmt.Errorf("node.lock_dir: %w", err)
	}
	p := &predecessor{file: f}
	var nonce [16]byte
	_, err = rand.Read(nonce[:])
	if err == nil {
		p.own = boot + "/" + hex.EncodeToString(nonce[:])
		err = p.swap()
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// swap reads the token before and writes the own one.
func (p *predecessor) swap() error {
	old, err := io.ReadAll(io.LimitReader(p.file, 256))
	if err != nil {
		return err
	}
	if boot, _, ok := strings.Cut(p.own, "/"); ok && strings.HasPrefix(string(old), boot+"/") {
		p.before = string(old)
	}
	if err := p.file.Truncate(0); err != nil {
		return err
	}
	_, err = p.file.WriteAt([]byte(p.own), 0)
	return err
}

// token is what the node's record names; empty where nothing can be proven of it.
func (p *predecessor) token() string {
	if p == nil {
		return ""
	}
	return p.own
}

// gone reports that it is proven that the process of holder has ended.
func (p *predecessor) gone(holder zdiscovery.Node) bool {
	return p != nil && p.before != "" && holder.Lock == p.before
}

// close frees the file for the next process.
func (p *predecessor) close() {
	if p != nil {
		_ = p.file.Close()
	}
}
