package znode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"zgame/zbus"
	"zgame/zbus/natsbus"
	"zgame/zdiscovery"
	"zgame/zdiscovery/etcddisc"
	"zgame/zmetrics"
	"zgame/zstore"
	"zgame/zstore/kvstore"
	"zgame/zstore/mongostore"
)

// Backends are the servers that a node stands on, by their contracts.
type Backends struct {
	Bus       zbus.Bus
	Discovery zdiscovery.Discovery
	Store     zstore.Store
}

// errKeptInNATS is all there is to say of the store kv while NATS fails the start.
var errKeptInNATS = errors.New("it is kept in NATS, see there")

// slowServer is how long a server is waited for in silence; a start that waits longer says for whom.
const slowServer = 1500 * time.Millisecond

// connect opens what b lacks by the settings, all at the same time, so that one start names every server that is not
// there. On an error it has closed what it opened.
func connect(ctx context.Context, s *Settings, b Backends, old *predecessor, reg zmetrics.Registerer, log *slog.Logger) (Backends, error) {
	var wg sync.WaitGroup
	errs := make([]error, 3)
	opened := Backends{}
	// waits says whom the start waits for, until what it returns is called.
	waits := func(part, address string) (stop func() bool) {
		return time.AfterFunc(slowServer, func() {
			log.Warn("a server is not there yet: the start waits for it", "server", part, "address", address, "timeout", s.Start.Timeout.String())
		}).Stop
	}
	kept := b.Store == nil && s.Store.Driver == "kv" // in NATS, which it waits for
	open := func(i int, part, address, without string, f func() error) {
		// Owned by this call, which waits for it; ends with f, which ctx bounds.
		wg.Go(func() {
			if i != 2 || !kept {
				defer waits(part, address)()
			}
			err := f()
			_, refused := errors.AsType[*natsbus.RefusedError](err)
			_, access := errors.AsType[*accessError](err)
			switch {
			case errors.Is(err, errKeptInNATS):
				errs[i] = fmt.Errorf("%s: %w", part, err)
			case refused, access: // which say what to look at
				errs[i] = fmt.Errorf("%s at %s cannot be used: %w", part, address, err)
			case err != nil:
				errs[i] = fmt.Errorf("%s at %s is not there: %w\n  start it, or %s", part, address, err, without)
			}
		})
	}
	const dev = "run the command dev, which has it inside the process (services has it for several processes, if the program has that command)"
	nats := make(chan struct{}) // closed when NATS was waited for
	var natsErr error           // set before that
	if b.Bus != nil {
		close(nats)
	} else {
		open(0, "NATS", redacted(s.NATS.URL), dev, func() (err error) {
			defer func() { natsErr = err; close(nats) }()
			bus, err := natsbus.New(natsConfig(s, log))
			if err != nil {
				return natsHint(err)
			}
			opened.Bus = bus
			return natsHint(bus.Ready(ctx))
		})
	}
	if b.Discovery == nil {
		open(1, "etcd", strings.Join(s.Etcd.Endpoints, ", "), dev, func() error {
			secure, err := etcdTLS(s)
			if err != nil {
				return err
			}
			disc, err := etcddisc.New(etcddisc.Config{
				Endpoints: s.Etcd.Endpoints, TLS: secure, Username: s.Etcd.User, Password: s.Etcd.Password, Prefix: "/" + s.Node.Cluster,
				TTL: s.Etcd.Lease, Gone: old.gone, Logger: log, Metrics: zmetrics.NewDiscovery(reg),
			})
			if err != nil {
				return err
			}
			opened.Discovery = disc
			probe, cancel := context.WithCancel(ctx)
			defer cancel()
			_, err = disc.Watch(probe) // reads the list once, or says why not
			return etcdHint(s, secure, err)
		})
	}
	if b.Store == nil {
		address, without := mongoHosts(s.Store.Mongo.URI), "set store.driver to kv, which needs only NATS with JetStream"
		if s.Store.Driver == "kv" {
			address, without = redacted(s.NATS.URL), "enable JetStream on that server, or "+dev
		}
		open(2, "the store ("+s.Store.Driver+")", address, without, func() error {
			if s.Store.Driver == "kv" {
				<-nats // its driver tries once
				if natsErr != nil {
					return errKeptInNATS
				}
				defer waits("the store (kv)", address)()
			}
			store, err := openStore(s, reg, log)
			if err != nil {
				return err
			}
			opened.Store = store
			return store.Ping(ctx)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopStep)
		defer cancel()
		if e := opened.close(closing); e != nil {
			log.Debug("closing what was opened", "err", e) // what failed is said by err already
		}
		return Backends{}, err
	}
	if opened.Bus != nil {
		b.Bus = opened.Bus
	}
	if opened.Discovery != nil {
		b.Discovery = opened.Discovery
	}
	if opened.Store != nil {
		b.Store = opened.Store
	}
	return b, nil
}

// Probe connects to the servers that the settings name, as a node does at its start, and leaves them again. The error names every one that
// cannot be used, and what to do.
func Probe(ctx context.Context, s Settings) error {
	ctx, cancel := context.WithTimeout(ctx, s.Start.Timeout)
	defer cancel()
	b, err := connect(ctx, &s, Backends{}, nil, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopStep)
	defer cancel()
	return b.close(closing)
}

// close closes what is there: who depends on others first.
func (b Backends) close(ctx context.Context) error {
	var errs []error
	if b.Store != nil {
		errs = append(errs, b.Store.Close(ctx))
	}
	if b.Discovery != nil {
		errs = append(errs, b.Discovery.Close(ctx))
	}
	if b.Bus != nil {
		errs = append(errs, b.Bus.Close(ctx))
	}
	return errors.Join(errs...)
}

func openStore(s *Settings, reg zmetrics.Registerer, log *slog.Logger) (zstore.Store, error) {
	if s.Store.Driver == "kv" {
		access, err := natsConfig(s, log).Access()
		if err != nil {
			return nil, natsHint(err)
		}
		return kvstore.New(kvstore.Config{
			URL: s.NATS.URL, Options: access,
			Bucket: s.Store.KV.Bucket, Replicas: s.Store.KV.Replicas, Timeout: storeTimeout(s), Logger: log, Metrics: zmetrics.NewStore(reg),
		})
	}
	return mongostore.New(mongostore.Config{
		URI: s.Store.Mongo.URI, Database: s.Store.Mongo.Database, Collection: s.Store.Mongo.Collection, Timeout: storeTimeout(s),
		Logger: log, Metrics: zmetrics.NewStore(reg),
	})
}

// redacted returns a list of URLs without their passwords, for messages.
func redacted(urls string) string {
	list := strings.Split(urls, ",")
	for i, u := range list {
		if p, err := url.Parse(strings.TrimSpace(u)); err == nil {
			list[i] = p.Redacted()
		}
	}
	return strings.Join(list, ", ")
}

// mongoHosts returns the hosts of a MongoDB URI: what stands in front of the @ is secret, what follows is of no use.
func mongoHosts(uri string) string {
	_, rest, _ := strings.Cut(uri, "://")
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		rest = rest[at+1:]
	}
	hosts, _, _ := strings.Cut(rest, "/")
	return hosts
}

// storeTimeout bounds a call to the store whose caller would wait longer, and so the start of its driver.
func storeTimeout(s *Settings) time.Duration { return min(5*time.Second, s.Start.Timeout) }
