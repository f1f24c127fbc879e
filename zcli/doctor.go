package zcli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"zgame/internal/adminport"
	"zgame/internal/doctor"
	"zgame/zdiscovery"
	"zgame/znode"
)

// doctorCommand is `doctor`: it looks at the machine, the settings, the servers and the cluster, and says what is wrong.
func doctorCommand() Command {
	return Command{
		Name: "doctor",
		Help: "check this machine, the settings, the servers and the cluster; exit code 1: something does not work",
		Run: func(ctx context.Context, env Env, args []string) error {
			flags := newFlags(env, "doctor", "doctor",
				"It connects as a node would, and asks each node. Exit code 1 where something does not work (FAULT); what will hurt some time is a WARN.")
			at := adminAt{config: configFlag(flags)}
			timeout := flags.Duration("timeout", 20*time.Second, "how long all of it may take")
			if err := Parse(flags, env, args); err != nil {
				return err
			}
			s, err := znode.LoadSettings(*at.config, env.Environ)
			if err != nil {
				return fmt.Errorf("the settings have faults:\n%w", err)
			}
			ctx, cancel := context.WithTimeout(ctx, *timeout)
			defer cancel()
			faults := 0
			for _, f := range doctor.Diagnose(examine(ctx, &s)) {
				fmt.Fprintf(env.Stdout, "%-5s  %-10s  %s\n", f.Level, f.About, strings.ReplaceAll(f.Text, "\n", fmt.Sprintf("\n%19s", "")))
				if f.Remedy != "" {
					fmt.Fprintf(env.Stdout, "%19s-> %s\n", "", f.Remedy)
				}
				if f.Level == doctor.Fault {
					faults++
				}
			}
			if faults > 0 {
				return fmt.Errorf("%d of it does not work", faults)
			}
			return nil
		},
	}
}

// examine looks at all there is.
func examine(ctx context.Context, s *znode.Settings) *doctor.Facts {
	f := &doctor.Facts{
		Machine: doctor.ThisMachine(), MemoryLimit: uint64(debug.SetMemoryLimit(-1)),
		Gate: s.Gate.Enabled, MaxSessions: s.Gate.MaxSessions, Others: s.Gate.MaxUnauthenticated + otherFiles,
		Unbounded: unbounded(s), Files: s.CheckFiles(time.Now()),
	}
	f.Servers = znode.Probe(ctx, *s)
	c, err := znode.OpenCluster(ctx, *s)
	if err != nil {
		return f // said by Servers
	}
	defer c.Close()
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return f // there are none
	}
	f.Nodes = make([]doctor.Node, len(nodes))
	var asked sync.WaitGroup
	for i := range nodes {
		asked.Go(func() { f.Nodes[i] = examineNode(ctx, nodes[i]) })
	}
	asked.Wait()
	return f
}

// otherFiles is what a node has open besides connections of clients: servers, other nodes' admin ports, logs.
const otherFiles = 200

// unbounded returns the settings that set no limit.
func unbounded(s *znode.Settings) (keys []string) {
	g := &s.Gate
	for _, l := range []struct {
		key   string
		value int
	}{
		{"gate.max_per_address", g.MaxPerAddress},
		{"gate.accept_rate", g.AcceptRate},
		{"gate.rate", g.Rate},
		{"gate.byte_rate", g.ByteRate},
		{"gate.user_sessions", g.UserSessions},
	} {
		if g.Enabled && l.value < 0 {
			keys = append(keys, l.key)
		}
	}
	return keys
}

// clockSpan is how long a node's clock is watched.
const clockSpan = time.Second

// examineNode asks a node twice: what there is between the two answers shows how fast its clock runs.
func examineNode(ctx context.Context, rec zdiscovery.Node) doctor.Node {
	n := doctor.Node{Record: rec, Asked: rec.Admin != ""}
	if !n.Asked {
		return n
	}
	// look returns what the node says, and when by our clock: in the middle of asking.
	look := func() (s znode.NodeStatus, at time.Time, err error) {
		before := time.Now()
		err = adminport.Fetch(ctx, rec.Admin, http.MethodGet, "/node", &s)
		return s, before.Add(time.Since(before) / 2), err
	}
	first, began, err := look()
	if err == nil {
		n.Skew = first.Now.Sub(began)
		pause := time.NewTimer(clockSpan)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
			n.Err = context.Cause(ctx)
			return n
		}
		var second znode.NodeStatus
		var ended time.Time
		if second, ended, err = look(); err == nil && second.Node == first.Node {
			n.Rate = float64(second.Up-first.Up) / float64(ended.Sub(began))
		}
	}
	if n.Err = err; err == nil && first.Node != rec.Ref {
		n.Err = errors.New("it is another node that answers there: " + first.Node.String())
	}
	return n
}
