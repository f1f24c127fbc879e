package doctor

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// ThisMachine returns the limits.
func ThisMachine() Limits {
	var l Limits
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil {
		l.OpenFiles = files.Cur
	}
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) == nil {
		l.Memory = uint64(info.Totalram) * uint64(info.Unit) //nolint:unconvert // its type depends on the processor
	}
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil && (l.Memory == 0 || n < l.Memory) {
			l.Memory = n
		}
	}
	return l
}
