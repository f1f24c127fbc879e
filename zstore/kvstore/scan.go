package kvstore

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"zgame/zmsg"
	"zgame/zstore"
)

// scanBatch is the number of headers that Scan asks for at a time.
const scanBatch = 1000

// Scan implements zstore.Store. It reads the headers of every record in the bucket. Config.Timeout bounds each batch,
// not the whole.
func (s *Store) Scan(ctx context.Context, owner zmsg.NodeRef, yield func(zmsg.Key, zstore.Own) bool) (err error) {
	defer s.meter.End(zstore.OpScan, time.Now(), &err)
	if err := zstore.CheckOwner(owner); err != nil {
		return err
	}
	cons, err := s.openScan(ctx)
	if err != nil {
		return err
	}
	defer s.closeScan(ctx, cons)
	// A record that is saved meanwhile moves to the end of the stream and comes again.
	seen := make(map[zmsg.Key]struct{})
	received := uint64(0)
	for {
		n, more, err := s.scanSome(ctx, cons, func(k zmsg.Key, own zstore.Own) bool {
			if own.Node != owner {
				return true
			}
			if _, again := seen[k]; again {
				return true
			}
			seen[k] = struct{}{}
			return yield(k, own)
		})
		if err != nil || !more {
			return err
		}
		received += uint64(n)
		if n == scanBatch {
			continue
		}
		// A batch that is not full is the end, or the client's pull gave up on a slow server; the server knows.
		if done, err := s.scanned(ctx, cons, received); err != nil || done {
			return err
		}
	}
}

// scanned asks the server whether it has sent everything, and checks that it all arrived.
func (s *Store) scanned(ctx context.Context, cons jetstream.Consumer, received uint64) (bool, error) {
	call, end, err := s.begin(ctx, zstore.OpScan)
	if err != nil {
		return false, err
	}
	defer end()
	info, err := cons.Info(call)
	if err != nil {
		return false, notRead(ctx, call, zstore.OpScan, err)
	}
	if info.Delivered.Consumer != received {
		return false, fmt.Errorf("%w: scan got %d headers of %d that were sent", zstore.ErrUnavailable, received, info.Delivered.Consumer)
	}
	return info.NumPending == 0, nil
}

func (s *Store) openScan(ctx context.Context) (jetstream.Consumer, error) {
	call, end, err := s.begin(ctx, zstore.OpScan)
	if err != nil {
		return nil, err
	}
	defer end()
	cons, err := s.stream.CreateConsumer(call, jetstream.ConsumerConfig{
		DeliverPolicy:     jetstream.DeliverLastPerSubjectPolicy,
		FilterSubject:     s.prefix + ">",
		AckPolicy:         jetstream.AckNonePolicy,
		HeadersOnly:       true,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: 30 * time.Second, // the server forgets it where closeScan cannot reach it
	})
	if err != nil {
		return nil, notRead(ctx, call, zstore.OpScan, err)
	}
	return cons, nil
}

// closeScan removes the consumer, also where the caller's context is over.
func (s *Store) closeScan(ctx context.Context, cons jetstream.Consumer) {
	call, end, err := s.begin(context.WithoutCancel(ctx), zstore.OpScan)
	if err != nil {
		return
	}
	defer end()
	if err := s.stream.DeleteConsumer(call, cons.CachedInfo().Name); err != nil {
		s.log.Debug("removing the scan's consumer failed; it ends by itself", "err", err)
	}
}

// scanSome takes the next batch of what is there now, and says how much that was and whether to go on.
func (s *Store) scanSome(ctx context.Context, cons jetstream.Consumer, each func(zmsg.Key, zstore.Own) bool) (n int, more bool, err error) {
	call, end, err := s.begin(ctx, zstore.OpScan)
	if err != nil {
		return 0, false, err
	}
	defer end()
	batch, err := cons.FetchNoWait(scanBatch)
	if err != nil {
		return 0, false, notRead(ctx, call, zstore.OpScan, err)
	}
	more = true
	for {
		select {
		case msg, ok := <-batch.Messages():
			if !ok {
				if err := batch.Error(); err != nil {
					return n, false, notRead(ctx, call, zstore.OpScan, err)
				}
				return n, more, nil
			}
			n++
			k, isKey := keyOf(s.prefix, msg.Subject())
			own, isOwned := parseOwn(msg.Headers().Get(ownHeader))
			if more && isKey && isOwned && !each(k, own) {
				more = false // but the batch is taken to its end: its goroutine ends then
			}
		case <-call.Done():
			return n, false, notRead(ctx, call, zstore.OpScan, call.Err())
		}
	}
}
