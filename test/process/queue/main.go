// Command queue is a node whose one actor has a backlog: the test sends it SIGTERM and adds up what it says.
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"zgame/examples/chat/chatpb"
	"zgame/zactor"
	"zgame/zcli"
	"zgame/zmsg"
	"zgame/znode"
)

const backlog = 20_000

func main() {
	zcli.Main(znode.App{Name: "queue", Setup: func(n *znode.Node) error {
		each, err := strconv.Atoi(os.Getenv("QUEUE_MICROSECONDS"))
		if err != nil {
			return err
		}
		w := &worker{each: time.Duration(each) * time.Microsecond}
		ref, err := n.Spawn("worker", func() zactor.Actor { return w }, zactor.WithMailbox(backlog))
		if err != nil {
			return err
		}
		for i := range backlog {
			if err := ref.Tell(&chatpb.Line{Seq: uint64(i + 1)}); err != nil {
				return err
			}
		}
		fmt.Fprintf(os.Stdout, "queued %d\n", backlog)
		return nil
	}})
}

// worker takes its time for each message, as work on a database would.
type worker struct {
	each    time.Duration
	handled atomic.Int64
}

func (w *worker) Handlers() []zactor.Handler {
	return []zactor.Handler{zactor.HandleTell(func(c *zactor.Context, line *chatpb.Line) error {
		if got := w.handled.Load() + 1; uint64(got) != line.GetSeq() {
			return zmsg.Errorf(zmsg.CodeInternal, "message %d came as number %d", line.GetSeq(), got)
		}
		for end := time.Now().Add(w.each); time.Now().Before(end) && c.Context().Err() == nil; {
		}
		w.handled.Add(1)
		return nil
	})}
}

// OnStop says how much was done.
func (w *worker) OnStop(_ *zactor.Context, why zactor.Reason) {
	fmt.Fprintf(os.Stdout, "handled %d (%v)\n", w.handled.Load(), why)
}
