//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"

	"zgame/internal/embedded"
	"zgame/zcli"
)

func natsCommand() zcli.Command {
	return serverCommand("nats", func(host, data string, port int) (func(), error) {
		s, err := embedded.StartNATSWith(data, port, func(o *server.Options) { o.Host = host })
		if err != nil {
			return nil, err
		}
		return s.Stop, nil
	})
}

func etcdCommand() zcli.Command {
	return serverCommand("etcd", func(host, data string, port int) (func(), error) {
		s, err := embedded.StartEtcdOn(host, data, port)
		if err != nil {
			return nil, err
		}
		return s.Stop, nil
	})
}

// serverCommand is a command that runs one server until it is told to stop.
func serverCommand(name string, start func(host, data string, port int) (stop func(), err error)) zcli.Command {
	return zcli.Command{Name: name, Help: "run only " + name, Run: func(ctx context.Context, env zcli.Env, args []string) error {
		flags := flag.NewFlagSet(env.Name+" "+name, flag.ContinueOnError)
		host := flags.String("host", "127.0.0.1", "address to listen on")
		port := flags.Int("port", 0, "port to listen on")
		data := flags.String("data", "", "directory of the server's data")
		if err := zcli.Parse(flags, env, args); err != nil {
			return err
		}
		stop, err := start(*host, *data, *port)
		if err != nil {
			return err
		}
		defer stop()
		fmt.Fprintf(env.Stdout, "%s is ready\n", name)
		<-ctx.Done()
		return nil
	}}
}
