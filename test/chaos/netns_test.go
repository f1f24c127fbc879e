//go:build linux

package chaos

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// ownWorld makes the namespaces that the test was started in its own: what is mounted is not seen outside, names of network
// namespaces and all files are in memory, and go with the namespaces.
func ownWorld() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	for _, dir := range []string{"/run", os.TempDir()} { // what the test writes goes with it
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	return run("ip", "link", "set", "lo", "up")
}

// run runs a program to its end; the error has what it printed.
func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// lan is one network: a bridge that the test and the servers are at, and hosts.
type lan struct {
	t      *testing.T
	number int
	hosts  int
}

var lans struct {
	sync.Mutex
	n int
}

func newLAN(t *testing.T) *lan {
	t.Helper()
	lans.Lock()
	lans.n++
	l := &lan{t: t, number: lans.n}
	lans.Unlock()
	l.must("ip", "link", "add", l.bridge(), "type", "bridge")
	l.must("ip", "addr", "add", l.address()+"/24", "dev", l.bridge())
	l.must("ip", "link", "set", l.bridge(), "up")
	return l
}

func (l *lan) bridge() string  { return fmt.Sprint("br", l.number) }
func (l *lan) address() string { return fmt.Sprintf("10.77.%d.1", l.number) }

func (l *lan) must(name string, args ...string) {
	l.t.Helper()
	if err := run(name, args...); err != nil {
		l.t.Fatal(err)
	}
}

// host is a machine of the network, as far as packets go.
type host struct {
	lan     *lan
	netns   string
	address string
}

func (l *lan) host() *host {
	l.t.Helper()
	l.hosts++
	h := &host{l, fmt.Sprintf("h%d-%d", l.number, l.hosts), fmt.Sprintf("10.77.%d.%d", l.number, 10+l.hosts)}
	cable := fmt.Sprintf("v%d-%d", l.number, l.hosts)
	l.must("ip", "netns", "add", h.netns)
	l.must("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", h.netns)
	l.must("ip", "link", "set", cable, "master", l.bridge(), "up")
	l.must("ip", "-n", h.netns, "addr", "add", h.address+"/24", "dev", "eth0")
	l.must("ip", "-n", h.netns, "link", "set", "lo", "up")
	l.must("ip", "-n", h.netns, "link", "set", "eth0", "up")
	return h
}

// way is a direction of packets, as the host sees it.
type way int

const (
	out way = 1 << iota
	in
	both = out | in
)

func (w way) String() string { return [...]string{"", "out", "in", "both ways"}[w] }

// drop has packets dropped in silence: those between the host and a port of the servers, 0 for all that there is.
func (h *host) drop(w way, port int) {
	h.lan.t.Helper()
	rule := func(chain, device, ports string) {
		args := []string{"netns", "exec", h.netns, "iptables", "-w", "-A", chain, "!", device, "lo"}
		if port != 0 {
			args = append(args, "-p", "tcp", ports, strconv.Itoa(port))
		}
		h.lan.must("ip", append(args, "-j", "DROP")...)
	}
	if w&out != 0 {
		rule("OUTPUT", "-o", "--dport")
	}
	if w&in != 0 {
		rule("INPUT", "-i", "--sport")
	}
}

// heal takes all of that back.
func (h *host) heal() {
	h.lan.t.Helper()
	h.lan.must("ip", "netns", "exec", h.netns, "iptables", "-w", "-F")
}

// command is a program that runs on the host, or beside the test for nil.
func (h *host) command(name string, args ...string) *exec.Cmd {
	if h == nil {
		return exec.Command(name, args...)
	}
	return exec.Command("ip", append([]string{"netns", "exec", h.netns, name}, args...)...)
}

// A host that is cut off does not hear, or is not heard, by one port or at all; and does again when it is healed.
func TestNetwork(t *testing.T) {
	if os.Getpid() != 1 {
		t.Fatalf("this process has the number %d: it is not alone in a namespace", os.Getpid())
	}
	l := newLAN(t)
	h := l.host()
	var ports [2]int
	for i := range ports {
		ln, err := net.Listen("tcp", l.address()+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		ports[i] = ln.Addr().(*net.TCPAddr).Port
	}
	reaches := func(want [2]bool) (r [2]bool) {
		for i, port := range ports {
			limit := "0.5"
			if want[i] {
				limit = "20"
			}
			r[i] = h.command("timeout", limit, "bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/%s/%d", l.address(), port)).Run() == nil
		}
		return r
	}
	for _, k := range []struct {
		way  way
		port int
		want [2]bool
	}{
		{0, 0, [2]bool{true, true}}, {both, 0, [2]bool{}}, {out, 0, [2]bool{}}, {in, 0, [2]bool{}}, {both, ports[0], [2]bool{false, true}},
	} {
		h.drop(k.way, k.port)
		if got := reaches(k.want); got != k.want {
			t.Errorf("with packets dropped %v to port %d the ports are reached: %v, want %v", k.way, k.port, got, k.want)
		}
		h.heal()
	}
	if got := reaches([2]bool{true, true}); got != [2]bool{true, true} {
		t.Errorf("healed, the ports are reached: %v", got)
	}
}
