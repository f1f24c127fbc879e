package zcli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"zgame/internal/logging"
	"zgame/znode"
)

// runCommand is `run`: one node on external servers.
func runCommand(app znode.App) Command {
	return Command{
		Name: "run",
		Help: "run one node that connects to external NATS, etcd and a store",
		Run: func(ctx context.Context, env Env, args []string) error {
			flags := flag.NewFlagSet(env.Name+" run", flag.ContinueOnError)
			config := flags.String("config", "", "settings file (YAML); every key also as environment variable, gate.address as "+znode.EnvPrefix+"_GATE_ADDRESS")
			check := flags.Bool("check", false, "check the settings and the files that they name, print them all, and do not run")
			if err := Parse(flags, env, args); err != nil {
				return err
			}
			s, err := znode.LoadSettings(*config, env.Environ)
			if err != nil {
				return fmt.Errorf("the settings have faults:\n%w", err)
			}
			if *check {
				fmt.Fprint(env.Stdout, s.Text())
				_, err := znode.New(znode.Config{Settings: s, App: app})
				if files := s.CheckFiles(time.Now()); files != nil {
					err = errors.Join(err, fmt.Errorf("files that the settings name have faults:\n%w", files))
				}
				return err
			}
			log, err := logging.New(env.Stderr, s.Log.Level, s.Log.Format)
			if err != nil {
				return err
			}
			n, err := znode.New(znode.Config{Settings: s, App: app, Logger: log})
			if err != nil {
				return err
			}
			err = n.Run(ctx)
			if d := n.DrainStatus(); d.Objects != nil && d.Objects.Objects > 0 {
				fmt.Fprintf(env.Stdout, "objects of %s %s", d.Node, d.Objects)
			}
			return err
		},
	}
}
