package zcli

import (
	"context"
	"flag"
	"fmt"
)

// Services is the command `services`: the embedded servers alone, so that several node processes can share them.
func Services() Command {
	return Command{
		Name: "services",
		Help: "run only the embedded NATS and etcd, for several node processes on one machine",
		Run: func(ctx context.Context, env Env, args []string) error {
			flags := flag.NewFlagSet(env.Name+" services", flag.ContinueOnError)
			data := flags.String("data", ".zgame", "directory of the servers' data")
			fresh := flags.Bool("fresh", false, "forget the data of earlier runs")
			natsPort := flags.Int("nats-port", 4222, "port of NATS on loopback; 0 takes a free one")
			etcdPort := flags.Int("etcd-port", 2379, "port of etcd on loopback; 0 takes a free one")
			if err := Parse(flags, env, args); err != nil {
				return err
			}
			for name, port := range map[string]int{"nats-port": *natsPort, "etcd-port": *etcdPort} {
				if port < 0 || port > 65535 {
					return Misuse(flags, "--%s %d: expected a port from 0 (any free one) to 65535", name, port)
				}
			}
			lock, err := lockData(*data, "none: services only")
			if err != nil {
				return err
			}
			defer lock.release()
			servers, err := StartServers(*data, *fresh, *natsPort, *etcdPort)
			if err != nil {
				return err
			}
			defer servers.Stop()
			fmt.Fprintf(env.Stdout, "# services are ready; a node that uses them: %s run --config FILE with\nnats:\n  url: %s\netcd:\n  endpoints: [%s]\nstore:\n  driver: kv\n",
				env.Name, servers.NATSURL(), servers.EtcdEndpoint())
			<-ctx.Done()
			return nil
		},
	}
}
