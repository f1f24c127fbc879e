package znode

import (
	"context"
	"errors"
	"fmt"
	"time"

	"zgame/zdiscovery"
)

// rejoinPause is between two tries to join again.
const rejoinPause = 250 * time.Millisecond

// stay keeps the node in the cluster: where its membership is lost it joins again, with a new epoch, while its actors live on.
// It ends with ctx, or when another process has the node's id.
func (n *Node) stay(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.currentMember().Lost():
		}
		if err := n.rejoin(ctx); err != nil {
			if ctx.Err() == nil {
				n.out <- err
			}
			return
		}
	}
}

// rejoin makes the node a member again. Everything that serves under the lost epoch has been told by its Member.Lost. An
// error is for good.
func (n *Node) rejoin(ctx context.Context) error {
	old := n.Self()
	n.log.Warn("the node is out of the cluster: its lease ended (etcd was away for longer, or the process stood still); it joins again",
		"lost", n.Self().String())
	n.objects.lapsed()
	limit := n.cfg.Settings.Start.Timeout + n.cfg.Settings.Etcd.Lease*5/4 // as at the start
	for {
		m, err := n.joinAgain(ctx, limit)
		switch {
		case errors.Is(err, zdiscovery.ErrTaken), errors.Is(err, zdiscovery.ErrClosed):
			return fmt.Errorf("znode: node %s is out of the cluster, and cannot join again: %w", n.Self(), err)
		case ctx.Err() != nil:
			if err == nil {
				leave(ctx, m)
			}
			return ctx.Err()
		case err == nil && m.Ref().Epoch <= old.Epoch:
			leave(ctx, m)
			return fmt.Errorf("znode: node %s has joined again under epoch %d, which is not above its own: etcd has lost its data, or has an older copy of it; "+
				"epochs must rise, for they fence: restore etcd with a revision above all it has given (etcdutl snapshot restore --bump-revision), then start the nodes again",
				old, m.Ref().Epoch)
		case err == nil && n.adopt(ctx, m):
			n.metrics.Rejoins.Inc()
			n.log.Info("the node is in the cluster again", "self", m.Ref().String())
			return nil
		case err != nil:
			n.log.Warn("the node is not in the cluster yet", "err", err)
		}
		if !pause(ctx, rejoinPause) {
			return ctx.Err()
		}
	}
}

func (n *Node) joinAgain(ctx context.Context, limit time.Duration) (zdiscovery.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return n.backends.Discovery.Join(ctx, n.record(zdiscovery.Starting))
}

// adopt makes m the node's place: its parts take the new epoch, the bus first, and then the others hear of it. It reports
// false where m was lost, or ctx ended, before the bus took the new name.
func (n *Node) adopt(ctx context.Context, m zdiscovery.Member) bool {
	for {
		err := n.link.Rejoin(ctx, m.Ref())
		if err == nil {
			break
		}
		n.log.Warn("the bus does not take the node's new epoch yet", "err", err)
		select {
		case <-m.Lost():
			return false
		case <-time.After(rejoinPause):
		case <-ctx.Done():
			leave(ctx, m)
			return false
		}
	}
	n.self.Set(m.Ref())
	n.member.Store(&m)
	n.group.Rejoin(m.Ref())
	n.objects.rejoined(m)
	n.sessions.rejoined()
	if n.gate != nil {
		n.gate.Rejoin(m.Ref())
	}
	if err := n.announce(ctx); err != nil {
		n.log.Warn("the node's record is not announced yet", "err", err)
		n.touch()
	}
	return true
}

// leave gives up a place that the node has not taken. Where that fails its lease ends by itself.
func leave(ctx context.Context, m zdiscovery.Member) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopStep)
	defer cancel()
	_ = m.Leave(ctx)
}

// pause reports false when ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
