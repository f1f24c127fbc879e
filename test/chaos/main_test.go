//go:build linux

package chaos

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

var (
	seedFlag = flag.Uint64("chaos.seed", 0, "seed of what is drawn; 0: another each time")
	rounds   = flag.Int("chaos.rounds", 1, "how often each fault is done")
	withRace = flag.Bool("chaos.race", false, "build the nodes with the race detector")
)

// Environment of the test within the namespaces.
const (
	binaryEnv = "CHAOS_TEST_BINARY" // the program of nodes and servers
	seedEnv   = "CHAOS_TEST_SEED"
)

var (
	binary string
	seed   uint64
)

func TestMain(m *testing.M) {
	flag.Parse()
	if binary = os.Getenv(binaryEnv); binary == "" {
		os.Exit(outside())
	}
	if _, err := fmt.Sscan(os.Getenv(seedEnv), &seed); err != nil {
		panic(err)
	}
	if err := ownWorld(); err != nil {
		fmt.Fprintln(os.Stderr, "chaos: the namespaces of the test:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if code != 0 {
			fmt.Fprintf(os.Stderr, "chaos: failed with -chaos.seed=%d -chaos.rounds=%d\n", seed, *rounds)
		}
		os.Exit(code)
	}))
}

// inWorlds runs f as often as each fault is done, each time in a world of its own.
func inWorlds(t *testing.T, opt options, f func(w *world)) {
	t.Helper()
	for i := range *rounds {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) { f(newWorld(t, opt)) })
	}
}

// outside builds the program and runs this test again within namespaces of network, mounts and processes. The kernel ends all that
// lives in them with the test; so do we with it, and what is on disk goes here. It returns the exit code.
func outside() int {
	for _, tool := range []string{"ip", "iptables"} {
		if _, err := exec.LookPath(tool); err != nil {
			fmt.Fprintf(os.Stderr, "chaos: %v: install iproute2 and iptables\n", err)
			return 1
		}
	}
	dir, err := os.MkdirTemp("", "zgame-chaos")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	bin, tmp := filepath.Join(dir, "node"), filepath.Join(dir, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		panic(err)
	}
	args := []string{"build", "-o", bin}
	if *withRace {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "./node")...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "chaos: the program does not build:", err)
		return 1
	}
	seed = *seedFlag
	for seed == 0 {
		seed = uint64(rand.Uint32())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), binaryEnv+"="+bin, seedEnv+"="+fmt.Sprint(seed), "TMPDIR="+tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL,
	}
	if os.Geteuid() != 0 { // root in a namespace of users
		a := cmd.SysProcAttr
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	runtime.LockOSThread() // Pdeathsig is about this thread
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(1, exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos: namespaces are needed, as root or where users may make them:", err)
		return 1
	}
	return 0
}
