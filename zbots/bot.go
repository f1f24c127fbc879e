package zbots

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zclient"
	"zgame/zmsg"
)

// Script is what a bot does.
type Script struct {
	Name string
	Help string // one line
	// Run is the life of one bot that is online, on a goroutine of its own. It returns when ctx ends, or when the bot has nothing more to do. An error
	// ends the bot and is counted, unless ctx has ended.
	Run func(ctx context.Context, b *Bot) error
}

// Bot is one client. Its methods are called on the goroutine of its script, but for Got, which push handlers call.
type Bot struct {
	*zclient.Client

	Index int        // from 0
	Count int        // how many bots there are
	Name  string     // its user's
	Rand  *rand.Rand // by the seed of the run and Index
	due   time.Time  // when the request was to be made that comes next; zero: when it is made
	t     *tally
	seen  *sequences
}

// Every calls do at once and then each interval, until ctx ends, which is no error, or do fails. It does not skip: where do takes longer, what comes next is
// late, and its latency counts from when it was to be made.
func (b *Bot) Every(ctx context.Context, interval time.Duration, do func(ctx context.Context) error) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for next := time.Now(); ; next = next.Add(interval) {
		timer.Reset(time.Until(next))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
		b.due = next
		err := do(ctx)
		b.due = time.Time{}
		if err != nil || ctx.Err() != nil {
			return b.unlessOver(ctx, err)
		}
	}
}

func (b *Bot) unlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the run is over, and what was cut by that is no fault
	}
	return err
}

// GoOn is nil for errors that a client lives with: those with a code, of which it may try again what was not done. It is counted already.
func (b *Bot) GoOn(err error) error {
	if err == nil || zmsg.CodeOf(err).Retry() || zmsg.OutcomeOf(err) == zmsg.Unknown {
		return nil
	}
	return err
}

// Call makes a request, and counts it as op: how long it took from when it was to be made (see Every), and how it ended. What the end of the run cuts does not
// count. Errors: those of zclient.Call.
func Call[R any, PR interface {
	*R
	proto.Message
}](ctx context.Context, b *Bot, op string, req proto.Message) (PR, error) {
	began := b.due
	b.due = time.Time{}
	if began.IsZero() {
		began = time.Now()
	}
	resp, err := zclient.Call[R, PR](ctx, b.Client, req)
	if ctx.Err() == nil {
		b.t.done(op, began, time.Now(), err)
	}
	return resp, err
}

// Got notes that number n of a stream of messages has come to this bot: streams count from wherever they are, without a hole. It may be called from any goroutine.
func (b *Bot) Got(stream string, n uint64) {
	b.t.came.Add(1)
	b.seen.got(stream, n)
}

// Expect says that numbers of a stream up to last are to come to this bot. It may be called from any goroutine.
func (b *Bot) Expect(stream string, last uint64) { b.seen.expect(stream, last) }
