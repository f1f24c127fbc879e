package zbots

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"zgame/zclient"
)

// Config says who plays what, and where.
type Config struct {
	URLs   []string // of gates
	Script Script
	Bots   int           // how many; at least 1
	Ramp   time.Duration // how long it takes until all have begun, evenly
	Time   time.Duration // how long they play, from when the first begins; more than Ramp
	// Settle is how long a bot that has nothing more to do waits for numbered messages that are still to come. Defaults to 5 s.
	Settle time.Duration
	Seed   uint64
	// Token is what bot i shows at login. Defaults to its name, which is what gates in development take.
	Token func(i int, name string) string
	// Name is the user of bot i. Defaults to bot-1, bot-2 and so on.
	Name func(i int) string
	// Client, if set, changes how bots connect.
	Client func(c *zclient.Config)
	// Progress, if set, is told once a second, on a goroutine of its own.
	Progress func(r *Report)
}

func (c *Config) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("zbots: "+format, args...)) }
	if len(c.URLs) == 0 {
		fault("Config.URLs is empty: expected the URL of a gate, such as ws://localhost:7000/ws")
	}
	if c.Script.Run == nil {
		fault("Config.Script has no Run")
	}
	if c.Bots < 1 {
		fault("Config.Bots is %d: expected at least 1", c.Bots)
	}
	if c.Ramp < 0 || c.Time <= c.Ramp {
		fault("Config.Time is %v and Ramp %v: expected Ramp below Time, for all to have begun", c.Time, c.Ramp)
	}
	return errors.Join(faults...)
}

// Run has the bots play until Config.Time is over, all have ended, or ctx ends, and says what came of it.
// Errors: what is wrong with the configuration; no bot came online, with the reason of one.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Name == nil {
		cfg.Name = func(i int) string { return fmt.Sprintf("bot-%d", i+1) }
	}
	if cfg.Token == nil {
		cfg.Token = func(_ int, name string) string { return name }
	}
	if cfg.Settle == 0 {
		cfg.Settle = 5 * time.Second
	}
	r := &runner{cfg: cfg, tally: newTally()}
	play, cancel := context.WithTimeout(ctx, cfg.Time)
	defer cancel()
	ticking, stopTicks := context.WithCancel(ctx)
	var ticks, bots sync.WaitGroup
	ticks.Go(func() { r.tick(ticking) }) // ends with stopTicks
	for i := range cfg.Bots {
		bots.Go(func() { r.bot(ctx, play, i) }) // ends with play, and Settle behind it
	}
	bots.Wait()
	stopTicks()
	ticks.Wait()
	rep := r.report()
	if rep.Online == 0 {
		return rep, fmt.Errorf("none of %d bots came online: %w", cfg.Bots, errors.Join(r.dialErr))
	}
	return rep, nil
}

// runner is one run.
type runner struct {
	cfg   Config
	tally *tally

	mu      sync.Mutex
	all     []*Bot // that have come online
	dialErr error  // why one has not
}

// bot is the life of one bot. It plays while play lasts, and its connection goes on while there is still something to come.
func (r *runner) bot(ctx, play context.Context, i int) {
	cfg := &r.cfg
	begin := time.NewTimer(cfg.Ramp * time.Duration(i) / time.Duration(cfg.Bots))
	defer begin.Stop()
	select {
	case <-begin.C:
	case <-play.Done():
		return
	}
	name := cfg.Name(i)
	c := zclient.Config{URLs: cfg.URLs, Token: cfg.Token(i, name), Name: "zbots"}
	if cfg.Client != nil {
		cfg.Client(&c)
	}
	began := time.Now()
	client, err := zclient.Dial(play, c)
	if err != nil {
		if play.Err() == nil {
			r.tally.done("login", began, time.Now(), err)
			r.mu.Lock()
			r.dialErr = err
			r.mu.Unlock()
		}
		return
	}
	r.tally.done("login", began, time.Now(), nil)
	defer func() { _ = client.Close() }() // it may have been closed by the gate
	defer r.tally.watch(client)()
	b := &Bot{Client: client, Index: i, Count: cfg.Bots, Name: name, Rand: rand.New(rand.NewPCG(cfg.Seed, uint64(i))), t: r.tally, seen: &sequences{}}
	r.mu.Lock()
	r.all = append(r.all, b)
	r.mu.Unlock()
	if err := b.unlessOver(play, cfg.Script.Run(play, b)); err != nil {
		r.tally.failed(err)
	}
	<-play.Done() // others may be speaking still
	r.settle(ctx, b)
}

// settle waits for what a bot is still to get.
func (r *runner) settle(ctx context.Context, b *Bot) {
	const look = 20 * time.Millisecond
	tick := time.NewTicker(look)
	defer tick.Stop()
	for until := time.Now().Add(r.cfg.Settle); b.seen.missing() > 0 && time.Now().Before(until); {
		select {
		case <-tick.C:
		case <-b.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

func (r *runner) tick(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			r.tally.tick(now)
			if r.cfg.Progress != nil {
				r.cfg.Progress(r.report())
			}
		case <-ctx.Done():
			return
		}
	}
}

func (r *runner) report() *Report {
	took := time.Since(r.tally.began)
	rep := &Report{
		Script: r.cfg.Script.Name, Bots: r.cfg.Bots, Began: r.tally.began, Took: took, Operations: r.tally.operations(took),
		Lost: r.tally.lost.Load(), Resumed: r.tally.resumed.Load(), Anew: r.tally.anew.Load(), Gaps: r.tally.gaps.Load(),
		Came: r.tally.came.Load(), Seconds: r.tally.series(), Ended: map[string]int{}, Words: map[string]string{},
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	rep.Online = len(r.all)
	for _, b := range r.all {
		n := b.seen.sum()
		rep.Numbered.Lost += n.Lost
		rep.Numbered.Doubled += n.Doubled
		rep.Numbered.Swapped += n.Swapped
	}
	r.tally.mu.Lock()
	defer r.tally.mu.Unlock()
	maps.Copy(rep.Ended, r.tally.errs)
	maps.Copy(rep.Words, r.tally.words)
	return rep
}
