package zcli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"zgame/internal/adminport"
	"zgame/znode"
)

// Exit codes of `drain` besides 0 (the node is drained and gone), 1 (it could not be asked, or was lost) and 2 (wrong use).
const (
	exitLeft    = 3 // it has stopped, and something was left: objects that could be neither moved nor released in time
	exitNotOver = 4 // it is not over within --timeout; it goes on
)

// exitError is an error with an exit code of its own.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// drainCommand is `drain`: it has a node give its objects to others and stop, and follows that.
func drainCommand() Command {
	return Command{
		Name: "drain",
		Help: "have a node move its objects to other nodes and stop; exit code 3: something was left, 4: not over yet",
		Run: func(ctx context.Context, env Env, args []string) error {
			flags := newFlags(env, "drain", "drain NODE", "NODE is the id of a node. Exit code 0: it has stopped, and nothing is left; 1: it could not be asked, or died;\n"+
				"2: wrong use; 3: it has stopped, and objects were left that could be neither moved nor saved in time; 4: not over within --timeout.")
			at := adminFlags(flags, "the node's admin port")
			timeout := flags.Duration("timeout", 5*time.Minute, "how long to wait for the end")
			words, err := ParseWords(flags, env, args, "one NODE, the id of a node", 1, 1)
			if err != nil {
				return err
			}
			node := words[0]
			if *timeout <= 0 {
				return Misuse(flags, "--timeout %s: expected a span of time above 0, such as 5m", *timeout)
			}
			ctx, cancel := context.WithTimeout(ctx, *timeout)
			defer cancel()
			d := drainer{env: env, node: node, address: *at.admin}
			if d.address == "" {
				var err error
				if d.cluster, err = at.cluster(ctx, env); err != nil {
					return err
				}
				defer d.cluster.Close()
			}
			return d.run(ctx)
		},
	}
}

// drainer follows one drain.
type drainer struct {
	env     Env
	node    string
	address string
	cluster *znode.Cluster // nil: the address was given
	last    znode.DrainStatus
}

func (d *drainer) run(ctx context.Context) error {
	if d.address == "" {
		n, err := d.cluster.Node(ctx, d.node)
		if err != nil {
			return err
		}
		if n.Admin == "" {
			return fmt.Errorf("the node %s has no admin port (admin.address is empty): end it with SIGTERM, which drains it too", n.Ref)
		}
		d.address = n.Admin
	}
	if err := d.follow(ctx); err != nil {
		return err
	}
	if err := d.gone(ctx); err != nil {
		return err
	}
	d.report(d.env.Stdout)
	if d.last.Error != "" {
		return &exitError{exitLeft, errors.New(d.last.Error)}
	}
	return nil
}

// follow asks for the drain, and prints how it goes until the node has no objects any more, or no time for them.
func (d *drainer) follow(ctx context.Context) error {
	res, err := adminport.Ask(ctx, d.address, http.MethodPost, "/drain?follow=1s&node="+url.QueryEscape(d.node), http.NoBody)
	if err != nil {
		return fmt.Errorf("the node %q cannot be asked at %s: %w\n  where that is not its address from here: --admin, or admin.url in its settings", d.node, d.address, err)
	}
	defer res.Body.Close()
	statuses := json.NewDecoder(res.Body)
	for said := ""; ; {
		err := statuses.Decode(&d.last)
		switch {
		case errors.Is(err, io.EOF) && d.objectsDone():
			return nil
		case err != nil && ctx.Err() != nil:
			return d.notOver()
		case err != nil:
			return fmt.Errorf("the node does not answer any more, before its objects were elsewhere: %w", err)
		}
		if said == "" {
			fmt.Fprintf(d.env.Stdout, "%s drains\n", d.last.Node)
		}
		line := progress(&d.last)
		if line != said && d.last.Step != znode.DrainServing { // it is asked, and has not begun
			fmt.Fprintln(d.env.Stdout, line)
		}
		said = line
	}
}

// objectsDone reports that the node has no objects any more, or no time for them.
func (d *drainer) objectsDone() bool {
	return d.last.Objects == nil || d.last.Objects.Phase == "done"
}

func (d *drainer) notOver() error {
	return &exitError{exitNotOver, fmt.Errorf("not over yet: %s; it goes on, and GET http://%s/drain says how far it is", progress(&d.last), d.address)}
}

func (d *drainer) report(w io.Writer) {
	if d.last.Objects != nil {
		fmt.Fprint(w, d.last.Objects.String())
	}
	fmt.Fprintf(w, "%s has stopped\n", d.last.Node)
}

// progress is a line about a drain that goes on.
func progress(s *znode.DrainStatus) string {
	if s.Objects == nil || s.Step != znode.DrainObjects {
		return string(s.Step)
	}
	r := s.Objects
	return fmt.Sprintf("objects: %s, %d moved, %d left (%d on their way), %d moves to be tried again, longest pause %s",
		r.Phase, r.Moved, r.Left, r.Moving, r.Retries, r.Pause.Max.Round(time.Millisecond))
}

// gone waits until the node has left the cluster. Where that cannot be asked, as when the last node of dev has taken the servers with it, its admin port says so.
func (d *drainer) gone(ctx context.Context) error {
	for {
		here, err := true, error(nil)
		if d.cluster != nil {
			here, err = d.cluster.Has(ctx, d.last.Node)
		}
		if (d.cluster == nil || err != nil) && ctx.Err() == nil {
			res, notThere := adminport.Ask(ctx, d.address, http.MethodGet, "/drain", http.NoBody)
			if notThere == nil {
				_ = res.Body.Close() // what it says is not needed
			} else {
				here, err = false, nil
			}
		}
		switch {
		case ctx.Err() != nil:
			return d.notOver()
		case err != nil:
			return err
		case !here:
			return nil
		}
		t := time.NewTimer(100 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return d.notOver()
		}
	}
}
