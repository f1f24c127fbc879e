package zclient

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
)

// Call makes a request and returns its response, which must be an R.
//
//	said, err := zclient.Call[chatpb.Said](ctx, c, &chatpb.Say{Room: "go", Text: "hello"})
func Call[R any, P interface {
	*R
	proto.Message
}](ctx context.Context, c *Client, req proto.Message) (*R, error) {
	resp := P(new(R))
	if err := c.Request(ctx, req, resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// Request sends req and waits for the response, which it reads into resp (nil: any response will do). ctx's deadline,
// or Config.RequestTimeout, travels with the request.
//
// While there is no connection, it waits for one, with up to Config.MaxWaiting others.
//
// Every error is a *zmsg.Error. Beside what the server answers: CodeUnavailable where there will be no connection any more
// (NotExecuted) or when its session is lost (Unknown if the request was written), CodeBusy when too many are in flight, wait to be
// written or wait for a connection (NotExecuted), CodeTimeout and CodeCancelled when ctx ends, CodeTooLarge and CodeBadRequest for what cannot be
// sent, CodeInternal for a response that is not a resp (Executed).
func (c *Client) Request(ctx context.Context, req, resp proto.Message) error {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	f, err := requestFrame(req)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return gaveUp(ctx, zmsg.NotExecuted)
	}
	l := &call{done: make(chan zmsg.Frame, 1)}
	cn, err := c.submit(ctx, &f, l)
	if err != nil {
		return err
	}
	select {
	case r := <-l.done:
		return responseOf(&r, resp)
	case <-ctx.Done():
	}
	cn.forget(f.Seq)
	select {
	case r := <-l.done: // it came just now
		return responseOf(&r, resp)
	default:
	}
	return gaveUp(ctx, l.abandon())
}

// submit queues a request for writing, and waits for a connection that takes it.
func (c *Client) submit(ctx context.Context, f *zmsg.Frame, l *call) (*conn, error) {
	waits := false
	defer func() {
		if waits {
			c.waiting.Add(-1)
		}
	}()
	for {
		c.mu.Lock()
		phase, changed := c.state.Phase, c.changed // ahead of the look at the connection: each end of one changes the state
		c.mu.Unlock()
		if deadline, ok := ctx.Deadline(); ok {
			left := max(1, time.Until(deadline))
			f.TimeoutMs = uint32(min(int64((left+time.Millisecond-1)/time.Millisecond), 1<<32-1))
		}
		err := error(nil)
		cn := c.current.Load()
		if cn == nil {
			err = c.unavailable()
		} else if err = cn.submit(f, l); err == nil {
			return cn, nil
		}
		switch {
		case zmsg.CodeOf(err) != zmsg.CodeUnavailable, phase == Idle, c.cfg.MaxWaiting < 0:
			return nil, err
		case phase == Closed:
			if r := c.State().Reason; waits && r.Kind == KindClient {
				err = &zmsg.Error{Code: zmsg.CodeCancelled, Outcome: zmsg.NotExecuted, Text: "the client was closed"}
			}
			return nil, err
		case !waits && c.waiting.Add(1) > int64(c.cfg.MaxWaiting):
			c.waiting.Add(-1)
			return nil, &zmsg.Error{Code: zmsg.CodeBusy, Outcome: zmsg.NotExecuted, Text: "too many requests wait for a connection"}
		}
		waits = true
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, gaveUp(ctx, zmsg.NotExecuted)
		}
	}
}

func gaveUp(ctx context.Context, o zmsg.Outcome) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &zmsg.Error{Code: zmsg.CodeTimeout, Outcome: o, Text: "no response within the deadline"}
	}
	return &zmsg.Error{Code: zmsg.CodeCancelled, Outcome: o, Text: "the caller gave up"}
}

// Send sends m as a one-way message: nobody answers. A nil error says that it waits to be written, in order with
// requests; it may still be lost with the connection. Errors are those of Request before anything is sent.
func (c *Client) Send(m proto.Message) error {
	f, err := requestFrame(m)
	if err != nil {
		return err
	}
	cn := c.current.Load()
	if cn == nil {
		return c.unavailable()
	}
	return cn.submit(&f, nil)
}

func (c *Client) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.cfg.RequestTimeout)
}

func (c *Client) unavailable() error {
	s := c.State()
	text := "not connected: " + s.Phase.String()
	if s.Reason != nil {
		text += ", " + s.Reason.Error()
	}
	return &zmsg.Error{Code: zmsg.CodeUnavailable, Outcome: zmsg.NotExecuted, Text: text}
}

func requestFrame(m proto.Message) (zmsg.Frame, error) {
	id, ok := zmsg.IDOf(m)
	if !ok {
		return zmsg.Frame{}, &zmsg.Error{
			Code: zmsg.CodeBadRequest, Outcome: zmsg.NotExecuted, Text: fmt.Sprintf("%T has no option (zgame.id)", m),
		}
	}
	body, err := proto.Marshal(m)
	if err != nil {
		return zmsg.Frame{}, &zmsg.Error{Code: zmsg.CodeBadRequest, Outcome: zmsg.NotExecuted, Text: err.Error()}
	}
	return zmsg.Frame{Kind: wirepb.FrameKind_FRAME_KIND_REQUEST, ID: id, Body: body}, nil
}

// responseOf reads a response frame into resp.
func responseOf(f *zmsg.Frame, resp proto.Message) error {
	if f.Code != zmsg.CodeOK {
		return &zmsg.Error{Code: f.Code, Outcome: f.Outcome, Text: f.Text}
	}
	if resp == nil {
		return nil
	}
	if id, _ := zmsg.IDOf(resp); id != f.ID && (f.ID != 0 || len(f.Body) != 0) {
		return zmsg.Errorf(zmsg.CodeInternal, "the response has id %d, expected %d (%T)", f.ID, id, resp)
	}
	if err := proto.Unmarshal(f.Body, resp); err != nil {
		return zmsg.Errorf(zmsg.CodeInternal, "the response is not a %T: %v", resp, err)
	}
	return nil
}

// call is a request that waits for its response.
type call struct {
	done  chan zmsg.Frame // has room for the one outcome
	frame zmsg.Frame      // set before it is queued; to be written again where a connection broke
	state atomic.Int32    // queued, written or abandoned
}

const (
	queued    = iota // waits to be written
	written          // given to the connection
	abandoned        // nobody waits any more and it was not written: the writer skips it
)

// write claims the call for writing, or writing again; false when it was abandoned.
func (l *call) write() bool {
	return l.state.CompareAndSwap(queued, written) || l.state.Load() == written
}

// abandon ends the call from outside and says whether it may have run.
func (l *call) abandon() zmsg.Outcome {
	if l.state.CompareAndSwap(queued, abandoned) || l.state.Load() == abandoned {
		return zmsg.NotExecuted
	}
	return zmsg.Unknown
}
