package zactor

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"zgame/zmetrics"
)

// recordExt ends the name of every record's file.
const recordExt = ".record.jsonl"

// recordQueue is how many records wait for the disk; further ones are left out and counted.
const recordQueue = 4

// recordFiles writes the records of a group's actors into a directory, on one goroutine of its own, which exists while there is
// something to write: a disk that is slow, or does not answer at all, holds up neither the restart of the actor nor its messages. The
// price is that a process that ends at once may lose the file; Shutdown waits for it. The actors of a Manual write on
// its goroutine.
type recordFiles struct {
	// Set at construction.
	dir                      string
	limit                    int // files in the directory
	log                      *slog.Logger
	wg                       *sync.WaitGroup // of the group
	inTurn                   bool            // write on the caller's goroutine
	written, failed, skipped zmetrics.Counter

	mu      sync.Mutex
	queue   []*Record // guarded by mu
	running bool      // guarded by mu
	ended   bool      // guarded by mu
}

func newRecordFiles(g *Group) *recordFiles {
	m := g.cfg.Metrics.Records
	return &recordFiles{
		dir: g.cfg.RecordDir, limit: g.cfg.RecordFiles, log: g.log, wg: &g.wg, inTurn: g.manual != nil,
		written: m.With("written"), failed: m.With("failed"), skipped: m.With("skipped"),
	}
}

// add lets rec be written soon.
func (f *recordFiles) add(rec *Record) {
	if f.inTurn {
		f.write(rec)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.ended || len(f.queue) >= recordQueue:
		f.skipped.Inc()
	case f.running:
		f.queue = append(f.queue, rec)
	default:
		f.running = true
		f.wg.Add(1)
		go f.work(rec) // owned by the group; ends when no record waits; the group's shutdown waits for it
	}
}

func (f *recordFiles) work(rec *Record) {
	defer f.wg.Done()
	for rec != nil {
		f.write(rec)
		rec = f.next()
	}
}

// next returns the next record, nil for none: then the goroutine is gone.
func (f *recordFiles) next() *Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) == 0 {
		f.running = false
		return nil
	}
	rec := f.queue[0]
	f.queue[0] = nil
	f.queue = f.queue[1:]
	return rec
}

// end refuses further records.
func (f *recordFiles) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
}

// write writes a file; what fails is logged.
func (f *recordFiles) write(rec *Record) {
	path, err := f.file(rec)
	if err != nil {
		f.failed.Inc()
		f.log.Error("the actor's record was not written", "actor", rec.Header.Actor.Actor, "name", rec.Header.Name, "err", err)
		return
	}
	f.written.Inc()
	f.log.Warn("the actor's record is written", "actor", rec.Header.Actor.Actor, "name", rec.Header.Name, "file", path, "inputs", rec.Inputs())
}

func (f *recordFiles) file(rec *Record) (path string, err error) {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return "", err
	}
	prefix := recordPrefix(rec.Header.Type, rec.Header.Name)
	tmp, err := os.CreateTemp(f.dir, "record-*.tmp") // made with 0600
	if err != nil {
		return "", err
	}
	_, err = rec.WriteTo(tmp)
	err = errors.Join(err, tmp.Close())
	if err == nil {
		path, err = reserve(filepath.Join(f.dir, prefix+rec.Header.At.UTC().Format("20060102T150405.000")))
	}
	if err == nil {
		if err = os.Rename(tmp.Name(), path); err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(tmp.Name()))
	}
	return path, f.prune(prefix)
}

// reserve makes an empty file of a name that none has yet: several nodes may share a directory.
func reserve(stem string) (path string, err error) {
	for n := 1; n <= 999; n++ {
		path = fmt.Sprintf("%s-%03d%s", stem, n, recordExt)
		var file *os.File
		if file, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err == nil {
			return path, file.Close()
		}
		if !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return "", err
}

// prune removes the oldest files: of one actor those beyond a quarter of the limit, so that it does not push out those of all
// others, and of all those beyond the limit.
func (f *recordFiles) prune(prefix string) error {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() && strings.HasSuffix(e.Name(), recordExt) {
			names = append(names, e.Name())
		}
	}
	var errs []error
	for _, name := range surplus(names, prefix, f.limit) {
		if err := os.Remove(filepath.Join(f.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// surplus picks the names of files that have to go.
func surplus(names []string, prefix string, limit int) (out []string) {
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(recordTime(a), recordTime(b)), cmp.Compare(a, b)) })
	own, all := 0, 0
	for _, name := range slices.Backward(names) {
		mine := strings.HasPrefix(name, prefix)
		if all >= limit || mine && own >= max(1, limit/4) {
			out = append(out, name)
			continue
		}
		all++
		if mine {
			own++
		}
	}
	return out
}

// recordTime returns the part of a file's name that orders the files.
func recordTime(name string) string {
	name = strings.TrimSuffix(name, recordExt)
	return name[strings.LastIndexByte(name, '_')+1:]
}

// recordPrefix begins the names of an actor's files. What a name may not hold becomes '-', and then, as for one that is too
// long, a checksum keeps it apart from others.
func recordPrefix(typ, name string) string {
	return fileSafe(typ) + "_" + fileSafe(name) + "_"
}

// maxFileName is how many bytes of a type's or an actor's name are in a file's name.
const maxFileName = 48

func fileSafe(name string) string {
	safe := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-':
			return r
		default:
			return '-'
		}
	}, name)
	safe = strings.TrimLeft(safe, ".") // hidden files, and ..
	if safe == name && len(name) <= maxFileName {
		return safe
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails
	return fmt.Sprintf("%s-%08x", safe[:min(len(safe), maxFileName)], h.Sum32())
}
