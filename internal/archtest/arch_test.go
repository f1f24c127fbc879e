// Package archtest holds the arrows between packages (ARCHITECTURE.md) by parsing imports, so that a wrong arrow fails
// `go test` on any machine. Parsing, not `go list`: the test cache would serve an old answer of a command.
package archtest

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// arrows says, for each package (its subpackages included), which packages of ours its production code may import.
// "*" allows every one. Change me when I am wrong, with a reason in docs/decisions.
var arrows = map[string][]string{
	"zmsg":                {},
	"zmetrics":            {},
	"zbus":                {"zmsg", "zmetrics", "internal/lograte"},
	"zdiscovery":          {"zmsg", "zmetrics", "internal/lograte"},
	"zstore":              {"zmsg", "zmetrics"},
	"ztrace":              {"zmsg", "zmetrics"},
	"zactor":              {"zmsg", "zmetrics", "ztrace", "internal/lograte", "internal/stack"},
	"zroute":              {"zmsg", "zdiscovery", "zmetrics"},
	"zrouter":             {"zmsg", "zactor", "zstore", "zdiscovery", "zmetrics", "ztrace", "internal/lograte"},
	"zgate":               {"zmsg", "zroute", "zmetrics", "ztrace", "internal/lograte", "internal/stack"},
	"zuser":               {"zmsg", "zactor", "zrouter"},
	"zclient":             {"zmsg"},
	"zconsole":            {"zmsg", "zdiscovery", "ztrace", "internal/adminport", "internal/lograte"},
	"znode":               {"*"},
	"zcli":                {"zmsg", "ztrace", "zdiscovery", "zactor", "znode", "internal/adminport", "internal/doctor", "internal/embedded", "internal/filelock", "internal/logging", "internal/settings"},
	"ztest":               {"*"},
	"zbots":               {"zmsg", "zclient", "zcli"},
	"cmd":                 {"*"},
	"examples":            {"*"},
	"internal/adminport":  {"zmsg", "zdiscovery", "ztrace"},
	"internal/embedded":   {"internal/freeport"},
	"internal/filelock":   {},
	"internal/freeport":   {},
	"internal/logging":    {},
	"internal/lograte":    {},
	"internal/cputime":    {},
	"internal/rawswap":    {},
	"internal/stack":      {},
	"internal/archtest":   {},
	"internal/mongowire":  {},
	"internal/doctest":    {},
	"internal/doctor":     {"zmsg", "zdiscovery"},
	"internal/esgen":      {},
	"internal/protobuild": {"proto"},
	"zcli/gen":            {"zmsg", "zcli", "internal/esgen", "internal/protobuild"},
	"zcli/scaffold":       {"zcli", "zcli/gen"},
	"proto":               {},
	"internal/settings":   {},
}

// only says which packages of ours may import an outside path (and what is below it) in production code.
var only = map[string][]string{
	"github.com/nats-io/nats-server":      {"internal/embedded"},
	"go.etcd.io/etcd/server":              {"internal/embedded"},
	"github.com/nats-io/nats.go":          {"zbus/natsbus", "zstore/kvstore"},
	"go.etcd.io/etcd/client":              {"zdiscovery/etcddisc"},
	"go.mongodb.org/mongo-driver":         {"zstore/mongostore"},
	"github.com/gorilla/websocket":        {"zgate", "zclient"},
	"github.com/golang-jwt/jwt":           {"zgate/jwtauth"},
	"github.com/klauspost/compress":       {"zgate"},
	"github.com/rs/zerolog":               {"internal/logging", "cmd"},
	"github.com/robfig/cron":              {"zactor"},
	"github.com/prometheus/client_golang": {"zmetrics", "znode"},
	"testing":                             {"zbus/zbustest", "zdiscovery/zdiscoverytest", "zstore/zstoretest", "zactor/zactortest", "ztest"},
	"zgame/internal/embedded":             {"zcli", "ztest", "cmd", "internal/embedded"},
}

// drivers may be imported only where nodes are put together: znode and ztest.
var drivers = []string{"zbus/natsbus", "zbus/membus", "zdiscovery/etcddisc", "zdiscovery/memdisc", "zstore/mongostore", "zstore/kvstore", "zstore/memstore"}

type imported struct{ file, dir, path string }

func TestArrows(t *testing.T) {
	imports := productionImports(t, "../..")
	if len(imports) < 50 {
		t.Fatalf("only %d imports found: the walk does not see the tree", len(imports))
	}
	for _, fault := range check(imports) {
		t.Error(fault)
	}
}

// A check that cannot fail is none: each rule is shown to fire.
func TestCheckFinds(t *testing.T) {
	for _, c := range []struct{ dir, path, want string }{
		{"zmsg", "zgame/zgate", "zmsg may not import"},
		{"zgate", "zgame/zactor", "zgate may not import"},
		{"zroute", "zgame/zbus/natsbus", "zroute may not import"},
		{"zgate", "github.com/nats-io/nats.go/jetstream", "may import github.com/nats-io/nats.go"},
		{"znode", "github.com/nats-io/nats-server/v2/server", "may import github.com/nats-io/nats-server"},
		{"znode", "zgame/internal/embedded", "may import zgame/internal/embedded"},
		{"zmystery", "fmt", "zmystery stands in no row"},
		{"zrouter", "zgame/zstore/memstore", "driver"},
		{"zcli", "zgame/zdiscovery/etcddisc", "driver"},
	} {
		faults := check([]imported{{"x.go", c.dir, c.path}})
		if !slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, c.want) }) {
			t.Errorf("%s importing %s: got %q, want a fault with %q", c.dir, c.path, faults, c.want)
		}
	}
}

func check(imports []imported) []string {
	var faults []string
	for _, im := range imports {
		row, ok := rowOf(im.dir)
		if !ok {
			faults = append(faults, fmt.Sprintf("%s: %s stands in no row of arrows: add it", im.file, im.dir))
			continue
		}
		if ours, found := strings.CutPrefix(im.path, "zgame/"); found {
			target, _ := rowOf(ours)
			allowed := arrows[row]
			if target != row && !slices.Contains(allowed, "*") && !slices.Contains(allowed, target) {
				faults = append(faults, fmt.Sprintf("%s: %s may not import %s, only %v", im.file, row, ours, allowed))
			}
			if slices.Contains(drivers, ours) && !within(im.dir, ours) && !slices.Contains([]string{"znode", "ztest"}, row) {
				faults = append(faults, fmt.Sprintf("%s: %s imports the driver %s; take the contract", im.file, im.dir, ours))
			}
		}
		for outside, allowed := range only {
			if within(im.path, outside) && !slices.ContainsFunc(allowed, func(a string) bool { return within(im.dir, a) }) {
				faults = append(faults, fmt.Sprintf("%s: only %v may import %s", im.file, allowed, outside))
			}
		}
	}
	return faults
}

// rowOf finds the longest key of arrows that dir lies in.
func rowOf(dir string) (string, bool) {
	best := ""
	for row := range arrows {
		if within(dir, row) && len(row) > len(best) {
			best = row
		}
	}
	return best, best != ""
}

func within(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// productionImports parses the imports of every non-test file of this module below root.
func productionImports(t *testing.T, root string) []imported {
	t.Helper()
	var found []imported
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			// Nested modules (bench, test) and what is not Go have rules of their own.
			if name := d.Name(); rel != "." && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "testdata" || rel == "bench" || rel == "test" || rel == "deploy" || rel == "clients") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, im := range f.Imports {
			p, err := strconv.Unquote(im.Path.Value)
			if err != nil {
				return err
			}
			found = append(found, imported{rel, filepath.ToSlash(filepath.Dir(rel)), p})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
