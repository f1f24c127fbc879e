package doctor

import (
	"runtime"
	"testing"
)

func TestThisMachine(t *testing.T) {
	l := ThisMachine()
	if runtime.GOOS != "linux" {
		if l != (Limits{}) {
			t.Errorf("%+v", l)
		}
		return
	}
	if l.OpenFiles < 64 || l.Memory < 64<<20 || l.Memory > 1<<50 {
		t.Errorf("%+v", l)
	}
}
