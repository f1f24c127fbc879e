//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"zgame/test/chaos/chaospb"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/zrouter"
)

// controlAddress is where a node takes what the admin port cannot say.
const controlAddress = ":9091"

// control serves POST /move?list=L&to=NODE[&notify=no] until ctx ends: the list is moved with its name as the private argument.
func control(ctx context.Context, n *znode.Node) error {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", controlAddress)
	if err != nil {
		return err
	}
	s := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := moveList(r.Context(), n, r.FormValue("list"), r.FormValue("to"), r.FormValue("notify") != "no"); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	go func() { // ends with ctx
		if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			n.Logger().Error("the control port", "err", err)
		}
	}()
	return nil
}

func moveList(ctx context.Context, n *znode.Node, list, to string, notify bool) error {
	opts := []zrouter.TransferOption{zrouter.Private([]byte(list))}
	if !notify {
		opts = append(opts, zrouter.WithoutNotify())
	}
	var target zmsg.NodeRef
	for _, o := range n.Nodes() {
		if o.Ref.ID == to {
			target = o.Ref
		}
	}
	if target.IsZero() {
		return fmt.Errorf("there is no node %q", to)
	}
	_, err := n.Objects().Transfer(ctx, chaospb.Key(list), target, opts...)
	return err
}
