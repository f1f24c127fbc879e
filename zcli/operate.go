package zcli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"zgame/internal/adminport"
	"zgame/internal/settings"
	"zgame/zdiscovery"
	"zgame/zmsg"
	"zgame/znode"
	"zgame/ztrace"
)

// newFlags makes the flags of a command that explains itself.
func newFlags(env Env, name, synopsis, text string) *flag.FlagSet {
	flags := flag.NewFlagSet(env.Name+" "+name, flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "Usage: %s %s [flags]\n\n%s\n\n", env.Name, synopsis, text)
		flags.PrintDefaults()
	}
	return flags
}

// operation makes the flags of a command that asks admin ports.
func operation(env Env, name, synopsis, text string) (*flag.FlagSet, adminAt, *time.Duration) {
	flags := newFlags(env, name, synopsis, text)
	return flags, adminFlags(flags, "a node's admin port"), flags.Duration("timeout", 10*time.Second, "how long all of it may take")
}

const keyText = `KEY names an object: KIND/ID, or KIND/ZONE/ID, where KIND is the kind's name or number and ZONE is a number (0 where there is none):
rooms/lobby, rooms/7/lobby, 100/0/lobby. Of a kind that is not there, "inspect object" says which are.`

// inspectCommand is `inspect`: what a cluster says of its nodes, of an object, or of a user.
func inspectCommand() Command {
	return Command{
		Name: "inspect",
		Help: "show the nodes of a cluster, their busiest actors, where an object lives, or where a user is logged in",
		Run: func(ctx context.Context, env Env, args []string) error {
			flags, at, timeout := operation(env, "inspect", "inspect [actors [MATCH] | object KEY | user USER] [--follow]",
				"Without words: the nodes. actors: those with the fullest mailboxes, of those whose name or type has MATCH in it, and who has failed lately. "+keyText)
			follow := flags.Bool("follow", false, "print what the user asks for, or the object handles, as it happens: each request with all that it leads to, at all nodes (trace.enabled)")
			words, err := ParseWords(flags, env, args, inspectWords, 0, 2)
			if err != nil {
				return err
			}
			if len(words) > 0 && words[0] != "actors" && (len(words) == 1 || words[0] != "object" && words[0] != "user") {
				fmt.Fprintf(env.Stderr, "%s: %s: expected %s\n", flags.Name(), strings.Join(words, " "), inspectWords)
				flags.Usage()
				return errUsage
			}
			if *follow && (len(words) == 0 || words[0] == "actors") {
				fmt.Fprintf(env.Stderr, "%s: --follow: expected object KEY, or user USER\n", flags.Name())
				flags.Usage()
				return errUsage
			}
			life := ctx
			return at.operate(ctx, env, *timeout, func(ctx context.Context, o *operator) error {
				switch {
				case *follow && words[0] == "user":
					return o.follow(life, url.Values{"user": words[1:]}.Encode(), func(s *ztrace.Span) bool { return s.User == words[1] && s.Kind == ztrace.Request })
				case *follow:
					k, err := o.key(ctx, words[1])
					if err != nil {
						return err
					}
					return o.follow(life, adminport.ObjectQuery(k).Encode(), func(s *ztrace.Span) bool { return s.Key == k })
				case len(words) == 0:
					return o.inspectNodes(ctx)
				case words[0] == "actors":
					return o.inspectActors(ctx, strings.Join(words[1:], ""))
				case words[0] == "object":
					return o.inspectObject(ctx, words[1])
				default:
					return o.inspectUser(ctx, words[1])
				}
			})
		},
	}
}

const inspectWords = "nothing, or actors, or object KEY, or user USER"

// inspectActors prints the busiest actors of each node, and who has failed lately.
func (o *operator) inspectActors(ctx context.Context, match string) error {
	t := tabwriter.NewWriter(o.env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tACTOR\tNAME\tTYPE\tQUEUED\tSTATE")
	var failed []string
	var faults []error
	for _, admin := range o.Ports() {
		var s znode.ActorsStatus
		if err := adminport.Fetch(ctx, admin, http.MethodGet, "/actors?match="+url.QueryEscape(match), &s); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", admin, err))
			continue
		}
		for _, a := range s.Actors {
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%d of %d\t%s\n", s.Node.ID, a.ID, a.Name, a.Type, a.Queued, a.Limit, a.State)
		}
		if more := s.All - len(s.Actors); more > 0 {
			fmt.Fprintf(t, "%s\t\t\tand %d more\t\t\n", s.Node.ID, more)
		}
		for i := range s.Failures {
			f := &s.Failures[i]
			name := f.Name
			if name == "" {
				name = fmt.Sprint(f.Actor)
			}
			failed = append(failed, fmt.Sprintf("%s %s: actor %s, message %d, trace %s: %s", f.At.Local().Format(time.DateTime), s.Node.ID, name, f.Message, f.Trace, f.Text))
		}
	}
	err := t.Flush()
	if len(failed) > 0 {
		slices.Sort(failed)
		fmt.Fprintf(o.env.Stdout, "\nfailed lately:\n%s\n", strings.Join(failed, "\n"))
	}
	return errors.Join(append(faults, err)...)
}

// inspectNodes prints a line for each node. One that does not answer has a line too.
func (o *operator) inspectNodes(ctx context.Context) error {
	t := tabwriter.NewWriter(o.env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tSTATE\tUP\tLOAD\tSESSIONS\tAWAY\tACTORS\tOBJECTS\tZONE\tVERSION\tGATE")
	line := func(admin string, n *zdiscovery.Node) {
		var s znode.NodeStatus
		if err := adminport.Fetch(ctx, admin, http.MethodGet, "/node", &s); err != nil {
			fmt.Fprintf(t, "%s\t%s\t?\t?\t?\t?\t?\t?\t%s\t%s\t%s\n", n.Ref, n.State, n.Zone, n.Version, n.Gate)
			return
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d %%\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", s.Node, s.State, time.Since(s.Started).Round(time.Second), (s.Load+5)/10,
			s.Sessions, s.Suspended, s.Actors, s.Objects, s.Zone, s.Version, s.Gate)
	}
	if o.Only != "" {
		line(o.Only, &zdiscovery.Node{Ref: zmsg.NodeRef{ID: o.Only}, State: "does not answer"})
	}
	for i := range o.Nodes {
		line(o.Nodes[i].Admin, &o.Nodes[i])
	}
	return t.Flush()
}

// routeText says where an object lives.
func routeText(r *adminport.ObjectRoute) string {
	if r.Owner == "" {
		return fmt.Sprintf("nobody has it; route version %d", r.Version)
	}
	return fmt.Sprintf("%s has it; route version %d", r.Node(), r.Version)
}

func (o *operator) inspectObject(ctx context.Context, key string) error {
	k, err := o.key(ctx, key)
	if err != nil {
		return err
	}
	route, err := o.Find(ctx, k)
	if err == nil {
		_, err = fmt.Fprintf(o.env.Stdout, "%s: %s\n", key, routeText(&route))
	}
	return err
}

// key reads a key as people write it.
func (o *operator) key(ctx context.Context, text string) (k zmsg.Key, err error) {
	kind, id, _ := strings.Cut(text, "/")
	if zone, rest, ok := strings.Cut(id, "/"); ok {
		if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
			k.Zone, id = uint32(n), rest
		}
	}
	if k.ID = id; kind == "" || id == "" {
		return k, fmt.Errorf("the key %q: expected KIND/ID or KIND/ZONE/ID, such as rooms/lobby or 100/0/lobby", text)
	}
	if n, err := strconv.ParseUint(kind, 10, 32); err == nil {
		k.Type = uint32(n)
		return k, nil
	}
	kinds, err := o.kinds(ctx)
	if err != nil {
		return k, err
	}
	if typ, ok := kinds[kind]; ok {
		k.Type = typ
		return k, nil
	}
	names := slices.Sorted(maps.Keys(kinds))
	hint := ""
	if near, ok := settings.Nearest(kind, names); ok {
		hint = fmt.Sprintf(", did you mean %q?", near)
	}
	return k, fmt.Errorf("the key %q: no node hosts a kind %q%s; they host [%s]", text, kind, hint, strings.Join(names, " "))
}

// kinds returns the numbers of the kinds that nodes host.
func (o *operator) kinds(ctx context.Context) (map[string]uint32, error) {
	kinds := map[string]uint32{}
	if o.Only != "" {
		var s znode.NodeStatus
		err := adminport.Fetch(ctx, o.Only, http.MethodGet, "/node", &s)
		for _, k := range s.Kinds {
			kinds[k.Name] = k.Type
		}
		return kinds, err
	}
	for i := range o.Nodes {
		for _, k := range o.Nodes[i].Kinds {
			kinds[k.Name] = k.Type
		}
	}
	return kinds, nil
}

func (o *operator) inspectUser(ctx context.Context, user string) error {
	address, err := o.Any(ctx)
	if err != nil {
		return err
	}
	var s znode.UserStatus
	if err := adminport.Fetch(ctx, address, http.MethodGet, "/users/"+adminport.Segment(user), &s); err != nil {
		return err
	}
	if len(s.Sessions) == 0 {
		_, err := fmt.Fprintf(o.env.Stdout, "%s is not logged in\n", user)
		return err
	}
	for _, x := range s.Sessions {
		fmt.Fprintf(o.env.Stdout, "%s: session %d, generation %d, at the gate of %s\n", user, x.ID, x.Generation, zmsg.NodeRef{ID: x.Gate, Epoch: x.Epoch})
	}
	return nil
}

// moveCommand is `move`: it has an object go to another node.
func moveCommand() Command {
	return Command{
		Name: "move",
		Help: "move an object to another node, while it is being used",
		Run: func(ctx context.Context, env Env, args []string) error {
			flags, at, timeout := operation(env, "move", "move KEY NODE", keyText+"\nNODE is the id of the node that is to have it.")
			words, err := ParseWords(flags, env, args, "KEY and NODE", 2, 2)
			if err != nil {
				return err
			}
			return at.operate(ctx, env, *timeout, func(ctx context.Context, o *operator) error { return o.move(ctx, words[0], words[1]) })
		},
	}
}

func (o *operator) move(ctx context.Context, key, to string) error {
	k, err := o.key(ctx, key)
	if err != nil {
		return err
	}
	m, err := o.Move(ctx, k, to)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", key, err)
	case m.From == m.To:
		_, err = fmt.Fprintf(o.env.Stdout, "%s: %s already\n", key, routeText(&m.To))
	default:
		_, err = fmt.Fprintf(o.env.Stdout, "%s: %s gave it up; %s; took %s\n", key, m.From.Node(), routeText(&m.To), m.Took.Round(100*time.Microsecond))
	}
	return err
}

// kickCommand is `kick`: it closes the sessions of a user.
func kickCommand() Command {
	return Command{
		Name: "kick",
		Help: "close all sessions of a user, at whatever gates",
		Run: func(ctx context.Context, env Env, args []string) error {
			flags, at, timeout := operation(env, "kick", "kick USER", "The client reads code and text as the last thing, behind what was sent to it before.\nExit code 1 where the user is not logged in.")
			code := flags.Uint("code", 4000, "close code, 4000 to 4999: what it means is between the program and its clients")
			text := flags.String("text", "", "what the client's user is told")
			words, err := ParseWords(flags, env, args, "one USER", 1, 1)
			if err != nil {
				return err
			}
			if *code < 4000 || *code > 4999 {
				return Misuse(flags, "--code %d: expected 4000 to 4999, which are the application's", *code)
			}
			return at.operate(ctx, env, *timeout, func(ctx context.Context, o *operator) error {
				address, err := o.Any(ctx)
				if err != nil {
					return err
				}
				q := url.Values{"code": {strconv.FormatUint(uint64(*code), 10)}, "text": {*text}}
				var done znode.Kicked
				if err := adminport.Fetch(ctx, address, http.MethodPost, "/users/"+adminport.Segment(words[0])+"/kick?"+q.Encode(), &done); err != nil {
					if s, ok := errors.AsType[*adminport.StatusError](err); ok && s.Status == http.StatusNotFound {
						return fmt.Errorf("%s is not logged in", words[0])
					}
					return err
				}
				_, err = fmt.Fprintf(o.env.Stdout, "%s: %d sessions closed with code %d\n", words[0], done.Sessions, *code)
				return err
			})
		},
	}
}
