package zactor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zactor/zactortest"
	"zgame/zmsg"
)

// What a diarist is told to do, in Note.N.
const (
	doNothing int64 = iota
	doCall
	doThen
	doAsk
	doAsync
	doAsyncFail
	doAfter
	doEvery
	doStopEvery
	doLoop
	doTellNobody
	doPush
	doChild
	doStopChild
	doAsyncProto
	doTopic
	commands
	doPanic = 99
)

var errEmpty = errors.New("the purse is empty")

// diarist writes down everything that it gets to know, so that its panic tells whether a replay went the same way.
type diarist struct {
	Pages []string

	mended bool
	every  zactor.Timer
	child  zactor.Ref
}

type purse struct {
	Gold  int
	Names []string
}

func (d *diarist) write(c *zactor.Context, format string, args ...any) {
	d.Pages = append(d.Pages, fmt.Sprintf("%d %d ", c.Now().UnixNano(), c.Rand().IntN(1000))+fmt.Sprintf(format, args...))
}

func (d *diarist) Handlers() []zactor.Handler {
	return []zactor.Handler{
		zactor.HandleTell(d.do),
		zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
			deadline, ok := c.Deadline()
			d.write(c, "asked %d by %v (%v) until %v %v", p.GetN(), c.Sender(), c.User(), ok, deadline.Sub(c.Now()) > 0)
			return &testpb.Pong{N: int64(len(d.Pages))}, nil
		}),
	}
}

func (d *diarist) OnStart(c *zactor.Context) error {
	pong, err := zactor.Call[testpb.Pong](c, bank(c), &testpb.Ping{N: -1})
	d.write(c, "start %d %v", pong.GetN(), err)
	c.EveryKey("clock", 10*time.Millisecond, func(c *zactor.Context) { d.write(c, "tick") })
	return nil
}

func (d *diarist) Snapshot() ([]byte, error) { return json.Marshal(d.Pages) }

func (d *diarist) Restore(b []byte) error { d.Pages = nil; return json.Unmarshal(b, &d.Pages) }

func bank(c *zactor.Context) zactor.Ref {
	ref, _ := c.Group().Lookup("bank")
	return ref
}

func (d *diarist) do(c *zactor.Context, m *testpb.Note) error {
	d.write(c, "do %d", m.GetN())
	ping := &testpb.Ping{N: int64(len(d.Pages))}
	switch m.GetN() {
	case doCall:
		pong, err := zactor.Call[testpb.Pong](c, bank(c), ping)
		d.write(c, "called %v %v", pong.GetText(), err)
	case doThen:
		zactor.Then(c, bank(c), ping, func(c *zactor.Context, pong *testpb.Pong, err error) {
			d.write(c, "then %v %v", pong.GetText(), err)
		})
	case doAsk:
		pong, err := zactor.Ask[testpb.Pong](c.Context(), bank(c), ping)
		d.write(c, "asked %v %v busy %v", pong.GetText(), err, errors.Is(err, zmsg.ErrBusy))
	case doAsync:
		gold := len(d.Pages)
		err := zactor.Async(c, func(context.Context) (purse, error) { return purse{gold, []string{"a", "b"}}, nil },
			func(c *zactor.Context, p purse, err error) { d.write(c, "purse %v %v", p, err) })
		d.write(c, "async %v", err)
	case doAsyncFail:
		_ = zactor.Async(c, func(context.Context) (*purse, error) { return nil, fmt.Errorf("looking: %w", errEmpty) },
			func(c *zactor.Context, p *purse, err error) {
				d.write(c, "purse %v %v %v", p, err, errors.Is(err, errEmpty))
			})
	case doAsyncProto:
		_ = zactor.Async(c, func(context.Context) (*testpb.Note, error) { return &testpb.Note{N: 5}, nil },
			func(c *zactor.Context, n *testpb.Note, err error) { d.write(c, "note %d %v", n.GetN(), err) })
	case doAfter:
		c.After(time.Millisecond, func(c *zactor.Context) { d.write(c, "after") })
	case doEvery:
		d.every.Stop()
		var t zactor.Timer
		t = c.Every(time.Millisecond, func(c *zactor.Context) { d.write(c, "every %d", t.Skipped()) })
		d.every = t
	case doStopEvery:
		d.write(c, "stopped %v", d.every.Stop())
	case doLoop:
		d.every.Stop()
		d.every = c.Loop(500, func(c *zactor.Context, t zactor.Tick) { d.write(c, "step %d %d", t.N, t.Skipped) })
	case doTellNobody:
		d.write(c, "told nobody: %v", c.Tell(zactor.Ref{}, m))
	case doPush:
		d.write(c, "push %v join %v", c.Push(zmsg.SessionRef{ID: 7}, m), c.Join(zmsg.SessionRef{ID: 7}, "hall"))
	case doTopic:
		d.write(c, "subscribe %v %v", c.Subscribe("pages"), c.Subscribe(""))
		d.write(c, "publish %v %v", c.PublishTopic("pages", &testpb.Note{}), c.PublishTopicLocal("", &testpb.Note{}))
		c.Unsubscribe("pages")
		_ = c.Group().PublishTopic("past the context", &testpb.Note{})
	case doChild:
		if !d.child.IsZero() {
			return nil
		}
		var err error
		d.child, err = c.Spawn("child", factory(zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { return nil })))
		d.write(c, "child %v %v of %d", d.child, err, len(c.Children()))
		c.Watch(d.child, func(c *zactor.Context, down zactor.Down) {
			d.write(c, "child is down: %v", down.Reason)
			d.child = zactor.Ref{}
		})
	case doStopChild:
		_ = c.Group().Stop(d.child)
	case doPanic:
		if !d.mended {
			panic(strings.Join(d.Pages, "\n"))
		}
	}
	return nil
}

// banker answers what it is asked, or does not.
func banker() zactor.Actor {
	return &actor{handlers: []zactor.Handler{zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
		if p.GetN()%3 == 0 {
			return nil, zactor.NotRun(zmsg.ErrBusy)
		}
		return &testpb.Pong{N: p.GetN(), Text: fmt.Sprint("paid ", c.Rand().IntN(100))}, nil
	})}}
}

// records returns the records in the directory, the oldest first.
func records(tb testing.TB, dir string) []*zactor.Record {
	tb.Helper()
	var out []*zactor.Record
	for _, path := range recordPaths(tb, dir) {
		rec, err := zactor.OpenRecord(path)
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, rec)
	}
	return out
}

func recordPaths(tb testing.TB, dir string) []string {
	tb.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.record.jsonl"))
	if err != nil {
		tb.Fatal(err)
	}
	slices.Sort(paths)
	return paths
}

func replay(tb testing.TB, rec *zactor.Record, f func() zactor.Actor) *zactor.Report {
	tb.Helper()
	report, err := zactor.Replay(rec, f, zactor.ReplayOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	return report
}

// Whatever an actor does, under real goroutines and the real clock: the record of its panic replays to the same panic, whose text
// is all that the actor ever got to know.
func TestReplayIsTheSame(t *testing.T) {
	t.Parallel()
	parent, runs := t.TempDir(), 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		dir := filepath.Join(parent, fmt.Sprint(runs))
		g := newGroup(t, func(c *zactor.Config) {
			c.RecordDir = dir
			c.Recorder = &zactor.RecorderOptions{Messages: 1000}
		})
		spawn(t, g, "bank", banker)
		ref := spawn(t, g, "diarist", func() zactor.Actor { return &diarist{} })
		for range rapid.IntRange(0, 40).Draw(rt, "messages") {
			switch n := rapid.Int64Range(-1, commands-1).Draw(rt, "do"); n {
			case -1:
				if _, err := zactor.Ask[testpb.Pong](testContext(t), ref, &testpb.Ping{N: 3}); err != nil {
					rt.Fatal(err)
				}
			default:
				if err := ref.Tell(&testpb.Note{N: n}); err != nil {
					rt.Fatal(err)
				}
			}
			if rapid.IntRange(0, 9).Draw(rt, "wait") == 0 {
				time.Sleep(2 * time.Millisecond) // lets timers come; nothing depends on whether they do
			}
		}
		if err := ref.Tell(&testpb.Note{N: doPanic}); err != nil {
			rt.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		defer cancel()
		if err := g.Shutdown(ctx); err != nil {
			rt.Fatal(err)
		}
		recs := records(t, dir)
		if len(recs) != 1 || recs[0].Header.Base != zactor.BaseStart {
			rt.Fatalf("%d records", len(recs))
		}
		report := replay(t, recs[0], func() zactor.Actor { return &diarist{} })
		if !report.Same || report.Diverged() || report.Stopped != "" {
			rt.Fatalf("the replay differs:\n%v\nrecord: %s", report, recs[0].Header.Panic)
		}
		mended := replay(t, recs[0], func() zactor.Actor { return &diarist{mended: true} })
		if mended.Panic != nil || mended.Diverged() || !strings.HasPrefix(mended.Verdict(), "no panic") {
			rt.Fatalf("the mended actor: %v", mended)
		}
	})
}

// With a snapshot the record begins in the middle, and still ends the same way.
func TestReplayFromSnapshot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g, s := zactortest.NewSteps(t, zactor.Config{RecordDir: dir})
	if _, err := g.Spawn("bank", banker); err != nil {
		t.Fatal(err)
	}
	ref, err := g.Spawn("diarist", func() zactor.Actor { return &diarist{} }, zactor.WithRecorder(zactor.RecorderOptions{Messages: 8}))
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(60) {
		s.Send(ref, &testpb.Note{N: []int64{doCall, doThen, doAsync, doNothing}[i%4]})
		s.Advance(3 * time.Millisecond)
	}
	s.Send(ref, &testpb.Note{N: doPanic})
	s.Run()
	rec := records(t, dir)[0]
	if h := rec.Header; h.Base != zactor.BaseSnapshot || h.Dropped == 0 || rec.Inputs() < 9 || rec.Inputs() > 30 {
		t.Fatalf("base %v, %d dropped, %d kept", h.Base, h.Dropped, rec.Inputs())
	}
	report := replay(t, rec, func() zactor.Actor { return &diarist{} })
	if !report.Same || report.Diverged() {
		t.Errorf("the replay differs:\n%v\nrecord: %s", report, rec.Header.Panic)
	}
	if _, err := zactor.Replay(rec, banker, zactor.ReplayOptions{}); err == nil || !strings.Contains(err.Error(), "no zactor.Snapshotter") {
		t.Errorf("an actor without Restore: %v", err)
	}
}

// boaster is an actor whose record is not complete: no Snapshotter.
func boaster(opaque bool, asks int) func() zactor.Actor {
	return func() zactor.Actor {
		n := 0
		return &actor{handlers: []zactor.Handler{zactor.HandleTell(func(c *zactor.Context, m *testpb.Note) error {
			n++
			if opaque {
				return zactor.Async(c, func(context.Context) (func(), error) { return func() {}, nil }, func(_ *zactor.Context, f func(), _ error) { f() })
			}
			for range asks {
				_, _ = zactor.Call[testpb.Pong](c, bank(c), &testpb.Ping{N: m.GetN()})
			}
			if m.GetN() == doPanic {
				panic(fmt.Sprint("after ", n))
			}
			return nil
		})}}
	}
}

func boast(t *testing.T, o zactor.RecorderOptions, f func() zactor.Actor, notes int) *zactor.Record {
	t.Helper()
	dir := t.TempDir()
	g, s := zactortest.NewSteps(t, zactor.Config{RecordDir: dir, Recorder: &o})
	if _, err := g.Spawn("bank", banker, zactor.WithRecorder(zactor.RecorderOptions{Off: true})); err != nil {
		t.Fatal(err)
	}
	ref, err := g.Spawn("boaster", f)
	if err != nil {
		t.Fatal(err)
	}
	for range notes {
		s.Send(ref, &testpb.Note{N: 1})
		s.Run()
	}
	s.Send(ref, &testpb.Note{N: doPanic})
	s.Run()
	if err := g.Stop(ref); err != nil {
		t.Fatal(err)
	}
	s.Run()
	recs := records(t, dir)
	if len(recs) != 1 {
		t.Fatalf("%d records", len(recs))
	}
	return recs[0]
}

func TestReplayOfLess(t *testing.T) {
	t.Parallel()
	t.Run("incomplete", func(t *testing.T) {
		t.Parallel()
		rec := boast(t, zactor.RecorderOptions{Messages: 4}, boaster(false, 0), 100)
		report := replay(t, rec, boaster(false, 0))
		if rec.Header.Base != zactor.BaseNone || rec.Header.Truncated || report.Panic == nil || report.Same || !strings.Contains(report.String(), "INCOMPLETE") ||
			!strings.HasPrefix(report.Verdict(), "another panic") {
			t.Errorf("%+v\n%v", rec.Header, report)
		}
	})
	t.Run("truncated", func(t *testing.T) {
		t.Parallel()
		rec := boast(t, zactor.RecorderOptions{Messages: 100, Bytes: 4096}, boaster(false, 0), 90)
		report := replay(t, rec, boaster(false, 0))
		if !rec.Header.Truncated || rec.Inputs() > 8 || !strings.Contains(report.String(), "TRUNCATED") {
			t.Errorf("%+v\n%v", rec.Header, report)
		}
	})
	t.Run("the actor asks more than it did", func(t *testing.T) {
		t.Parallel()
		report := replay(t, boast(t, zactor.RecorderOptions{}, boaster(false, 1), 1), boaster(false, 2))
		if !report.Diverged() || !strings.Contains(report.String(), "the record has no call number 2 in this turn") {
			t.Error(report)
		}
	})
	t.Run("the actor asks something else", func(t *testing.T) {
		t.Parallel()
		rec := boast(t, zactor.RecorderOptions{}, boaster(false, 1), 1)
		report := replay(t, rec, func() zactor.Actor {
			return &actor{handlers: []zactor.Handler{zactor.HandleTell(func(c *zactor.Context, m *testpb.Note) error {
				to := bank(c)
				if m.GetN() == doPanic {
					to, _ = c.Group().Lookup("mint")
				}
				_, err := zactor.Call[testpb.Pong](c, to, &testpb.Ping{N: m.GetN(), Text: "please"})
				return err
			})}}
		})
		for _, want := range []string{"the record has another content in this call", "the record has a call to bank here", "no panic; the record has: after 2"} {
			if !strings.Contains(report.String(), want) {
				t.Errorf("%q is missing in\n%v", want, report)
			}
		}
	})
	t.Run("nobody handles the message", func(t *testing.T) {
		t.Parallel()
		report := replay(t, boast(t, zactor.RecorderOptions{}, boaster(false, 0), 1), banker)
		if !strings.Contains(report.String(), "no code of the actor ran for it") {
			t.Error(report)
		}
	})
	t.Run("opaque", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		g, s := zactortest.NewSteps(t, zactor.Config{RecordDir: dir, Recorder: &zactor.RecorderOptions{}})
		ref, err := g.Spawn("o", func() zactor.Actor {
			return &actor{handlers: []zactor.Handler{zactor.HandleTell(func(c *zactor.Context, _ *testpb.Note) error {
				return zactor.Async(c, func(context.Context) (chan int, error) { return make(chan int), nil },
					func(_ *zactor.Context, f chan int, _ error) { close(f); close(f) })
			})}}
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Send(ref, &testpb.Note{})
		s.Run()
		report := replay(t, records(t, dir)[0], func() zactor.Actor {
			return &actor{handlers: []zactor.Handler{zactor.HandleTell(func(c *zactor.Context, _ *testpb.Note) error {
				return zactor.Async(c, func(context.Context) (chan int, error) { return nil, nil }, func(*zactor.Context, chan int, error) {})
			})}}
		})
		if !strings.Contains(report.Stopped, "opaque: a chan int") || report.Panic != nil {
			t.Error(report)
		}
	})
}

// A start that panics leaves a record as well.
func TestReplayOfStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := newGroup(t, func(c *zactor.Config) { c.RecordDir, c.Recorder = dir, &zactor.RecorderOptions{} })
	spawn(t, g, "bank", banker)
	broken := func() zactor.Actor {
		return &actor{start: func(c *zactor.Context) error {
			pong, err := zactor.Call[testpb.Pong](c, bank(c), &testpb.Ping{N: 1})
			panic(fmt.Sprint(pong.GetText(), err))
		}}
	}
	if _, err := g.Spawn("broken", broken); err == nil {
		t.Fatal("it has started")
	}
	eventually(t, func() bool { return len(recordPaths(t, dir)) == 1 })
	eventually(t, func() bool { _, err := zactor.OpenRecord(recordPaths(t, dir)[0]); return err == nil })
	if report := replay(t, records(t, dir)[0], broken); !report.Same {
		t.Error(report)
	}
}

// A child's failure and a Resume in the middle are inputs like others.
func TestReplayOfEscalation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	parent := func() zactor.Actor {
		return &actor{handlers: []zactor.Handler{zactor.HandleTell(func(c *zactor.Context, m *testpb.Note) error {
			if m.GetN() == 1 {
				panic("the first")
			}
			child, err := c.Spawn("child", func() zactor.Actor {
				return &actor{handlers: []zactor.Handler{zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { panic("no sweets") })}}
			}, zactor.WithPolicy(zactor.Policy{Decide: func(error) zactor.Directive { return zactor.Escalate }}), zactor.WithRecorder(zactor.RecorderOptions{Off: true}))
			if err != nil {
				return err
			}
			return c.Tell(child, m)
		})}}
	}
	g, s := zactortest.NewSteps(t, zactor.Config{RecordDir: dir, Recorder: &zactor.RecorderOptions{}})
	ref, err := g.Spawn("parent", parent, zactor.WithPolicy(zactor.Policy{Decide: func(error) zactor.Directive { return zactor.Resume }}))
	if err != nil {
		t.Fatal(err)
	}
	s.Send(ref, &testpb.Note{N: 1})
	s.Run()
	s.Advance(2 * time.Second)
	s.Send(ref, &testpb.Note{N: 2})
	s.Run()
	recs := records(t, dir)
	if len(recs) != 2 {
		t.Fatalf("%d records", len(recs))
	}
	for i, want := range []string{"the first", "no sweets"} {
		if report := replay(t, recs[i], parent); !report.Same || report.Diverged() || !strings.Contains(report.Panic.Value, want) {
			t.Error(report)
		}
	}
}

// A reentrant actor handles other messages while it waits: the record knows which. What a replay cannot do, a handler that goes on
// before one that was begun later, it says.
func TestReplayOfReentrant(t *testing.T) {
	t.Parallel()
	for _, nested := range []bool{true, false} {
		t.Run(fmt.Sprintf("nested=%v", nested), func(t *testing.T) {
			t.Parallel()
			replayReentrant(t, nested)
		})
	}
}

func replayReentrant(t *testing.T, nested bool) {
	t.Helper()
	dir := t.TempDir()
	g := newGroup(t, func(c *zactor.Config) { c.RecordDir = dir })
	probe := zactortest.NewProbe(t, g, "bank", zactortest.Expect[testpb.Ping]())
	double := func() zactor.Actor {
		var pages []string
		return &actor{handlers: []zactor.Handler{zactor.HandleTell(func(c *zactor.Context, m *testpb.Note) error {
			pages = append(pages, fmt.Sprint(m.GetN(), " ", c.Rand().IntN(100)))
			if m.GetN() == doPanic {
				panic(strings.Join(pages, "\n"))
			}
			pong, err := zactor.Call[testpb.Pong](c, bank(c), &testpb.Ping{N: m.GetN()})
			pages = append(pages, fmt.Sprint(m.GetN(), " got ", pong.GetN(), err, c.Now().UnixNano(), c.Rand().IntN(100)))
			return nil
		})}}
	}
	ref := spawn(t, g, "double", double, zactor.Reentrant(), zactor.WithRecorder(zactor.RecorderOptions{}))
	var asked []zactortest.Got
	tell := func(n int64) {
		if err := ref.Tell(&testpb.Note{N: n}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range int64(3) {
		tell(i)
		asked = append(asked, probe.Next())
	}
	for i := range asked {
		if nested {
			i = len(asked) - 1 - i
		}
		asked[i].Reply(&testpb.Pong{N: int64(i)})
	}
	tell(4)
	probe.Next().Reply(&testpb.Pong{N: 40})
	tell(doPanic)
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	_ = g.Shutdown(ctx)
	rec := records(t, dir)[0]
	if report := replay(t, rec, double); report.Same != nested || report.Diverged() == nested {
		t.Errorf("%v\nrecord: %s", report, rec.Header.Panic)
	}
}

// What is written is read again as it was.
func TestRecordRoundTrip(t *testing.T) {
	t.Parallel()
	rec := boast(t, zactor.RecorderOptions{}, boaster(false, 1), 3)
	text := func(r *zactor.Record) string {
		var b strings.Builder
		if _, err := r.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	first := text(rec)
	again, err := zactor.ReadRecord(strings.NewReader(first))
	if err != nil {
		t.Fatal(err)
	}
	if second := text(again); second != first {
		t.Errorf("wrote\n%s\nread and wrote\n%s", first, second)
	}
	lines := strings.Split(strings.TrimSpace(first), "\n")
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "line 0: unexpected EOF"},
		{"no JSON", "hello", "line 1"},
		{"another JSON", `{"a":1}`, "zgame_record is 0: this program reads format 1"},
		{"a later format", `{"zgame_record":2}`, "zgame_record is 2"},
		{"no base", `{"zgame_record":1}`, `base ""`},
		{"cut short", first[:len(first)-20], fmt.Sprintf("line %d", len(lines))},
		{"out of order", lines[0] + "\n" + lines[2] + "\n" + lines[1], "line 3: turn 0 after turn 1"},
		{"unknown kind", lines[0] + "\n" + `{"turn":1,"kind":"dance"}`, `turn 1 is a "dance"`},
		{"half an input", lines[0] + "\n" + `{"turn":1,"kind":"then"}`, "turn 1 is a then without the request and its reply"},
	} {
		if _, err := zactor.ReadRecord(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := zactor.OpenRecord(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// Whatever a file says, reading and replaying it ends without a panic, and what was read is written and read alike.
func FuzzReadRecord(f *testing.F) {
	for _, seed := range []string{
		`{"zgame_record":1,"type":"x","name":"d","actor":{"Node":{"ID":"t","Epoch":1},"Actor":2},"at":"2026-01-01T00:00:00.18Z","seed":13,"base":"start","panic":"p"}
{"turn":0,"kind":"start","at":"2026-01-01T00:00:00Z","did":[{"op":"0.call.1","to":{"Node":{"ID":"t","Epoch":1},"Actor":1},"name":"bank","id":990001,"sum":4,"reply":{"id":990002,"body":"CAQ="}}]}
{"turn":1,"kind":"message","at":"2026-01-01T00:00:00.1Z","id":990003,"body":"CAI=","head":{"wants":true,"left_ns":9,"trace":"000102030405060708090a0b0c0d0e0f"},"did":[{"op":"1.then.1","id":990001}]}
{"turn":2,"kind":"then","at":"2026-01-01T00:00:00.1Z","of":"1.then.1","reply":{"code":3,"outcome":1,"text":"no"}}
{"turn":3,"kind":"timer","at":"2026-01-01T00:00:00.2Z","of":"0.timer.1","key":"clock","late_ns":5}`,
		`{"zgame_record":1,"base":"snapshot","state":"WyJhIl0=","dropped":6,"at":"2026-01-01T00:00:00.18Z"}
{"turn":7,"kind":"message","id":990003,"body":"CAQ=","at":"2026-01-01T00:00:00Z"}
{"turn":8,"kind":"async","of":"7.async.1","result":{"form":"json","type":"zactor_test.purse","value":"e30=","err":{"text":"a: b","coded":true,"code":2,"chain":["b"]}},"at":"2026-01-01T00:00:00Z"}
{"turn":9,"kind":"message","id":990003,"body":"CAw=","at":"2026-01-01T00:00:00Z","did":[{"op":"9.spawn.1","to":{"Node":{"ID":"","Epoch":0},"Actor":5}}]}
{"turn":10,"kind":"down","of":"9.watch.1","reason":1,"at":"2026-01-01T00:00:00Z"}
{"turn":11,"kind":"escalation","name":"c","text":"x","child":{"Node":{"ID":"","Epoch":0},"Actor":5},"at":"2026-01-01T00:00:00Z"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rec, err := zactor.ReadRecord(strings.NewReader(text))
		if err != nil {
			return
		}
		var once, twice strings.Builder
		if _, err := rec.WriteTo(&once); err != nil {
			t.Skip() // a time that JSON cannot say
		}
		again, err := zactor.ReadRecord(strings.NewReader(once.String()))
		if err != nil {
			t.Fatalf("what was written is not read: %v", err)
		}
		if _, err := again.WriteTo(&twice); err != nil || once.String() != twice.String() {
			t.Fatalf("%s\nbecomes\n%s (%v)", once.String(), twice.String(), err)
		}
		report, err := zactor.Replay(again, func() zactor.Actor { return &diarist{} }, zactor.ReplayOptions{})
		if err == nil {
			_, _ = io.WriteString(io.Discard, report.String())
		}
	})
}

// clerk speaks to others past its Context, by its Group.
type clerk struct{}

func (clerk) Handlers() []zactor.Handler {
	return []zactor.Handler{zactor.HandleTell(func(c *zactor.Context, n *testpb.Note) error {
		desk, err := c.Group().Ensure(c.Context(), "desk", factory(zactor.HandleTell(func(*zactor.Context, *testpb.Note) error { return nil })))
		if err != nil {
			return err
		}
		if err := c.Tell(desk, &testpb.Note{}); err != nil {
			return err
		}
		if _, err := c.Group().Spawn("shelf", factory()); err != nil {
			return err
		}
		shelf, _ := c.Group().Lookup("shelf")
		if err := errors.Join(c.Group().Stop(shelf), c.Group().StopDrained(desk)); err != nil {
			return err
		}
		panic("tired")
	})}
}

// In a replay the other actors of the node are not there: what a handler does with them by its Group goes as it did.
func TestReplayOfAHandlerThatUsesItsGroup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g, s := zactortest.NewSteps(t, zactor.Config{RecordDir: dir})
	ref := spawn(t, g, "clerk", func() zactor.Actor { return clerk{} }, zactor.WithRecorder(zactor.RecorderOptions{}))
	s.Send(ref, &testpb.Note{})
	s.Run()
	files, err := filepath.Glob(filepath.Join(dir, "*.record.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	rec, err := zactor.OpenRecord(files[0])
	if err != nil {
		t.Fatal(err)
	}
	report, err := zactor.Replay(rec, func() zactor.Actor { return clerk{} }, zactor.ReplayOptions{})
	if err != nil || !report.Same || report.Diverged() {
		t.Fatalf("%v\n%v", err, report)
	}
	for _, want := range []string{"spawn shelf", "stop shelf", "stop desk"} {
		if !strings.Contains(report.String(), want) {
			t.Errorf("the report lacks %q:\n%v", want, report)
		}
	}
}
