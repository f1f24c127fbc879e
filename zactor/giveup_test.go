package zactor_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"zgame/zactor"
	"zgame/zactor/internal/testpb"
	"zgame/zactor/zactortest"
	"zgame/zmsg"
)

// Who asks gives up: what is done for him learns of it, however far it has been handed on.
func TestGivingUpTravels(t *testing.T) {
	t.Parallel()
	for name, front := range map[string]func(c *zactor.Context, back zactor.Ref, told chan<- error) (*testpb.Pong, error){
		"context": func(c *zactor.Context, _ zactor.Ref, told chan<- error) (*testpb.Pong, error) {
			<-c.Context().Done()
			told <- context.Cause(c.Context())
			return nil, nil
		},
		"Call": func(c *zactor.Context, back zactor.Ref, told chan<- error) (*testpb.Pong, error) {
			_, err := zactor.Call[testpb.Pong](c, back, &testpb.Ping{})
			told <- err
			return nil, err
		},
		"Call, with a context from before": func(c *zactor.Context, back zactor.Ref, told chan<- error) (*testpb.Pong, error) {
			ctx := c.Context()
			_, _ = zactor.Call[testpb.Pong](c, back, &testpb.Ping{N: 1}) // answered at once
			<-ctx.Done()
			told <- context.Cause(ctx)
			return nil, nil
		},
		"Ask": func(c *zactor.Context, back zactor.Ref, told chan<- error) (*testpb.Pong, error) {
			_, err := zactor.Ask[testpb.Pong](c.Context(), back, &testpb.Ping{})
			told <- err
			return nil, err
		},
		"Async": func(c *zactor.Context, _ zactor.Ref, told chan<- error) (*testpb.Pong, error) {
			c.Defer()
			return nil, errors.Join(zactor.ErrDeferred, zactor.Async(c, func(ctx context.Context) (int, error) {
				<-ctx.Done()
				return 0, context.Cause(ctx)
			}, func(_ *zactor.Context, _ int, err error) { told <- err }))
		},
	} {
		for _, opts := range [][]zactor.SpawnOption{nil, {zactor.Reentrant()}} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := zactortest.NewGroup(t, zactor.Config{AskTimeout: time.Hour})
					told, backTold := make(chan error, 1), make(chan error, 1)
					back := spawn(t, g, "back", factory(zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
						if p.GetN() == 0 {
							<-c.Context().Done()
							backTold <- context.Cause(c.Context())
						}
						return nil, nil
					})))
					ref := spawn(t, g, "front", factory(zactor.Handle(func(c *zactor.Context, _ *testpb.Ping) (*testpb.Pong, error) {
						return front(c, back, told)
					})), opts...)
					ctx, cancel := context.WithCancel(t.Context())
					asked := make(chan error, 1)
					go func() {
						_, err := zactor.Ask[testpb.Pong](ctx, ref, &testpb.Ping{})
						asked <- err
					}()
					synctest.Wait()
					began := time.Now()
					cancel()
					if err := <-asked; !errors.Is(err, zmsg.ErrCancelled) || zmsg.OutcomeOf(err) != zmsg.Unknown {
						t.Errorf("who asked got %v", err)
					}
					if err := <-told; !errors.Is(err, zmsg.ErrCancelled) {
						t.Errorf("the handler learned %v", err)
					}
					if name == "Call" || name == "Ask" {
						if err := <-backTold; !errors.Is(err, zmsg.ErrCancelled) {
							t.Errorf("the one it asked learned %v", err)
						}
					}
					if time.Since(began) != 0 {
						t.Errorf("it took %v", time.Since(began))
					}
				})
			})
		}
	}
}

// Giving up and answering at once, again and again: one outcome each, and no later request is touched.
func TestGivingUpRaces(t *testing.T) {
	t.Parallel()
	g := newGroup(t, nil)
	back := spawn(t, g, "back", factory(zactor.Handle(echo)))
	ref := spawn(t, g, "front", factory(zactor.Handle(func(c *zactor.Context, p *testpb.Ping) (*testpb.Pong, error) {
		ctx := c.Context()
		pong, err := zactor.Call[testpb.Pong](c, back, p)
		if err == nil && p.GetN()%3 == 0 {
			err = ctx.Err()
		}
		return pong, err
	})))
	var wg sync.WaitGroup
	for caller := range int64(8) {
		wg.Go(func() {
			for i := range int64(500) {
				ctx, cancel := context.WithCancel(context.Background())
				if i%2 == 0 {
					go cancel()
				}
				n := caller*1000 + i
				pong, err := zactor.Ask[testpb.Pong](ctx, ref, &testpb.Ping{N: n})
				switch {
				case err == nil && pong.GetN() != n:
					t.Errorf("%d got another's answer %d", n, pong.GetN())
				case err != nil && (i%2 != 0 || !errors.Is(err, zmsg.ErrCancelled)):
					t.Errorf("%d: got %v", n, err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
}
