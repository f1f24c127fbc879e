package kvstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"zgame/zmetrics"
	"zgame/zmsg"
	"zgame/zstore"
)

// DefaultOverhead is what of the server's max_payload is not for the state: key, owner, remembered requests, headers,
// and fields of newer versions.
const DefaultOverhead = zstore.MaxDone + 8<<10

// errLost is the cause of calls that end because the connection is lost.
var errLost = errors.New("kvstore: connection lost")

// Store is a zstore.Store on JetStream. Make it with New.
type Store struct {
	zstore.Writer // the writing methods, on write

	cfg    Config
	log    *slog.Logger
	meter  *zstore.Meter
	hit    zmetrics.Counter
	miss   zmetrics.Counter
	stale  zmetrics.Counter
	nc     *nats.Conn
	owned  bool // nc is ours to close
	js     jetstream.JetStream
	stream jetstream.Stream
	prefix string // of subjects: "$KV.<bucket>."
	tokens *tokens

	// The life of the connection: cancelled by the watcher when it is lost, and replaced when it is back. Calls look at it and not at
	// nc, which answers nobody while it waits for a server that takes a connection and then is silent.
	life   atomic.Pointer[life]
	closed atomic.Bool

	once   sync.Once
	status chan nats.Status
	end    chan struct{} // closed by Close
	done   chan struct{} // closed by the watcher
}

var _ zstore.Store = (*Store)(nil)

type life struct {
	ctx    context.Context //nolint:containedctx // it is the connection's life, which calls are bound to
	cancel context.CancelCauseFunc
}

func newLife() *life {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &life{ctx, cancel}
}

// New connects, makes the bucket where it is not there, and checks that it is as the store needs it.
// Errors: ErrUnavailable where the server or its JetStream does not answer within Config.Timeout.
func New(cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Store{
		cfg:    cfg,
		log:    cfg.Logger,
		meter:  zstore.NewMeter(cfg.Metrics, cfg.Logger),
		hit:    cfg.Metrics.Tokens.With("hit"),
		miss:   cfg.Metrics.Tokens.With("miss"),
		stale:  cfg.Metrics.Tokens.With("stale"),
		nc:     cfg.Conn,
		prefix: "$KV." + cfg.Bucket + ".",
		tokens: newTokens(cfg.Remember),
		end:    make(chan struct{}),
		done:   make(chan struct{}),
	}
	s.Writer = s.write
	if s.nc == nil {
		nc, err := nats.Connect(cfg.URL, options(cfg)...)
		if err != nil { // the URL is not said: it may hold a password
			return nil, fmt.Errorf("%w: NATS: %w", zstore.ErrUnavailable, err)
		}
		s.nc, s.owned = nc, true
	}
	if err := s.open(); err != nil {
		if s.owned {
			s.nc.Close()
		}
		return nil, err
	}
	s.life.Store(newLife())
	s.status = s.nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.CLOSED)
	if !s.nc.IsConnected() { // lost since, perhaps before the line above
		s.life.Load().cancel(errLost)
	}
	go s.watch() // ends with Close, which waits for it
	return s, nil
}

// options of the driver's own connection.
func options(cfg Config) []nats.Option {
	o := []nats.Option{
		nats.Name("zgame store"), nats.Timeout(cfg.Timeout), nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectBufSize(-1), nats.PingInterval(5 * time.Second), nats.MaxPingsOutstanding(2),
		// Without one nats.go prints on the standard error.
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { cfg.Logger.Warn("store connection", "err", err) }),
	}
	if cfg.User != "" {
		o = append(o, nats.UserInfo(cfg.User, cfg.Password))
	}
	if cfg.Creds != "" {
		o = append(o, nats.UserCredentials(cfg.Creds))
	}
	return append(o, cfg.Options...)
}

// open finds or makes the stream.
func (s *Store) open() error {
	if free := s.nc.MaxPayload() - DefaultOverhead; free < 512<<10 {
		return fmt.Errorf("kvstore: max_payload of the server is %d bytes, expected at least %d", s.nc.MaxPayload(), 512<<10+DefaultOverhead)
	}
	js, err := jetstream.New(s.nc, jetstream.WithDefaultTimeout(s.cfg.Timeout))
	if err != nil {
		return fmt.Errorf("kvstore: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Timeout)
	defer cancel()
	s.js = js
	s.stream, err = js.Stream(ctx, "KV_"+s.cfg.Bucket)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s.stream, err = js.CreateStream(ctx, streamConfig(s.cfg))
	}
	if err == nil {
		if c, fits := repaired(s.stream.CachedInfo().Config, s.cfg.Replicas); !fits {
			s.log.Info("changing the bucket's stream to what the store needs", "stream", c.Name)
			s.stream, err = js.UpdateStream(ctx, c)
		}
	}
	if err != nil {
		return fmt.Errorf("%w: JetStream bucket %s at %s: %w", zstore.ErrUnavailable, s.cfg.Bucket, s.nc.ConnectedUrlRedacted(), err)
	}
	return nil
}

func streamConfig(cfg Config) jetstream.StreamConfig {
	storage := jetstream.FileStorage
	if cfg.Memory {
		storage = jetstream.MemoryStorage
	}
	return jetstream.StreamConfig{
		Name:              "KV_" + cfg.Bucket,
		Description:       "zgame objects",
		Subjects:          []string{"$KV." + cfg.Bucket + ".>"},
		Storage:           storage,
		Replicas:          max(cfg.Replicas, 1),
		MaxMsgsPerSubject: 1,
		Discard:           jetstream.DiscardNew, // a full bucket refuses writes rather than forget records
		DenyDelete:        true,
		AllowRollup:       true, // what the clients' KV has too
		AllowDirect:       false,
		AllowMsgTTL:       true,
	}
}

// repaired returns c as the store needs it, and whether it was so already.
func repaired(c jetstream.StreamConfig, replicas int) (jetstream.StreamConfig, bool) {
	fits := !c.AllowDirect && !c.MirrorDirect && c.MaxMsgsPerSubject == 1 && c.AllowMsgTTL && c.Discard == jetstream.DiscardNew &&
		(replicas == 0 || c.Replicas == replicas)
	c.AllowDirect, c.MirrorDirect, c.MaxMsgsPerSubject, c.AllowMsgTTL, c.Discard = false, false, 1, true, jetstream.DiscardNew
	if replicas != 0 {
		c.Replicas = replicas
	}
	return c, fits
}

// watch ends the calls under way when the connection is lost, and lets new ones begin when it is back.
func (s *Store) watch() {
	defer close(s.done)
	for {
		select {
		case status, ok := <-s.status:
			switch {
			case !ok: // the client closes it when the connection is closed for good
				s.life.Load().cancel(errLost)
				return
			case status == nats.CONNECTED:
				s.life.Swap(newLife()).cancel(errLost)
			default:
				s.life.Load().cancel(errLost)
			}
		case <-s.end:
			s.life.Load().cancel(errLost)
			return
		}
	}
}

// begin returns the context of one call: the caller's, the timeout, and the connection's life in one.
func (s *Store) begin(ctx context.Context, op zstore.Op) (context.Context, func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("kvstore: %s: %w", op, err)
	}
	life := s.life.Load()
	if s.closed.Load() {
		return nil, nil, fmt.Errorf("%w: closed", zstore.ErrUnavailable)
	}
	if life.ctx.Err() != nil {
		return nil, nil, fmt.Errorf("%w: no connection to NATS", zstore.ErrUnavailable)
	}
	timed, cancelTime := context.WithTimeout(ctx, s.cfg.Timeout)
	call, cancel := context.WithCancelCause(timed)
	stop := context.AfterFunc(life.ctx, func() { cancel(errLost) })
	return call, func() { stop(); cancel(nil); cancelTime() }, nil
}

// Read implements zstore.Store.
func (s *Store) Read(ctx context.Context, k zmsg.Key) (_ zstore.Record, err error) {
	defer s.meter.End(zstore.OpRead, time.Now(), &err)
	if err := zstore.CheckKey(k); err != nil {
		return zstore.Record{}, err
	}
	call, end, err := s.begin(ctx, zstore.OpRead)
	if err != nil {
		return zstore.Record{}, err
	}
	defer end()
	h, err := s.get(call, k, subject(s.prefix, k))
	switch {
	case err != nil:
		return zstore.Record{}, notRead(ctx, call, zstore.OpRead, err)
	case !h.found():
		return zstore.Record{Key: k}, fmt.Errorf("%w: %s", zstore.ErrNotFound, k)
	case h.rec.Deleted:
		return h.rec, fmt.Errorf("%w: %s is deleted", zstore.ErrNotFound, k)
	}
	return h.rec, nil
}

// get reads a document from the stream's leader and remembers its head. No document is a head that is not found.
func (s *Store) get(ctx context.Context, k zmsg.Key, subj string) (head, error) {
	msg, err := s.stream.GetLastMsgForSubject(ctx, subj)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		s.tokens.drop(k)
		return head{rec: zstore.Record{Key: k}}, nil
	}
	if err != nil {
		return head{}, err
	}
	if op := msg.Header.Get("KV-Operation"); op == "DEL" || op == "PURGE" {
		return head{}, fmt.Errorf("%w: %s was removed by a KV client", errForeign, k)
	}
	h, err := decode(k, msg.Sequence, msg.Data)
	if err != nil {
		return head{}, err
	}
	s.tokens.put(h)
	return h, nil
}

// notRead says why a call that wrote nothing failed: the caller's context, a document that is not ours, or the server.
func notRead(ctx, call context.Context, op zstore.Op, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("kvstore: %s: %w", op, ctx.Err())
	}
	if errors.Is(err, errForeign) {
		return err
	}
	if cause := context.Cause(call); cause != nil {
		err = cause
	}
	return fmt.Errorf("%w: %s: %w", zstore.ErrUnavailable, op, err)
}

// Ping implements zstore.Store: it asks for the stream's state, which its leader answers.
func (s *Store) Ping(ctx context.Context) (err error) {
	defer s.meter.End(zstore.OpPing, time.Now(), &err)
	call, end, err := s.begin(ctx, zstore.OpPing)
	if err != nil {
		return err
	}
	defer end()
	if _, err := s.js.Stream(call, "KV_"+s.cfg.Bucket); err != nil {
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			err = fmt.Errorf("the bucket %s is gone; restore it, or start a node again, which makes an empty one for all: %w", s.cfg.Bucket, err)
		}
		return notRead(ctx, call, zstore.OpPing, err)
	}
	return nil
}

// MaxState implements zstore.Store: the connected server's max_payload less DefaultOverhead.
func (s *Store) MaxState() int { return int(s.nc.MaxPayload() - DefaultOverhead) }

// Close implements zstore.Store. Calls under way end, writes among them with an unknown outcome.
func (s *Store) Close(context.Context) error {
	s.once.Do(func() {
		s.closed.Store(true)
		close(s.end)
		<-s.done
		s.nc.RemoveStatusListener(s.status)
		if s.owned {
			s.nc.Close()
		}
	})
	return nil
}
