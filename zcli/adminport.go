package zcli

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"zgame/zdiscovery"
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
	env   Env
	admin string            // given: the only node that is asked; "" for none
	nodes []zdiscovery.Node // of the cluster, where none was given
}

// operate looks who is there, and has do ask them, within the time.
func (a *adminAt) operate(ctx context.Context, env Env, timeout time.Duration, do func(ctx context.Context, o *operator) error) error {
	if timeout <= 0 {
		return fmt.Errorf("--timeout %s: expected a span of time above 0, such as 10s", timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	o := &operator{env: env, admin: *a.admin}
	if o.admin == "" {
		c, err := a.cluster(ctx, env)
		if err != nil {
			return err
		}
		defer c.Close()
		if o.nodes, err = c.Nodes(ctx); err != nil {
			return err
		}
	}
	return do(ctx, o)
}

// any returns an admin port that answers; every node says the same of users and routes.
func (o *operator) any(ctx context.Context) (address string, err error) {
	if o.admin != "" {
		return o.admin, nil
	}
	faults := []error{errors.New("no node's admin port can be asked (admin.address, admin.url; --admin says where one is)")}
	for i := range o.nodes {
		n := &o.nodes[i]
		if n.Admin == "" || n.State != zdiscovery.Ready {
			continue
		}
		if err = fetch(ctx, n.Admin, http.MethodGet, "/node", nil); err == nil {
			return n.Admin, nil
		}
		faults = append(faults, fmt.Errorf("  %s at %s: %w", n.Ref, n.Admin, err))
	}
	return "", errors.Join(faults...)
}

// of returns the admin port of the node called id.
func (o *operator) of(id string) (address string, err error) {
	for i := range o.nodes {
		if n := &o.nodes[i]; n.Ref.ID == id {
			if n.Admin == "" {
				return "", fmt.Errorf("the node %s has no admin port: admin.address is empty", n.Ref)
			}
			return n.Admin, nil
		}
	}
	if o.admin != "" {
		return o.admin, nil
	}
	return "", fmt.Errorf("the node %q is not in the cluster", id)
}

// fetch asks an admin port, and decodes what it answers into v, unless that is nil.
func fetch(ctx context.Context, address, method, path string, v any) error {
	res, err := askAdmin(ctx, address, method, path)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if v == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, 1<<20)).Decode(v); err != nil {
		return fmt.Errorf("%s of http://%s%s is not what this program expects (is it an admin port of its version?): %w", method, address, path, err)
	}
	return nil
}

// statusError is an answer that is no success.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return fmt.Sprintf("%d %s", e.status, e.text) }

// askAdmin asks an admin port; the caller closes the body. An answer that is no success is a statusError with what it says.
func askAdmin(ctx context.Context, address, method, path string) (*http.Response, error) {
	return sendAdmin(ctx, address, method, path, http.NoBody)
}

// sendAdmin is askAdmin with a body.
func sendAdmin(ctx context.Context, address, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, body)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // a kept connection would hold the node's end up
	res, err := client.Do(req)
	if err != nil || res.StatusCode/100 == 2 {
		return res, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<16))
	return nil, errors.Join(&statusError{res.StatusCode, strings.TrimSpace(string(text))}, err)
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
