// Package process runs the built binary as real processes: the embedded servers in one, nodes in others, clients here;
// and kills them for real.
package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"zgame/examples/chat/chatpb"
	"zgame/internal/embedded"
	"zgame/zclient"
	"zgame/zmsg"
	"zgame/zmsg/wirepb"
	"zgame/ztest"
)

const patience = time.Minute

var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "zgame-process")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "gameserver")
	build := exec.Command("go", "build", "-o", binary, "./cmd/gameserver")
	build.Dir = filepath.Join("..", "..")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		panic(fmt.Sprint("the binary does not build: ", err))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// program is a running process of the binary.
type program struct {
	t    *testing.T
	cmd  *exec.Cmd
	name string

	mu   sync.Mutex
	text strings.Builder // what it printed; guarded by mu

	done chan struct{} // closed when it has ended
	code int           // its exit code, after done
}

// start runs the binary with args and environment. It is killed with the test.
func start(t *testing.T, name string, env []string, args ...string) *program {
	t.Helper()
	return startBinary(t, name, binary, env, args...)
}

func startBinary(t *testing.T, name, binary string, env []string, args ...string) *program {
	t.Helper()
	p := &program{t: t, name: name, done: make(chan struct{})}
	p.cmd = exec.Command(binary, args...)
	p.cmd.Dir = t.TempDir()
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.cmd.Dir}, env...)
	out, in := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = in, in
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() { // ends when the process has and in is closed
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			p.mu.Lock()
			p.text.WriteString(lines.Text() + "\n")
			p.mu.Unlock()
		}
	})
	go func() { // ends with the process, which the test's cleanup kills
		err := p.cmd.Wait()
		_ = in.Close()
		reading.Wait()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			p.code = exit.ExitCode()
		}
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.done
		if t.Failed() {
			t.Logf("%s printed:\n%s", name, p.printed())
		}
	})
	return p
}

func (p *program) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// find waits until the program prints what matches, and returns the first group.
func (p *program) find(pattern string) string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	var found string
	ztest.Eventually(p.t, p.name+" prints "+pattern, func() bool {
		m := re.FindStringSubmatch(p.printed())
		if m == nil {
			select {
			case <-p.done:
				p.t.Fatalf("%s has ended with code %d; it printed:\n%s", p.name, p.code, p.printed())
			default:
			}
			return false
		}
		found = m[len(m)-1]
		return true
	})
	return found
}

func (p *program) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// exit waits for the end and returns the code.
func (p *program) exit() int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.code
	case <-time.After(patience):
		p.t.Fatalf("%s did not end", p.name)
		return 0
	}
}

// freePort returns a port that is free now.
func freePort(t *testing.T) string {
	t.Helper()
	port, err := embedded.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}

// cluster is the embedded servers in one process and nodes in others.
type cluster struct {
	t     *testing.T
	env   []string
	nodes map[string]*node
}

type node struct {
	*program
	gate, admin string
}

func newCluster(t *testing.T, ids ...string) *cluster {
	t.Helper()
	services := start(t, "services", nil, "services", "--nats-port", "0", "--etcd-port", "0")
	nats, etcd := services.find(`url: (\S+)`), services.find(`endpoints: \[(\S+)\]`)
	c := &cluster{t: t, nodes: map[string]*node{}, env: []string{
		"ZGAME_NATS_URL=" + nats, "ZGAME_ETCD_ENDPOINTS=" + etcd, "ZGAME_STORE_DRIVER=kv", "ZGAME_ETCD_LEASE=3s",
		"ZGAME_LOG_FORMAT=json", "ZGAME_DRAIN_DELAY=50ms",
	}}
	for _, id := range ids {
		c.start(id)
	}
	return c
}

func (c *cluster) start(id string) *node {
	c.t.Helper()
	gate, admin := freePort(c.t), freePort(c.t)
	env := append([]string{
		"ZGAME_NODE_ID=" + id, "ZGAME_GATE_AUTH_KIND=dev", "ZGAME_GATE_ADDRESS=127.0.0.1:" + gate, "ZGAME_ADMIN_ADDRESS=127.0.0.1:" + admin,
	}, c.env...)
	n := &node{program: start(c.t, id, env, "run"), gate: "ws://127.0.0.1:" + gate + "/ws", admin: "http://127.0.0.1:" + admin}
	n.find(`node is ready`)
	c.nodes[id] = n
	return n
}

func (c *cluster) client(id, user string) *zclient.Client {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cl, err := zclient.Dial(ctx, zclient.Config{URL: c.nodes[id].gate, Token: user, RequestTimeout: patience, MinBackoff: 20 * time.Millisecond})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = cl.Close() // the reason it was closed for before, if any
		<-cl.Done()
	})
	return cl
}

func request(t *testing.T, c *zclient.Client, req, resp proto.Message) {
	t.Helper()
	if err := c.Request(t.Context(), req, resp); err != nil {
		t.Fatalf("%T: %v", req, err)
	}
}

// roomOn joins a room that lives on the node.
func roomOn(t *testing.T, c *zclient.Client, id string) string {
	t.Helper()
	for i := range 200 {
		name, j := fmt.Sprintf("room-%d-%x", i, rand.Uint64()), &chatpb.Joined{}
		if request(t, c, &chatpb.Join{Room: name}, j); j.GetNode() == id {
			return name
		}
		request(t, c, &chatpb.Leave{Room: name}, nil)
	}
	t.Fatalf("no room lives on %s", id)
	return ""
}

func TestTwoProcessesManyLines(t *testing.T) {
	const lines, people = 20, 25 // of each at each node: what somebody may say at once
	c := newCluster(t, "a", "b")
	ann := c.client("a", "ann")
	ztest.Eventually(t, "a knows b", func() bool {
		return strings.Contains(get(t, c.nodes["a"].admin+"/readyz"), "ready") && knows(t, ann, "b")
	})
	room := roomOn(t, ann, "b")
	clients := map[string]*zclient.Client{}
	oracles := map[string]*ztest.Oracle{}
	var names []string
	for i := range 2 * people {
		name := "p" + strconv.Itoa(i)
		cl := c.client([]string{"a", "b"}[i%2], name)
		clients[name] = cl
		names = append(names, name)
		o := &ztest.Oracle{}
		oracles[name] = o
		zclient.On(cl, func(l *chatpb.Line) {
			if l.GetKind() != chatpb.LineKind_LINE_KIND_SAID {
				return
			}
			_, number, _ := strings.Cut(l.GetText(), " ")
			n, _ := strconv.ParseUint(number, 10, 64)
			o.Got(l.GetFrom(), n)
		})
		request(t, cl, &chatpb.Join{Room: room}, nil)
	}
	var wg sync.WaitGroup
	for name, cl := range clients {
		wg.Go(func() {
			for n := 1; n <= lines; n++ {
				if err := cl.Request(t.Context(), &chatpb.Say{Room: room, Text: fmt.Sprint(name, " ", n)}, nil); err != nil {
					t.Errorf("%s says %d: %v", name, n, err)
					return
				}
			}
		})
	}
	wg.Wait()
	for name, o := range oracles {
		for _, of := range names {
			ztest.Eventually(t, "all lines of "+of+" at "+name, func() bool { return o.Count(of) >= lines })
		}
		if err := o.Check(lines, names...); err != nil {
			t.Errorf("at %s: %v", name, err)
		}
	}
}

// knows reports whether some room is served by the node, as seen by the client's gate.
func knows(t *testing.T, c *zclient.Client, id string) bool {
	t.Helper()
	for i := range 64 {
		name, j := fmt.Sprintf("probe-%d-%x", i, rand.Uint64()), &chatpb.Joined{} // one that was there before is where it was
		request(t, c, &chatpb.Join{Room: name}, j)
		request(t, c, &chatpb.Leave{Room: name}, nil)
		if j.GetNode() == id {
			return true
		}
	}
	return false
}

// Kill -9 of one node: the other drops its routes within the lease time, its clients go on, and those of the dead one are out of
// the rooms.
func TestKillOneNode(t *testing.T) {
	c := newCluster(t, "a", "b")
	ann, bob := c.client("a", "ann"), c.client("b", "bob")
	ztest.Eventually(t, "a knows b", func() bool { return knows(t, ann, "b") })
	room := roomOn(t, ann, "b") // its actor dies with b
	near := roomOn(t, ann, "a")
	request(t, bob, &chatpb.Join{Room: room}, nil)
	request(t, bob, &chatpb.Join{Room: near}, nil)
	request(t, ann, &chatpb.Say{Room: room, Text: "before"}, nil)

	killed := time.Now()
	c.nodes["b"].signal(syscall.SIGKILL)
	c.nodes["b"].exit()
	// The client of the other node goes on at once where the dead node is not needed, and within the lease time everywhere.
	request(t, ann, &chatpb.Say{Room: near, Text: "still here"}, nil)
	said := &chatpb.Said{}
	ztest.Eventually(t, "the dead node's room is served again", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return ann.Request(ctx, &chatpb.Say{Room: room, Text: "after"}, said) == nil
	})
	t.Logf("served again %v after the kill, with a lease of 3s", time.Since(killed).Round(time.Millisecond)) // a busy machine takes longer
	if said.GetSeq() < 2 {
		t.Errorf("the line after the kill has seq %d: the history is lost", said.GetSeq())
	}
	joined := &chatpb.Joined{}
	request(t, ann, &chatpb.Join{Room: room}, joined)
	var texts []string
	for _, l := range joined.GetHistory() {
		if l.GetKind() == chatpb.LineKind_LINE_KIND_SAID {
			texts = append(texts, l.GetText())
		}
	}
	if len(texts) < 2 || texts[0] != "before" || texts[len(texts)-1] != "after" || joined.GetNode() != "a" {
		t.Errorf("%q on %s, want what was said before and after, on a", texts, joined.GetNode())
	}
	ztest.Eventually(t, "bob is out of both rooms", func() bool {
		for _, r := range []string{room, near} {
			m := &chatpb.Members{}
			// A question that is under way to b just when the list says that b is gone ends as node_lost: ask again.
			if err := ann.Request(t.Context(), &chatpb.Who{Room: r}, m); err != nil && !zmsg.CodeOf(err).Retry() {
				t.Fatal(err)
			}
			if len(m.GetMembers()) != 1 {
				return false
			}
		}
		return true
	})
	// The same id starts again and takes part.
	c.start("b")
	ztest.Eventually(t, "a knows the new b", func() bool { return knows(t, ann, "b") })
}

// The servers' process is killed and started again, sooner than the lease ends: the nodes are who they were, and their
// clients go on where they were.
func TestNodesOutliveARestartOfTheirServers(t *testing.T) {
	dir, nats, etcd := t.TempDir(), freePort(t), freePort(t)
	services := func() *program {
		p := start(t, "services", nil, "services", "--data", dir, "--nats-port", nats, "--etcd-port", etcd)
		p.find(`services are ready`)
		return p
	}
	first := services()
	c := &cluster{t: t, nodes: map[string]*node{}, env: []string{
		"ZGAME_NATS_URL=nats://127.0.0.1:" + nats, "ZGAME_ETCD_ENDPOINTS=http://127.0.0.1:" + etcd, "ZGAME_STORE_DRIVER=kv",
		"ZGAME_ETCD_LEASE=15s", "ZGAME_DRAIN_DELAY=50ms",
	}}
	c.start("a")
	ann := c.client("a", "ann")
	request(t, ann, &chatpb.Join{Room: "go"}, nil)
	before := ann.Session().Ref
	first.signal(syscall.SIGKILL)
	first.exit()
	services()
	ztest.Eventually(t, "the node is ready again", func() bool { return get(t, c.nodes["a"].admin+"/readyz") == "ready\n" })
	ztest.Eventually(t, "ann says something", func() bool {
		return ann.Request(t.Context(), &chatpb.Say{Room: "go", Text: "still here"}, nil) == nil
	})
	// The node looks whether its place on the list is still its own when it renews the lease.
	renewals := func() string {
		return regexp.MustCompile(`renewals_total\{outcome="ok"\} \d+`).FindString(get(t, c.nodes["a"].admin+"/metrics"))
	}
	already := renewals()
	ztest.Eventually(t, "the lease is renewed", func() bool { return renewals() != already })
	select {
	case <-c.nodes["a"].done:
		t.Error("the node has ended")
	default:
	}
	if now := ann.Session().Ref; now != before {
		t.Errorf("ann's session was %v and is %v", before, now)
	}
}

func TestSignals(t *testing.T) {
	c := newCluster(t, "a")
	ann := c.client("a", "ann")
	reasons := make(chan zclient.State, 100)
	ann.OnState(func(s zclient.State) { reasons <- s })
	request(t, ann, &chatpb.Join{Room: "go"}, nil)
	c.nodes["a"].signal(syscall.SIGTERM)
	if code := c.nodes["a"].exit(); code != 0 {
		t.Errorf("exit code %d after SIGTERM, want 0", code)
	}
	var seen []string
	for deadline := time.After(patience); ; {
		select {
		case s := <-reasons:
			seen = append(seen, fmt.Sprint(s.Phase, " ", s.Reason))
			if s.Reason != nil && s.Reason.Code == 3001 {
				goto told
			}
			continue
		case <-deadline:
		}
		t.Fatalf("the client was not told of the shutdown (3001): %q", seen)
	}
told:
	if out := c.nodes["a"].printed(); strings.Contains(out, `"level":"error"`) {
		t.Errorf("a clean stop logged errors:\n%s", out)
	}
}

// A second signal exits at once, whatever the drain waits for: here a client that never answers the close.
func TestSecondSignal(t *testing.T) {
	c := newCluster(t, "a")
	ws, _, err := websocket.Dial(t.Context(), c.nodes["a"].gate, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	hello, err := proto.Marshal(&wirepb.Packet{Frames: []*wirepb.Frame{{
		Kind:    wirepb.FrameKind_FRAME_KIND_CONTROL,
		Control: &wirepb.Control{Control: &wirepb.Control_Hello{Hello: &wirepb.Hello{Token: "mute"}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.Write(t.Context(), websocket.MessageBinary, hello); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ws.Read(t.Context()); err != nil { // Welcome; nothing is read after it
		t.Fatal(err)
	}
	c.nodes["a"].signal(syscall.SIGTERM)
	c.nodes["a"].find(`node stops`)
	select { // a second signal that comes at once is taken for the first
	case <-c.nodes["a"].done:
		t.Fatal("the node has stopped before the second signal: the client does not hold it up")
	case <-time.After(500 * time.Millisecond):
	}
	c.nodes["a"].signal(syscall.SIGTERM)
	if code := c.nodes["a"].exit(); code != 130 {
		t.Errorf("exit code %d after a second signal, want 130", code)
	}
}

func TestDevProcess(t *testing.T) {
	p := start(t, "dev", nil, "dev", "--gate", "127.0.0.1:0", "--page", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--nodes", "3")
	page := p.find(`page\s+(http://\S+)`)
	if html := get(t, page+"/"); !strings.Contains(html, "<html") {
		t.Errorf("the page is %q", html)
	}
	if config := get(t, page+"/config.json"); !strings.Contains(config, `"gate":"ws://localhost:`) {
		t.Errorf("config.json is %q", config)
	}
	admin := p.find(`admin\s+(http://[^/]+)`)
	if m := get(t, admin+"/metrics"); !strings.Contains(m, "zgame_gate_sessions") {
		t.Error("no gate metrics")
	}
	if r := get(t, admin+"/readyz"); r != "ready\n" {
		t.Errorf("readyz says %q", r)
	}
	// A second process in the same directory is refused with the holder's pid.
	second := exec.Command(binary, "dev", "--gate", "127.0.0.1:0", "--page", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	second.Dir = p.cmd.Dir
	out, err := second.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "pid "+strconv.Itoa(p.cmd.Process.Pid)) {
		t.Errorf("second process in one directory: %v\n%s", err, out)
	}
	p.signal(os.Interrupt)
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d after Ctrl-C, want 0", code)
	}
}

// A server that is not there fails the start, by name and address, with the gate closed and a code that is not 0.
func TestMissingServers(t *testing.T) {
	gate, nats, etcd, mongo := freePort(t), freePort(t), freePort(t), freePort(t)
	begin := time.Now()
	p := start(t, "run", []string{
		"ZGAME_GATE_AUTH_KIND=dev", "ZGAME_GATE_ADDRESS=127.0.0.1:" + gate, "ZGAME_NATS_URL=nats://127.0.0.1:" + nats, "ZGAME_START_TIMEOUT=2s",
		"ZGAME_ETCD_ENDPOINTS=http://127.0.0.1:" + etcd, "ZGAME_STORE_MONGO_URI=mongodb://user:hush@127.0.0.1:" + mongo,
	}, "run")
	if code := p.exit(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	out := p.printed()
	for _, want := range []string{"127.0.0.1:" + nats, "127.0.0.1:" + etcd, "127.0.0.1:" + mongo, "dev"} {
		if !strings.Contains(out, want) {
			t.Errorf("the error does not say %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "hush") {
		t.Error("the error tells a password")
	}
	if conn, err := net.Dial("tcp", "127.0.0.1:"+gate); err == nil {
		conn.Close()
		t.Error("the gate is open")
	}
	if took := time.Since(begin); took > 15*time.Second {
		t.Errorf("ended after %v with a start.timeout of 2s; 15s is the most that the default of 10s may take", took.Round(time.Millisecond))
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
