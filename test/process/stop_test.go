package process

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Nothing is lost at a stop: 20,000 messages wait when SIGTERM comes; all are handled, or the report says how many were not.
func TestStopLosesNothing(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "queue")
	if out, err := exec.Command("go", "build", "-o", bin, "./queue").CombinedOutput(); err != nil {
		t.Fatalf("the program does not build: %v\n%s", err, out)
	}
	c := newCluster(t)
	for _, k := range []struct {
		name         string
		microseconds string // for each message
		drain        string
		all          bool
	}{
		{"enough", "10", "50s", true},
		{"little", "2000", "1s", false}, // 40 s of work
	} {
		t.Run(k.name, func(t *testing.T) {
			env := append([]string{
				"ZGAME_NODE_ID=" + k.name, "ZGAME_GATE_AUTH_KIND=dev", "ZGAME_GATE_ADDRESS=127.0.0.1:0", "ZGAME_ADMIN_ADDRESS=127.0.0.1:0",
				"ZGAME_DRAIN_TIMEOUT=" + k.drain, "QUEUE_MICROSECONDS=" + k.microseconds,
			}, c.env...)
			p := startBinary(t, k.name, bin, env, "run")
			p.find(`node is ready`)
			p.signal(syscall.SIGTERM)
			code := p.exit()
			handled, _ := strconv.Atoi(p.find(`handled (\d+)`))
			cut := 0
			if !k.all {
				cut, _ = strconv.Atoi(p.find(`cut (\d+) messages`))
			}
			if handled+cut != 20_000 || k.all != (cut == 0) || k.all != (code == 0) {
				t.Errorf("%d handled and %d cut of 20000, exit code %d", handled, cut, code)
			}
			t.Logf("%d handled, %d cut", handled, cut)
		})
	}
}
