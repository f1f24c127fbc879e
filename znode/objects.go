package znode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"zgame/internal/settings"
	"zgame/zdiscovery"
	"zgame/zmetrics"
	"zgame/zmsg"
	"zgame/zrouter"
	"zgame/zuser"
)

// RouterSettings are those of objects, for the node and, by the names of their kinds, for single kinds.
type RouterSettings struct {
	zrouter.Settings

	Hosts []string                    `yaml:"hosts" help:"kinds of objects that this node hosts; *: all of the program, and zuser, the directory of users"`
	Kinds map[string]zrouter.Settings `yaml:"kinds"`
}

// objects ties the node's zrouter.ManagerSet to the other parts, some of which are made before it.
type objects struct {
	n      *Node
	names  []string                          // of the program, by name, hosted here or not
	set    *zrouter.ManagerSet               // nil before wire has made it
	member atomic.Pointer[zdiscovery.Member] // the place in the cluster under whose epoch the set acts
}

// Objects returns the node's way to stateful actors: those that it hosts and those of the others. It is nil before App.Setup, where
// nobody can be called yet.
func (n *Node) Objects() *zrouter.ManagerSet { return n.objects.set }

// Users returns the node's way to the users of the cluster: who is logged in, pushes to all sessions of one, kicks. It is nil before App.Setup.
func (n *Node) Users() *zuser.Users { return n.users }

// wireObjects makes the set, with the kinds that the node hosts.
func (n *Node) wireObjects() error {
	s := &n.cfg.Settings.Logic.Router
	var kinds []zrouter.AnyKind
	if f := n.cfg.App.Objects; f != nil {
		kinds = f(n)
	}
	for _, k := range kinds {
		if k != nil {
			n.objects.names = append(n.objects.names, k.KindName())
		}
	}
	hosted, err := s.hosted(kinds, zuser.Kind(n.cfg.App.Presence...))
	if err != nil {
		return err
	}
	set := make(map[string]zrouter.Settings)
	for _, k := range hosted {
		if own, ok := s.Kinds[k.KindName()]; ok {
			set[k.KindName()] = own
		}
	}
	n.objects.member.Store(n.member.Load())
	n.objects.set, err = zrouter.New(zrouter.Config{
		Self: n.Self(), Group: n.group, Link: n.link, Members: n.objects, Gates: n.sessions, Store: n.backends.Store,
		Settings: s.Settings, KindSettings: set, CallTimeout: n.cfg.Settings.Actors.AskTimeout, Logger: n.log, Metrics: zmetrics.NewRouter(n.registry),
		Tracer: n.tracing.Tracer(), ResendWindow: n.cfg.Settings.resendWindow(),
	}, hosted...)
	n.users = zuser.New(n.objects.set)
	return err
}

// resendWindow is how long after a request has run its client may still come with it to another gate: it has waited for an answer, its connection was gone, its
// gate died, and it came back just in time. Twice that, as nodes have settings of their own.
func (s *Settings) resendWindow() time.Duration {
	return max(5*time.Minute, 2*(s.Gate.MaxRequestTimeout+2*s.Gate.ResumeWindow+s.Etcd.Lease))
}

// hosted returns the kinds that the node is to host, of those of the program and the framework's own. The error names what the settings say of kinds that the program has not.
func (s *RouterSettings) hosted(kinds []zrouter.AnyKind, own zrouter.AnyKind) ([]zrouter.AnyKind, error) {
	var faults []error
	var names []string
	for i, k := range kinds {
		if k == nil {
			return nil, fmt.Errorf("App.Objects returns nil as kind %d of %d: expected a zrouter.Kind", i+1, len(kinds))
		}
		names = append(names, k.KindName())
	}
	kinds, names = append(slices.Clone(kinds), own), append(names, zuser.Name)
	known := func(key, name string) {
		if !slices.Contains(names, name) {
			near := ""
			if best, ok := settings.Nearest(name, names); ok {
				near = fmt.Sprintf(", did you mean %s?", best)
			}
			faults = append(faults, fmt.Errorf("logic.router.%s: the program has no kind %q%s; expected one of [%s]", key, name, near, strings.Join(names, " ")))
		}
	}
	all := slices.Contains(s.Hosts, "*")
	for _, name := range s.Hosts {
		if name != "*" {
			known("hosts", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Kinds)) {
		known("kinds", name)
	}
	kinds = slices.DeleteFunc(kinds, func(k zrouter.AnyKind) bool { return !all && !slices.Contains(s.Hosts, k.KindName()) })
	return kinds, errors.Join(faults...)
}

// DeliverObject implements zactor.Objects.
func (o *objects) DeliverObject(k zmsg.Key, m *zmsg.Message) error { return o.set.DeliverObject(k, m) }

// Owns and Deliver implement zroute.Objects.
func (o *objects) Owns(id uint32) bool { return o.set.Owns(id) }

// Deliver takes a message to the object that it names.
func (o *objects) Deliver(m *zmsg.Message) error { return o.set.Deliver(m) }

// ServeUntil implements zrouter.Members: of the place under whose epoch the set acts.
func (o *objects) ServeUntil() time.Time { return (*o.member.Load()).ServeUntil() }

// noNodes is the list before the first.
var noNodes = &zdiscovery.Snapshot{}

// Nodes implements zrouter.Members.
func (o *objects) Nodes() *zdiscovery.Snapshot {
	if s := o.n.snapshot.Load().list(); s != nil {
		return s
	}
	return noNodes
}

// kinds is what the node's record says.
func (o *objects) kinds() []zdiscovery.Kind {
	if o.set == nil {
		return nil
	}
	return o.set.Kinds()
}

// hosts reports whether others may have sent requests for objects here.
func (o *objects) hosts() bool { return len(o.kinds()) > 0 }

// empty forgets the routes to a node that has no objects any more.
func (o *objects) empty(node zmsg.NodeRef) {
	if o.set != nil {
		o.set.ForgetOwner(node)
	}
}

// lapsed has the objects stop to serve: the lease is over, perhaps before its time.
func (o *objects) lapsed() {
	if o.set != nil {
		o.set.Lapse()
	}
}

// rejoined makes m's the epoch of the set. In this order: under the lost lease it does not serve, under the new one only with the new
// epoch.
func (o *objects) rejoined(m zdiscovery.Member) {
	o.set.Rejoin(m.Ref())
	o.member.Store(&m)
}

// close ends the set: what is in memory still is dropped, before another can take it over.
func (o *objects) close(ctx context.Context) error {
	if o.set == nil {
		return nil
	}
	_, err := o.set.Close(ctx)
	return err
}

// ready says why objects do not serve, where there are such.
func (o *objects) ready() error {
	if o.set != nil && len(o.set.Kinds()) > 0 && !o.ServeUntil().After(time.Now()) {
		return errors.New("the node's lease is not valid: its objects do not serve")
	}
	return nil
}
