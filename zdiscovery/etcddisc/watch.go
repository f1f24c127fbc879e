package etcddisc

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"zgame/zdiscovery"
	"zgame/zmsg"
)

// Pauses between attempts at what failed: doubled from the first to the last.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

// pauses waits between attempts; the zero value begins with the first pause.
type pauses struct{ last time.Duration }

// reset is called after a success.
func (p *pauses) reset() { p.last = 0 }

// wait reports false when ctx ends first.
func (p *pauses) wait(ctx context.Context) bool {
	p.last = min(max(2*p.last, firstPause), lastPause)
	timer := time.NewTimer(p.last)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// nodes is the list as a watch keeps it.
type nodes struct {
	revision   int64
	byID       map[string]zdiscovery.Node
	unreadable map[string]zmsg.NodeRef
}

// snapshot makes the list that readers share.
func (l *nodes) snapshot() *zdiscovery.Snapshot {
	s := &zdiscovery.Snapshot{Revision: l.revision, Nodes: slices.Collect(maps.Values(l.byID))}
	slices.SortFunc(s.Nodes, func(a, b zdiscovery.Node) int { return strings.Compare(a.Ref.ID, b.Ref.ID) })
	for _, ref := range l.unreadable {
		s.Unreadable = append(s.Unreadable, ref)
	}
	return s
}

// put notes what a key says.
func (l *nodes) put(d *Disc, kv *mvccpb.KeyValue) {
	n, err := d.decode(kv)
	delete(l.unreadable, n.Ref.ID)
	if err == nil {
		l.byID[n.Ref.ID] = n
		return
	}
	d.unreadable(err)
	delete(l.byID, n.Ref.ID)
	if zdiscovery.CheckID(n.Ref.ID) == nil { // else no node has joined by it
		l.unreadable[n.Ref.ID] = n.Ref
	}
}

// list reads all nodes.
func (d *Disc) list(ctx context.Context, reason string) (*nodes, error) {
	d.cfg.Metrics.Relists.With(reason).Inc()
	var r *clientv3.GetResponse
	err := d.call(ctx, "list of nodes", d.cfg.RequestTimeout, func(ctx context.Context) (err error) {
		r, err = d.client.Get(ctx, d.prefix, clientv3.WithPrefix())
		return err
	})
	if err != nil {
		return nil, err
	}
	l := &nodes{revision: r.Header.Revision, byID: make(map[string]zdiscovery.Node, len(r.Kvs)), unreadable: make(map[string]zmsg.NodeRef)}
	for _, kv := range r.Kvs {
		l.put(d, kv)
	}
	return l, nil
}

// Watch implements zdiscovery.Discovery.
func (d *Disc) Watch(ctx context.Context) (<-chan *zdiscovery.Snapshot, error) {
	l, err := d.list(ctx, "first")
	if err != nil {
		return nil, err
	}
	ch := zdiscovery.NewLatest()
	w := &watcher{disc: d, list: l, ch: ch}
	w.tell()
	if !d.begin(func() { w.run(ctx) }) { // the goroutine ends with ctx or Close, which waits for it
		return nil, zdiscovery.ErrClosed
	}
	return ch, nil
}

// watcher keeps one list up to date.
type watcher struct {
	disc *Disc
	list *nodes
	ch   zdiscovery.Latest
	told *zdiscovery.Snapshot
}

// tell sends the list, if it is not the one that was sent last. One that lists the same nodes at a later revision is told too: who came
// and went meanwhile is gone.
func (w *watcher) tell() {
	s := w.list.snapshot()
	joined, left, changed := zdiscovery.Diff(w.told, s)
	same := w.told != nil && len(joined)+len(left)+len(changed) == 0
	if same && s.Revision == w.told.Revision {
		return
	}
	w.told = s
	w.disc.cfg.Metrics.Nodes.Set(float64(len(s.Nodes)))
	if !same {
		w.disc.cfg.Metrics.Changes.Inc()
	}
	w.ch.Put(s)
}

func (w *watcher) run(ctx context.Context) {
	defer close(w.ch)
	d := w.disc
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	var p pauses
	for {
		reason, lived := w.follow(ctx)
		if lived {
			p.reset()
		}
		for {
			if ctx.Err() != nil {
				return
			}
			l, err := d.list(ctx, reason)
			if err == nil {
				w.list = l
				w.tell()
				break
			}
			if !p.wait(ctx) {
				return
			}
		}
	}
}

// follow applies events to the list until the watch is of no use any more; it says why, and whether the watch had
// worked.
func (w *watcher) follow(ctx context.Context) (reason string, lived bool) {
	return w.disc.follow(ctx, w.disc.prefix, w.list.revision, func(r clientv3.WatchResponse) bool {
		w.apply(r)
		return true
	}, clientv3.WithPrefix())
}

// follow watches a key, or what opts say, from the revision at which it was read, until apply returns false or the watch is
// of no use any more. It says why that is, "" for apply, and whether the watch had worked.
func (d *Disc) follow(
	ctx context.Context, key string, revision int64, apply func(clientv3.WatchResponse) bool, opts ...clientv3.OpOption,
) (reason string, lived bool) {
	// RequireLeader: etcd tells when its member has lost the others.
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	// WithCreatedNotify: the answer that the watch is there is its first sign of life. From the revision of the reading, not
	// the one after it: etcd answers requests for a sign of life only once it has reached the revision where the watch
	// begins, which on a quiet cluster is never. What comes once more for that is known already.
	events := d.client.Watch(ctx, key, append(opts, clientv3.WithRev(revision), clientv3.WithCreatedNotify())...)
	beat := time.NewTicker(d.cfg.Heartbeat)
	defer beat.Stop()
	log := d.cfg.Logger.With("key", key)
	quiet := 0
	for {
		select {
		case r, ok := <-events:
			switch {
			case !ok:
				return "ended", lived
			case r.CompactRevision != 0:
				log.Info("watch was compacted away, reading anew", "revision", r.CompactRevision)
				return "compacted", lived
			case r.Err() != nil:
				log.Info("watch ended, reading anew", "err", r.Err())
				return "ended", lived
			}
			quiet, lived = 0, true
			d.setUp(true)
			if !apply(r) {
				return "", true
			}
		case <-beat.C:
			if quiet++; quiet > 2 {
				d.setUp(false)
				log.Info("watch gives no sign of life, reading anew")
				return "silent", lived
			}
			// Answered as an event without content. An error is a sign that the stream is not there; it shows by
			// silence, as everything else does. The call may wait for the stream, so it is bounded.
			ask, done := context.WithTimeout(ctx, d.cfg.Heartbeat)
			_ = d.client.RequestProgress(ask)
			done()
		}
	}
}

func (w *watcher) apply(r clientv3.WatchResponse) {
	if len(r.Events) == 0 {
		return
	}
	for _, e := range r.Events {
		w.list.revision = max(w.list.revision, e.Kv.ModRevision)
		id := strings.TrimPrefix(string(e.Kv.Key), w.disc.prefix)
		if e.Type == clientv3.EventTypeDelete {
			delete(w.list.byID, id)
			delete(w.list.unreadable, id)
			continue
		}
		w.list.put(w.disc, e.Kv)
	}
	w.tell()
}
