package zbots

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"zgame/examples/chat"
	"zgame/examples/chat/chatpb"
	"zgame/zcli"
	"zgame/zclient"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/ztest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSequences(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		got    []uint64
		expect uint64
		want   Numbered
	}{
		{nil, 0, Numbered{}},
		{[]uint64{5, 6, 7}, 0, Numbered{}},
		{[]uint64{1, 2, 4}, 0, Numbered{Lost: 1}},
		{[]uint64{1, 4, 2, 3}, 0, Numbered{Swapped: 2}},
		{[]uint64{1, 1, 2, 2, 2}, 0, Numbered{Doubled: 3}},
		{[]uint64{1, 4, 2, 2}, 0, Numbered{Lost: 1, Swapped: 1, Doubled: 1}},
		{[]uint64{1, 2}, 5, Numbered{Lost: 3}},
		{[]uint64{1, 2, 5}, 5, Numbered{Lost: 2}},
		{[]uint64{3, 2}, 0, Numbered{Doubled: 1}}, // from before it listened
	} {
		s := &sequences{}
		for _, n := range c.got {
			s.got("a", n)
			s.got("b", 1000+uint64(len(c.got))) // another stream
		}
		s.expect("a", c.expect)
		got := s.sum()
		if len(c.got) > 1 {
			got.Doubled -= uint64(len(c.got) - 1) // of b
		}
		if got != c.want {
			t.Errorf("%v, expected %d: %+v, want %+v", c.got, c.expect, got, c.want)
		}
	}
}

// What is late counts from when it was to be made, and nothing is skipped.
func TestEvery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 950*time.Millisecond)
		defer cancel()
		b, began, late := &Bot{}, time.Now(), []time.Duration{}
		err := b.Every(ctx, 100*time.Millisecond, func(context.Context) error {
			late = append(late, time.Since(b.due))
			if len(late) == 3 {
				time.Sleep(350 * time.Millisecond)
			}
			return nil
		})
		if err != nil || len(late) != 10 || time.Since(began) != 950*time.Millisecond {
			t.Errorf("%v after %v: %v", err, time.Since(began), late)
		}
		for i, want := range []time.Duration{0, 0, 0, 250, 150, 50, 0, 0, 0, 0} {
			if late[i] != want*time.Millisecond {
				t.Errorf("call %d was late by %v, want %v", i, late[i], want*time.Millisecond)
			}
		}
		boom := errors.New("boom")
		if err := b.Every(t.Context(), time.Second, func(context.Context) error { return boom }); !errors.Is(err, boom) {
			t.Errorf("%v", err)
		}
	})
}

// talk is a script: all say something in one room.
func talk(every time.Duration) Script {
	return Script{Name: "talk", Help: "all in one room", Run: func(ctx context.Context, b *Bot) error {
		zclient.On(b.Client, func(l *chatpb.Line) { b.Got(l.GetRoom(), l.GetSeq()) })
		if _, err := Call[chatpb.Joined](ctx, b, "join", &chatpb.Join{Room: "go"}); err != nil {
			return err
		}
		return b.Every(ctx, every, func(ctx context.Context) error {
			said, err := Call[chatpb.Said](ctx, b, "say", &chatpb.Say{Room: "go", Text: "hello"})
			if err == nil {
				b.Expect("go", said.GetSeq())
			}
			return b.GoOn(err)
		})
	}}
}

// Bots at two gates hear each other while one node leaves; nothing is lost.
func TestRun(t *testing.T) {
	c := ztest.Cluster(t, 2, chat.With(chat.Options{Rate: -1}), ztest.RealServers())
	const n = 20
	var seconds atomic.Int64
	rep, err := Run(t.Context(), Config{
		URLs: []string{c.Node(0).GateURL(), c.Node(1).GateURL()}, Script: talk(50 * time.Millisecond), Bots: n, Ramp: 500 * time.Millisecond, Time: 3 * time.Second, Settle: 30 * time.Second,
		Progress: func(r *Report) {
			if progress(r) == "" {
				t.Error("no word of progress")
			}
			seconds.Add(1)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if rep.Faulty() || rep.Online != n || rep.Lost != 0 || len(rep.Ended) != 0 || seconds.Load() == 0 {
		t.Errorf("%s", rep)
	}
	ops := map[string]Operation{}
	for _, o := range rep.Operations {
		ops[o.Name] = o
		if x := o.Times; x.P50 <= 0 || x.P50 > x.P90 || x.P90 > x.P99 || x.P99 > x.P999 || x.P999 > x.Max+x.Max/100 {
			t.Errorf("%+v", o)
		}
	}
	if ops["login"].Count != n || ops["join"].Count != n || ops["say"].Count < n || rep.Came < uint64(ops["say"].Count) {
		t.Errorf("%s", rep)
	}
	var page bytes.Buffer
	if err := rep.WriteHTML(&page); err != nil || strings.Count(page.String(), "<polyline") != 6 || strings.Contains(page.String(), "NaN") {
		t.Errorf("%v\n%s", err, page.String())
	}
}

// What goes wrong is counted by what it was; who cannot come online says why.
func TestTrouble(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 1, chat.With(chat.Options{Rate: 0.001, Burst: 1}))
	cfg := Config{URLs: []string{c.Node(0).GateURL()}, Script: talk(20 * time.Millisecond), Bots: 2, Time: time.Second, Settle: time.Millisecond}
	rep, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	failed := 0
	for _, o := range rep.Operations {
		failed += o.Errors[zmsg.CodeRateLimited.String()]
	}
	if failed == 0 && len(rep.Ended) == 0 {
		t.Errorf("nobody speaks too fast:\n%s", rep)
	}
	cfg.Script = Script{Name: "bad", Run: func(_ context.Context, b *Bot) error {
		b.Got("x", 1)
		b.Got("x", 1)
		b.Expect("x", 3)
		return fmt.Errorf("no more: %d", b.Index)
	}}
	rep, err = Run(t.Context(), cfg)
	if want := (Numbered{Lost: 4, Doubled: 2}); err != nil || rep.Numbered != want || rep.Ended["no more"] != 2 || !strings.Contains(rep.String(), "2 bots ended by: no more (no more: ") || !rep.Faulty() {
		t.Errorf("%v\n%s", err, rep)
	}
	if _, err := Run(t.Context(), Config{Time: time.Second, Ramp: time.Second}); err == nil || strings.Count(err.Error(), "zbots: ") != 4 {
		t.Errorf("%v", err)
	}
	cfg.URLs = []string{"ws://127.0.0.1:1/ws"}
	if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "none of 2 bots came online") {
		t.Errorf("%v", err)
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	c := ztest.Cluster(t, 1, chat.With(chat.Options{Rate: -1}))
	html := filepath.Join(t.TempDir(), "report.html")
	lossy := Script{Name: "lossy", Run: func(_ context.Context, b *Bot) error { b.Expect("x", 1); return nil }}
	ends := Script{Name: "ends", Run: func(context.Context, *Bot) error { return fmt.Errorf("ends: %w", zmsg.Errorf(1234, "oh dear")) }}
	try := func(args ...string) (code int, out string) {
		var b bytes.Buffer
		code = zcli.Run(t.Context(), zcli.Env{Name: "game", Stdout: &b, Stderr: &b}, znode.App{}, append([]string{"bots"}, args...), Command(talk(50*time.Millisecond), lossy, ends))
		return code, b.String()
	}
	url := []string{"--url", c.Node(0).GateURL(), "--n", "3", "--ramp", "0s", "--time", "1s", "--quiet"}
	code, out := try(append([]string{"talk", "--html", html}, url...)...)
	text, err := os.ReadFile(html)
	if code != 0 || !strings.Contains(out, "3 of 3 bots came online") || err != nil || !strings.Contains(string(text), "<h1>talk</h1>") {
		t.Errorf("exit code %d, %v\n%s", code, err, out)
	}
	code, out = try(append([]string{"--json"}, url...)...)
	var rep Report
	if err := json.Unmarshal([]byte(out), &rep); code != 0 || err != nil || rep.Online != 3 || rep.Script != "talk" {
		t.Errorf("exit code %d, %v\n%s", code, err, out)
	}
	for _, x := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"nothing"}, 2, `there is no script "nothing"; there are [talk lossy ends]`},
		{[]string{"-h"}, 0, "all in one room"},
		{[]string{"--n", "0"}, 2, "--n 0 --ramp 5s --time 30s: expected at least one bot"},
		{[]string{"--ramp", "5s", "--time", "5s"}, 2, "--ramp below --time"},
		{append([]string{"ends"}, url...), 1, "3 of 3 bots ended by an error"},
		{append([]string{"ends"}, url...), 1, "3 bots ended by: the program's code 1234 (ends: application: oh dear"},
		{append([]string{"lossy"}, url...), 1, "numbered messages were lost"},
	} {
		if code, out := try(x.args...); code != x.code || !strings.Contains(out, x.want) {
			t.Errorf("%v: exit code %d\n%s", x.args, code, out)
		}
	}
}
