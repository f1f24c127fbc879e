package zcli

import (
	"context"
	"flag"
	"fmt"
	"time"

	"zgame/internal/adminport"
	"zgame/znode"
)

// adminAt says where a command finds admin ports.
type adminAt struct {
	config *string
	admin  *string // host:port; "": as discovery says
}

func adminFlags(flags *flag.FlagSet, whose string) adminAt {
	return adminAt{
		configFlag(flags),
		flags.String("admin", "", "host:port of "+whose+", instead of what discovery says"),
	}
}

func configFlag(flags *flag.FlagSet) *string {
	return flags.String("config", "", "settings file (YAML) with etcd.endpoints and node.cluster, as for run; the environment counts too")
}

// cluster connects to the cluster that the settings name.
func (a *adminAt) cluster(ctx context.Context, env Env) (*znode.Cluster, error) {
	s, err := znode.LoadSettings(*a.config, env.Environ)
	if err != nil {
		return nil, fmt.Errorf("the settings have faults:\n%w", err)
	}
	return znode.OpenCluster(ctx, s)
}

// operator asks nodes for what a command wants.
type operator struct {
	adminport.Cluster

	env Env
}

// operate looks who is there, and has do ask them, within the time.
func (a *adminAt) operate(ctx context.Context, env Env, timeout time.Duration, do func(ctx context.Context, o *operator) error) error {
	if timeout <= 0 {
		return fmt.Errorf("--timeout %s: expected a span of time above 0, such as 10s", timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	o := &operator{env: env, Cluster: adminport.Cluster{Only: *a.admin}}
	if o.Only == "" {
		c, err := a.cluster(ctx, env)
		if err != nil {
			return err
		}
		defer c.Close()
		if o.Nodes, err = c.Nodes(ctx); err != nil {
			return err
		}
	}
	return do(ctx, o)
}

// ParseWords parses a command's flags and the words among them, least to most of them; expected says which.
func ParseWords(flags *flag.FlagSet, env Env, args []string, expected string, least, most int) (words []string, err error) {
	for {
		if err := parseFlags(flags, env, args); err != nil {
			return nil, err
		}
		if flags.NArg() == 0 {
			break
		}
		words = append(words, flags.Arg(0))
		args = flags.Args()[1:]
	}
	if len(words) < least || len(words) > most {
		fmt.Fprintf(env.Stderr, "%s: expected %s\n", flags.Name(), expected)
		flags.Usage()
		return nil, errUsage
	}
	return words, nil
}
