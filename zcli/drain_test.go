package zcli

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"zgame/znode"
)

// A node of a cluster is drained by its name, found in discovery, or at its admin port; the others go on, and dev ends with its last node.
func TestDrain(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	d := startDev(ctx, t)
	env := []string{"ZGAME_ETCD_ENDPOINTS=" + d.etcd}
	for _, c := range []struct {
		env  []string
		args []string
		code int
		want []string
	}{
		{env, []string{"drain"}, 2, []string{"expected one NODE"}},
		{env, []string{"drain", "n1", "n2"}, 2, []string{"expected one NODE"}},
		{env, []string{"drain", "n1", "--timeout", "0"}, 2, []string{"--timeout 0s: expected a span of time above 0"}},
		{append(env, "ZGAME_NODE_CLUSTER=other"), []string{"drain", "n1"}, 1, []string{`the cluster "other" has no nodes`, "ZGAME_NODE_CLUSTER"}},
		{env, []string{"drain", "-h"}, 0, []string{"Exit code 0", "-admin", "-timeout"}},
		{env, []string{"drain", "n9"}, 1, []string{`no node "n9"; it has [n1 n2]`}},
		{env, []string{"drain", "n1", "--admin", d.admins[1]}, 1, []string{"421", `this is node "n2", not "n1": nothing was done`}},
		{[]string{"ZGAME_ETCD_ENDPOINTS=http://127.0.0.1:1", "ZGAME_START_TIMEOUT=1s"}, []string{"drain", "n1"}, 1, []string{"etcd at http://127.0.0.1:1 is not there", "--config"}},
		{env, []string{"drain", "n2"}, 0, []string{"n2@", "drains", "0 left", "has stopped"}},
		{env, []string{"drain", "n2"}, 1, []string{`no node "n2"; it has [n1]`}},
		{nil, []string{"drain", "n1", "--admin", d.admins[0]}, 0, []string{"n1@", "has stopped"}},
	} {
		got, out, errs := try(t, c.env, c.args...)
		if got != c.code {
			t.Errorf("%v: exit code %d, want %d\n%s%s", c.args, got, c.code, out, errs)
		}
		if strings.Contains(out, string(znode.DrainServing)) {
			t.Errorf("%v: a node that was asked to drain is said to serve:\n%s", c.args, out)
		}
		for _, want := range c.want {
			if !strings.Contains(out+errs, want) {
				t.Errorf("%v lacks %q:\n%s%s", c.args, want, out, errs)
			}
		}
	}
	if c := <-d.code; c != 0 || !strings.Contains(d.out.text(), "n2 has drained and stopped") {
		t.Errorf("dev ended with %d:\n%s", c, d.out.text())
	}
}

// All nodes of dev are drained at once: each drain ends well, also those whose end is the end of the servers that they ask.
func TestDrainAllOfDev(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	d := startDev(ctx, t)
	var drains sync.WaitGroup
	for _, node := range []string{"n1", "n2"} {
		drains.Go(func() {
			if code, out, errs := try(t, []string{"ZGAME_ETCD_ENDPOINTS=" + d.etcd}, "drain", node); code != 0 || !strings.Contains(out, "has stopped") {
				t.Errorf("%s: exit code %d\n%s%s", node, code, out, errs)
			}
		})
	}
	drains.Wait()
	if c := <-d.code; c != 0 {
		t.Errorf("dev ended with %d:\n%s", c, d.out.text())
	}
}

// devNodes is a dev of two nodes that a test runs.
type devNodes struct {
	out      *watch
	code     chan int // gets its exit code
	settings string   // file
	etcd     string   // URL
	admins   []string // host:port
}

// startDev runs dev until ctx ends, and waits until it is ready.
func startDev(ctx context.Context, t *testing.T) *devNodes {
	t.Helper()
	data := t.TempDir()
	d := &devNodes{out: newWatch("stop with Ctrl-C"), code: make(chan int, 1), settings: filepath.Join(data, "settings.yaml")}
	go func() { // ends with ctx
		d.code <- Run(ctx, Env{Name: "game", Stdout: d.out, Stderr: d.out}, znode.App{Name: "test"},
			[]string{"dev", "--nodes", "2", "--data", data, "--gate", "127.0.0.1:0", "--admin", "127.0.0.1:0"})
	}()
	select {
	case <-d.out.seen:
	case c := <-d.code:
		d.code <- c
		t.Fatalf("dev ended with %d:\n%s", c, d.out.text())
	}
	text, err := os.ReadFile(d.settings)
	if err != nil {
		t.Fatal(err)
	}
	endpoints := regexp.MustCompile(`endpoints: \[?"?(http://[0-9a-z.:]+)`).FindStringSubmatch(string(text))
	for _, a := range regexp.MustCompile(`admin  http://(localhost:[0-9]+)/metrics`).FindAllStringSubmatch(d.out.text(), -1) {
		d.admins = append(d.admins, a[1])
	}
	if endpoints == nil || len(d.admins) != 2 {
		t.Fatalf("the banner:\n%s", d.out.text())
	}
	d.etcd = endpoints[1]
	return d
}
