package embedded

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
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

// StartEtcd starts an etcd on loopback with its data under dir and waits until it answers. Port 0 takes a free one.
func StartEtcd(dir string, port int) (*Etcd, error) {
	if dir == "" {
		return nil, errors.New("embedded: etcd needs a data directory")
	}
	walOnce.Do(func() { wal.SegmentSizeBytes = 1 << 20 })

	client := url.URL{Scheme: "http", Host: "127.0.0.1:" + strconv.Itoa(port)}
	peer := url.URL{Scheme: "http", Host: "127.0.0.1:0"} // nobody else joins; etcd needs one all the same
	cfg := embed.NewConfig()
	cfg.Name = "zgame"
	cfg.Dir = dir
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.UnsafeNoFsync = true
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.EnableGRPCGateway = false
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())

	srv, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("embedded: etcd on port %d, data %s: %w", port, dir, err)
	}
	ready := time.NewTimer(readyWithin)
	defer ready.Stop()
	select {
	case <-srv.Server.ReadyNotify():
	case err = <-srv.Err():
	case <-srv.Server.StopNotify():
		err = errors.New("stopped while starting")
	case <-ready.C:
		err = errors.New("not ready within " + readyWithin.String())
	}
	if err != nil {
		srv.Close()
		return nil, fmt.Errorf("embedded: etcd on port %d, data %s: %w", port, dir, err)
	}
	return &Etcd{srv: srv, endpoint: srv.Clients[0].Addr().String()}, nil
}

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
