package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
)

// walOnce guards the write of etcd's package variable.
var walOnce sync.Once

// Etcd is a one-member etcd inside this process.
type Etcd struct {
	srv      *embed.Etcd
	endpoint string
	stop     sync.Once
}

// StartEtcd starts an etcd on loopback with its data under dir and waits until it answers. Port 0 takes a free one, as FreePort does.
func StartEtcd(dir string, port int) (*Etcd, error) { return StartEtcdOn("127.0.0.1", dir, port) }

// StartEtcdOn is StartEtcd for a server that listens on another address of the machine: for tests with several networks.
func StartEtcdOn(host, dir string, port int) (*Etcd, error) {
	if dir == "" {
		return nil, errors.New("embedded: etcd needs a data directory")
	}
	return onPort(port, func(port int) (*Etcd, error) { return startEtcd(host, dir, port) })
}

func startEtcd(host, dir string, port int) (*Etcd, error) {
	peer := url.URL{Scheme: "http", Host: "127.0.0.1:0"} // nobody else joins; etcd needs one all the same
	cfg := etcdConfig("zgame", dir, url.URL{Scheme: "http", Host: net.JoinHostPort(host, strconv.Itoa(port))}, peer)
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	srv, err := embed.StartEtcd(cfg)
	if err == nil {
		if err = etcdReady(srv); err != nil {
			srv.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("embedded: etcd on port %d, data %s: %w", port, dir, err)
	}
	return &Etcd{srv: srv, endpoint: srv.Clients[0].Addr().String()}, nil
}

// StartEtcdCluster starts an etcd of n members on free ports of loopback, with their data under dir, and waits until they answer: for
// tests of what happens when members go. change, if not nil, may change their settings.
func StartEtcdCluster(dir string, n int, change func(*embed.Config)) ([]*Etcd, error) {
	free, err := freeURLs(2 * n)
	if err != nil {
		return nil, err
	}
	clients, peers := free[:n], free[n:]
	initial := make([]string, n)
	for k, p := range peers {
		initial[k] = fmt.Sprintf("zgame%d=%s", k, p.String())
	}
	var members []*Etcd
	for k := range n {
		cfg := etcdConfig(fmt.Sprint("zgame", k), filepath.Join(dir, strconv.Itoa(k)), clients[k], peers[k])
		cfg.InitialCluster = strings.Join(initial, ",")
		cfg.TickMs, cfg.ElectionMs = 50, 500 // they hear of each other over sockets
		if change != nil {
			change(cfg)
		}
		srv, startErr := embed.StartEtcd(cfg)
		if startErr != nil {
			err = startErr
			break
		}
		members = append(members, &Etcd{srv: srv, endpoint: clients[k].Host})
	}
	for _, m := range members { // ready when most of them are there
		if err == nil {
			err = etcdReady(m.srv)
		}
	}
	if err != nil {
		for _, m := range members {
			m.Stop()
		}
		return nil, fmt.Errorf("embedded: etcd of %d members, data %s: %w", n, dir, err)
	}
	return members, nil
}

// freeURLs returns addresses on loopback that nobody listens on, and that no system gives to who asks for any.
func freeURLs(n int) (list []url.URL, err error) {
	for range n {
		port, err := FreePort()
		if err != nil {
			return nil, err
		}
		list = append(list, url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))})
	}
	return list, nil
}

func etcdConfig(name, dir string, client, peer url.URL) *embed.Config {
	walOnce.Do(func() { wal.SegmentSizeBytes = 1 << 20 })
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = name, dir
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.UnsafeNoFsync = true
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.EnableGRPCGateway = false
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	return cfg
}

// etcdReady waits until the server answers.
func etcdReady(srv *embed.Etcd) (err error) {
	ready := time.NewTimer(readyWithin)
	defer ready.Stop()
	select {
	case <-srv.Server.ReadyNotify():
		return nil
	case err = <-srv.Err():
	case <-srv.Server.StopNotify():
		err = errors.New("stopped while starting")
	case <-ready.C:
		err = errors.New("not ready within " + readyWithin.String())
	}
	return err
}

// Leads reports whether this member leads the others.
func (e *Etcd) Leads() bool { return e.srv.Server.Leader() == e.srv.Server.MemberID() }

// Endpoint is where clients connect, 127.0.0.1:port.
func (e *Etcd) Endpoint() string { return e.endpoint }

// Stop ends the server and waits for its end. It may be called more than once.
func (e *Etcd) Stop() { e.stop.Do(e.srv.Close) }

// DeletePrefix deletes every key under prefix: what processes that are known to be dead have left behind.
func (e *Etcd) DeletePrefix(prefix string) error {
	ctx, cancel := context.WithTimeout(context.Background(), readyWithin)
	defer cancel()
	end := []byte(prefix)
	end[len(end)-1]++ // the first key behind all that begin with prefix
	if _, err := e.srv.Server.DeleteRange(ctx, &etcdserverpb.DeleteRangeRequest{Key: []byte(prefix), RangeEnd: end}); err != nil {
		return fmt.Errorf("embedded: etcd: delete keys under %s: %w", prefix, err)
	}
	return nil
}
