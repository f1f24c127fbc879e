//go:build linux

package chaos

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"zgame/test/chaos/chaospb"
	"zgame/test/chaos/oracle"
	"zgame/zstore/kvstore"
	"zgame/zstore/kvstore/recordpb"
)

// The bucket keeps the last write of each list. So the store's server repeats each write into a stream of its own, with the number
// that it has in the bucket.
const journalStream, journalSubjects = "JOURNAL", "journal."

// openJournal makes the bucket and the journal of it, before there are nodes.
func (w *world) openJournal() {
	w.t.Helper()
	s, err := kvstore.New(kvstore.Config{URL: w.url("nats", storePort), Bucket: chaospb.Bucket})
	if err == nil {
		err = s.Close(context.Background())
	}
	if err == nil {
		err = w.jetstream(func(ctx context.Context, js jetstream.JetStream) error {
			_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: journalStream, Subjects: []string{journalSubjects + ">"}})
			if err != nil {
				return err
			}
			bucket, err := js.Stream(ctx, "KV_"+chaospb.Bucket)
			if err != nil {
				return err
			}
			c := bucket.CachedInfo().Config
			c.RePublish = &jetstream.RePublish{Source: ">", Destination: journalSubjects + ">"}
			_, err = js.UpdateStream(ctx, c)
			return err
		})
	}
	if err != nil {
		w.t.Fatal("the journal: ", err)
	}
}

func (w *world) jetstream(f func(ctx context.Context, js jetstream.JetStream) error) error {
	nc, err := nats.Connect(w.url("nats", storePort))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return f(ctx, js)
}

// journal returns all writes of the store so far, in its order.
func (w *world) journal() (writes []oracle.Write, err error) {
	err = w.jetstream(func(ctx context.Context, js jetstream.JetStream) error {
		s, err := js.Stream(ctx, journalStream)
		if err != nil {
			return err
		}
		c, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
		if err != nil {
			return err
		}
		all, err := c.Messages()
		if err != nil {
			return err
		}
		defer all.Stop()
		for left := s.CachedInfo().State.Msgs; left > 0; left-- {
			m, err := all.Next(jetstream.NextContext(ctx))
			if err != nil {
				return err
			}
			write, err := writeOf(m)
			if err != nil {
				return err
			}
			writes = append(writes, write)
		}
		return nil
	})
	return writes, err
}

func writeOf(m jetstream.Msg) (oracle.Write, error) {
	var pb recordpb.Record
	if err := proto.Unmarshal(m.Data(), &pb); err != nil {
		return oracle.Write{}, err
	}
	seq, err := strconv.ParseUint(m.Headers().Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return oracle.Write{}, err
	}
	w := oracle.Write{Seq: seq, Key: pb.GetKey().GetId(), Rev: pb.GetRev(), Version: pb.GetOwn().GetVersion()}
	if o := pb.GetOwn(); o.GetNode() != "" {
		w.Owner = fmt.Sprint(o.GetNode(), "@", o.GetEpoch())
	}
	return w, nil
}
