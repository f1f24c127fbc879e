//go:build linux

// Command node is the program of the chaos tests: `node` is a node with one kind of objects, lists that are appended to; `nats` and
// `etcd` are servers, each a process of its own, so that each can be killed alone. What a test wants of a node beyond its settings
// comes by the environment:
//
//	CHAOS_STORE   URL of the NATS that keeps the lists, apart from the bus
//	CHAOS_DIR     where executions are noted (package notes), and where the seam's socket is
//	CHAOS_HOSTS   none: it hosts no lists
//	CHAOS_DURABLE false: appends are acknowledged before they are saved
package main

import (
	"context"
	"os"

	"zgame/internal/logging"
	"zgame/test/chaos/chaospb"
	"zgame/test/chaos/notes"
	"zgame/test/chaos/seam"
	"zgame/zcli"
	"zgame/znode"
	"zgame/zrouter"
	"zgame/zstore/kvstore"
)

func main() { zcli.Main(znode.App{Name: "chaos"}, nodeCommand(), natsCommand(), etcdCommand()) }

// nodeCommand is `run` with the store on a server of its own.
func nodeCommand() zcli.Command {
	return zcli.Command{Name: "node", Help: "run one node", Run: func(ctx context.Context, env zcli.Env, _ []string) error {
		s, err := znode.LoadSettings("", env.Environ)
		if err != nil {
			return err
		}
		log, err := logging.New(env.Stderr, s.Log.Level, s.Log.Format)
		if err != nil {
			return err
		}
		dir := os.Getenv("CHAOS_DIR")
		book, err := notes.Open(dir, notes.Proc(s.Node.ID, os.Getpid()))
		if err != nil {
			return err
		}
		store, err := kvstore.New(kvstore.Config{URL: os.Getenv("CHAOS_STORE"), Bucket: chaospb.Bucket, Logger: log})
		if err != nil {
			return err
		}
		held := &seam.Process{Dir: dir, Node: s.Node.ID}
		l := &lists{book, held}
		app := znode.App{Name: "chaos", Setup: func(n *znode.Node) error { return control(ctx, n) }, Objects: func(*znode.Node) []zrouter.AnyKind {
			if os.Getenv("CHAOS_HOSTS") == "none" {
				return nil
			}
			return []zrouter.AnyKind{l.kind()}
		}}
		n, err := znode.New(znode.Config{Settings: s, App: app, Backends: znode.Backends{Store: &steppedStore{store, held}}, Logger: log})
		if err != nil {
			return err
		}
		return n.Run(ctx)
	}}
}
