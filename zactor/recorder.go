package zactor

import (
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
)

// RecorderOptions says how much a flight recorder keeps of an actor. A recorder notes what comes in: messages, ticks, the outcomes
// of requests and work, with the time and the random seed; when the actor panics, before it is restarted, it leaves a file in
// Config.RecordDir that Replay runs again. A file holds what players and others sent, as it was: keep the directory as
// safe as the database, and leave actors out (WithRecorder with Off) whose messages must not be on a disk.
//
// A small message costs 0.6 us more with a recorder, and 350 bytes that are garbage later (BenchmarkRecorder); a Snapshot comes once
// in Messages inputs. A busy actor's recorder holds some 200 to 400 KB. An actor without a recorder pays for a look at a field of its Context.
type RecorderOptions struct {
	// Messages is how many inputs are kept at least, once there were as many; up to 2.5 times as many are. Defaults to 256.
	Messages int
	// Bytes bounds the bodies, the snapshots and 512 bytes for each input. Over it the oldest inputs go, and the record says so.
	// A body of more than an eighth of it is left out; a snapshot of more than a quarter is none. Defaults to 1 MiB.
	Bytes int
	// Off leaves the actor out where Config.Recorder records all.
	Off bool
}

// WithRecorder gives the actor a flight recorder, which works where Config.RecordDir is set. It comes before Config.Recorder.
func WithRecorder(o RecorderOptions) SpawnOption {
	return func(s *spawnOptions) { s.recorder = &o }
}

// Snapshotter is an Actor whose state can be written down. A recorder calls Snapshot now and then, between two turns, on the
// actor's goroutine. Replay makes an instance from the factory, runs OnStart if there is one, and then calls Restore.
//
// Without it a record can be replayed only as long as all inputs since the instance's start fit in. Timers that were set, and
// requests and work that were begun, before the snapshot are not part of it, but for those of OnStart: a record says so
// when their ticks and outcomes come.
type Snapshotter interface {
	Snapshot() ([]byte, error)
	Restore(data []byte) error
}

func (o RecorderOptions) withDefaults() RecorderOptions {
	if o.Messages == 0 {
		o.Messages = 256
	}
	if o.Bytes == 0 {
		o.Bytes = 1 << 20
	}
	return o
}

func (o RecorderOptions) validate() error {
	if o.Messages < 0 || o.Messages > 1<<20 || o.Bytes < 0 || o.Bytes > 1<<30 {
		return fmt.Errorf("zactor: RecorderOptions %d messages, %d bytes: want up to 1,048,576 and 1 GiB", o.Messages, o.Bytes)
	}
	return nil
}

// tapFor returns the tap of a new actor, nil for none.
func (g *Group) tapFor(c *cell) tap {
	if g.replay != nil {
		return g.replay.tapFor()
	}
	if g.records == nil {
		return nil
	}
	o := g.cfg.Recorder
	if c.opts != nil && c.opts.recorder != nil {
		o = c.opts.recorder
	}
	if o == nil || o.Off {
		return nil
	}
	return &recorder{options: o.withDefaults(), c: c, files: g.records}
}

func (c *cell) tapped() bool {
	e := c.extra.Load()
	return e != nil && e.tap != nil
}

// recorder is the tap that keeps the last inputs of an actor. It goes through restarts with its actor; each instance
// begins a new tape.
type recorder struct {
	// Set at construction.
	options RecorderOptions
	c       *cell
	files   *recordFiles

	mu      sync.Mutex // for Ask, which may be called from goroutines that a handler has started
	tape    *tape      // guarded by mu
	seed    uint64     // guarded by mu
	scratch []byte     // guarded by mu

	// Owned by the turn.
	badState bool // Snapshot has failed, and the log told
	written  time.Time
	resumed  uint64 // Calls of a reentrant actor that have come back
}

func (r *recorder) created(c *cell) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tape = newTape(r.options.Messages, r.options.Bytes)
	r.seed = c.seed()
}

// begin begins a turn.
func (r *recorder) begin(x *Context, in *recordedInput) {
	in.At = x.batchTime().Round(0)
	if why := r.tooLarge(in.Body); why != "" {
		in.Missing, in.Body = why, nil
	}
	r.mu.Lock()
	due := r.tape.due(r.c.pending > 0)
	r.mu.Unlock()
	var state []byte
	var ok bool
	if due {
		state, ok = r.snapshot()
	}
	r.mu.Lock()
	if due {
		r.tape.turnOver(state, ok)
	}
	r.tape.add(in)
	r.mu.Unlock()
	x.log = in
}

// snapshot asks the actor for its state.
func (r *recorder) snapshot() (state []byte, ok bool) {
	s, is := r.c.actor.(Snapshotter)
	if !is {
		return nil, false
	}
	defer func() {
		if v := recover(); v != nil {
			r.complain(fmt.Errorf("panic: %v\n%s", v, debug.Stack()))
			state, ok = nil, false
		}
	}()
	state, err := s.Snapshot()
	if err != nil {
		r.complain(err)
		return nil, false
	}
	if len(state) > r.options.Bytes/4 {
		r.complain(fmt.Errorf("%d bytes, more than a quarter of the recorder's bound", len(state)))
	}
	return state, true
}

// complain logs the first fault of a Snapshot.
func (r *recorder) complain(err error) {
	if !r.badState {
		r.badState = true
		r.c.g.log.Error("no snapshot of the actor", "actor", r.c.id, "name", r.c.name, "err", err)
	}
}

func (r *recorder) started(x *Context) {
	in := &recordedInput{Kind: inputStart, At: x.batchTime().Round(0)}
	r.mu.Lock()
	r.tape.start = in
	r.mu.Unlock()
	x.log = in
}

func (r *recorder) message(x *Context, h *Handler) {
	it := x.it
	in := &recordedInput{Kind: inputMessage, ID: it.id, Type: h.types.name}
	m := it.msg
	switch {
	case m != nil && m.Body() != nil:
		in.Body = append([]byte{}, m.Body()...)
	case it.value != nil:
		body, err := proto.Marshal(it.value.(proto.Message))
		if err != nil {
			in.Missing = err.Error()
		}
		in.Body = body
	}
	if m != nil || it.from != nil || it.fut != nil {
		in.Head = recordHead(x, it)
	}
	r.begin(x, in)
}

func recordHead(x *Context, it *item) *recordedHead {
	h := &recordedHead{Wants: it.fut != nil}
	if m := it.msg; m != nil {
		h.From, h.User, h.Session, h.Client, h.Seq = m.From, m.User, m.Session, m.Client, m.Seq
		h.Trace, h.Chain, h.Hops, h.Once, h.Wants = m.Trace.ID, m.Chain, m.Hops, m.Once, m.Wants()
	}
	if it.from != nil {
		h.From, h.Name = it.from.address(), it.from.name
	}
	if d, ok := x.Deadline(); ok {
		h.LeftNs = max(1, int64(d.Sub(x.batchTime())))
	}
	return h
}

func (r *recorder) outcome(x *Context, f *future) {
	in := &recordedInput{Kind: inputThen, Of: f.op}
	if f.op.kind == opAsync {
		in.Kind = inputAsync
		in.Result = &recordedResult{Form: formOpaque}
	} else {
		in.Reply = recordReply(&f.reply)
	}
	r.begin(x, in)
	if in.Reply != nil {
		r.keepReply(in, in.Reply)
	}
}

// keepReply counts a reply, or leaves a large one out.
func (r *recorder) keepReply(in *recordedInput, reply *recordedReply) {
	r.limit(reply)
	r.mu.Lock()
	r.tape.grow(in, len(reply.Body))
	r.mu.Unlock()
}

// limit leaves the body of a large reply out.
func (r *recorder) limit(reply *recordedReply) {
	if why := r.tooLarge(reply.Body); why != "" {
		reply.Missing, reply.Body = why, nil
	}
}

// tooLarge says why a body is left out, "" where it is not.
func (r *recorder) tooLarge(body []byte) string {
	if len(body) <= r.options.Bytes/8 {
		return ""
	}
	return fmt.Sprintf("%d bytes, more than an eighth of the recorder's bound", len(body))
}

func (r *recorder) tick(x *Context, t *timer) {
	r.begin(x, &recordedInput{Kind: inputTimer, Of: t.op, Key: t.key, LateNs: t.since()})
}

func (r *recorder) down(x *Context, d downItem) {
	r.begin(x, &recordedInput{Kind: inputDown, Of: d.w.op, Reason: d.why})
}

func (r *recorder) escalated(x *Context, e *EscalatedError) {
	child := e.Child.Address()
	r.begin(x, &recordedInput{Kind: inputEscalation, Child: &child, Name: e.Child.name(), Text: e.Cause.Error()})
}

func (r *recorder) result(x *Context, result any, err *error) {
	in, v := x.log, reflect.ValueOf(result).Elem()
	out := encodeResult(v)
	if out.Err = recordError(*err); *err != nil && v.IsZero() {
		out.Form, out.Value = formJSON, nil // with an error there is mostly nothing else
	}
	if r.tooLarge(out.Value) != "" {
		out.Form, out.Value = formOpaque, nil
	}
	in.Result = out
	r.mu.Lock()
	r.tape.grow(in, len(out.Value))
	r.mu.Unlock()
}

// Forms of results.
const (
	formProto  = "proto"
	formBinary = "binary"
	formJSON   = "json"
	formOpaque = "opaque"
)

// encodeResult writes a result down: a protobuf message, what says itself how (encoding.BinaryMarshaler), or what comes out of JSON as
// it went in. Others are opaque.
func encodeResult(v reflect.Value) *recordedResult {
	out := &recordedResult{Form: formOpaque, Type: v.Type().String()}
	if v.Type().Kind() == reflect.Interface {
		return out
	}
	switch m := v.Interface().(type) {
	case proto.Message:
		if v.Kind() == reflect.Pointer && !v.IsNil() {
			if b, err := proto.Marshal(m); err == nil {
				out.Form, out.Value = formProto, b
			}
			return out
		}
	case encoding.BinaryMarshaler:
		if _, back := reflect.TypeAssert[encoding.BinaryUnmarshaler](reflect.New(v.Type())); back {
			if b, err := m.MarshalBinary(); err == nil {
				out.Form, out.Value = formBinary, b
			}
			return out
		}
	}
	b, err := json.Marshal(v.Interface())
	if err != nil {
		return out
	}
	back := reflect.New(v.Type())
	if json.Unmarshal(b, back.Interface()) == nil && reflect.DeepEqual(back.Elem().Interface(), v.Interface()) {
		out.Form, out.Value = formJSON, b
	}
	return out
}

// decodeResult sets v to what encodeResult wrote.
func decodeResult(r *recordedResult, v reflect.Value) error {
	if r.Type != v.Type().String() {
		return fmt.Errorf("the record has a %s, the actor wants a %s", r.Type, v.Type())
	}
	switch r.Form {
	case formProto:
		if v.Kind() == reflect.Pointer {
			n := reflect.New(v.Type().Elem())
			if m, ok := reflect.TypeAssert[proto.Message](n); ok {
				v.Set(n)
				return proto.Unmarshal(r.Value, m)
			}
		}
	case formBinary:
		if u, ok := reflect.TypeAssert[encoding.BinaryUnmarshaler](v.Addr()); ok {
			return u.UnmarshalBinary(r.Value)
		}
	case formJSON:
		if r.Value == nil {
			return nil
		}
		return json.Unmarshal(r.Value, v.Addr().Interface())
	}
	return errors.New("it cannot be written down")
}

// count names the next doing of the turn.
func (r *recorder) count(in *recordedInput, k opKind) opID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return in.count(k)
}

// op notes something that the turn does and that tells it something.
func (r *recorder) op(in *recordedInput, op *recordedOp, size int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	in.Did = append(in.Did, *op)
	r.tape.grow(in, size)
}

// request begins to note a request.
func (r *recorder) request(in *recordedInput, k opKind, to Ref, req proto.Message) *recordedOp {
	op := &recordedOp{To: to.Address(), Name: to.name()}
	op.ID, _ = zmsg.IDOf(req)
	r.mu.Lock()
	defer r.mu.Unlock()
	op.Op = in.count(k)
	op.Sum, r.scratch = sumOf(r.scratch, req)
	return op
}

// sumOf returns a checksum of the message's bytes, and the buffer that it used.
func sumOf(buf []byte, m proto.Message) (uint64, []byte) {
	b, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(buf[:0], m)
	if err != nil {
		return 0, buf
	}
	h := zmsg.HashBytes(b)
	if cap(b) > keptBody {
		return h, buf
	}
	return h, b
}

func (r *recorder) call(x *Context, to Ref, req proto.Message) (*future, error) {
	in := x.log
	if in == nil {
		return x.call(to, req)
	}
	op := r.request(in, opCall, to, req)
	now, turn := x.now, r.turn()
	f, err := x.call(to, req)
	r.answered(op, f, err)
	if c := r.c; c.opts != nil && c.opts.reentrant {
		r.resumed++
		op.Until, op.Resumed = max(turn, r.turn()), r.resumed
	}
	if !x.now.Equal(now) {
		op.At = x.now.Round(0)
	}
	r.op(in, op, len(op.Reply.Body))
	return f, err
}

func (r *recorder) turn() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tape.turns
}

func (r *recorder) ask(ctx context.Context, to Ref, req proto.Message, t *turnContext) (*future, error) {
	if t.log == nil {
		return ask(ctx, to, req, t)
	}
	op := r.request(t.log, opAsk, to, req)
	f, err := ask(ctx, to, req, t)
	r.answered(op, f, err)
	r.op(t.log, op, len(op.Reply.Body))
	return f, err
}

// answered notes how a request ended.
func (r *recorder) answered(op *recordedOp, f *future, err error) {
	if err != nil {
		reply := zmsg.ErrorReply(err)
		op.Reply, op.Err = recordReply(&reply), recordError(err)
		return
	}
	op.Reply = recordReply(&f.reply)
	r.limit(op.Reply)
}

func (r *recorder) then(x *Context, f *future, _ uint64, to Ref, req proto.Message) bool {
	if x.log != nil {
		op := r.request(x.log, opThen, to, req)
		f.op = op.Op
		r.op(x.log, op, 0)
	}
	return false
}

func (r *recorder) async(x *Context, f *future, _ uint64, do func() error) error {
	err := do()
	if x.log != nil {
		f.op = r.count(x.log, opAsync)
		r.failed(x.log, &recordedOp{Op: f.op}, err)
	}
	return err
}

func (r *recorder) effect(x *Context, k opKind, e effect, do func() error) error {
	err := do()
	if x.log != nil {
		r.failed(x.log, &recordedOp{Op: r.count(x.log, k), To: e.to.Address(), Name: e.to.name()}, err)
	}
	return err
}

// failed notes a doing that failed; that others went well goes without saying.
func (r *recorder) failed(in *recordedInput, op *recordedOp, err error) {
	if err != nil {
		op.Err = recordError(err)
		r.op(in, op, len(op.Err.Text))
	}
}

func (r *recorder) spawn(x *Context, _ string, do func() (Ref, error)) (Ref, error) {
	ref, err := do()
	if x.log != nil {
		r.op(x.log, &recordedOp{Op: r.count(x.log, opSpawn), To: ref.Address(), Name: ref.name(), Err: recordError(err)}, 0)
	}
	return ref, err
}

func (r *recorder) timer(x *Context) opID {
	if x.log == nil {
		return opID{}
	}
	return r.count(x.log, opTimer)
}

func (r *recorder) watch(x *Context, w *watch) bool {
	if x.log != nil {
		w.op = r.count(x.log, opWatch)
	}
	return false
}

// recordEvery is how often an actor leaves a file at most: one that fails all the time fails for one reason.
const recordEvery = time.Second

func (r *recorder) crashed(x *Context, k *crash) {
	text := panicText(k.value)
	if x.log != nil {
		r.mu.Lock()
		x.log.Panic = text
		r.mu.Unlock()
	}
	now := r.c.g.clock.Now()
	if !r.written.IsZero() && now.Sub(r.written) < recordEvery {
		r.files.skipped.Inc()
		return
	}
	r.written = now
	rec := r.record(now)
	rec.Header.Panic, rec.Header.Stack = text, string(k.stack)
	rec.Header.Frame, rec.Header.Line = panicFrame(k.stack)
	r.files.add(rec)
}

// record copies what is kept; what is shared with the copy does not change any more.
func (r *recorder) record(now time.Time) *Record {
	c := r.c
	r.mu.Lock()
	defer r.mu.Unlock()
	h, inputs := r.tape.record()
	h.Type, h.Name, h.Actor, h.Instance = c.typ(c.actor), c.name, c.address(), c.epoch.Load()
	h.Build, h.At, h.Seed = buildText(), now.Round(0), r.seed
	rec := &Record{Header: h, inputs: make([]recordedInput, 0, len(inputs))}
	for _, in := range inputs {
		copied := *in
		copied.Did = append([]recordedOp(nil), in.Did...)
		rec.inputs = append(rec.inputs, copied)
	}
	return rec
}

// buildText says what program this is.
func buildText() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	text := []string{info.Main.Path, info.Main.Version}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" || s.Key == "vcs.modified" && s.Value == "true" {
			text = append(text, strings.TrimPrefix(s.Key, "vcs.")+"="+s.Value)
		}
	}
	return strings.Join(text, " ")
}

// panicText is a panic's value as text; that its own methods panic must not matter.
func panicText(v any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a %T", v)
		}
	}()
	return fmt.Sprint(v)
}

// panicFrame returns the function that panicked and its place, file.go:12 with its directory: in the text of a stack, the first one
// below the panic that is not of the runtime. "" if there is none.
func panicFrame(stack []byte) (name, line string) {
	panicking := false
	for text := range strings.Lines(string(stack)) {
		place, isPlace := strings.CutPrefix(text, "\t")
		text = strings.TrimSpace(text)
		switch {
		case isPlace && name != "":
			place, _, _ = strings.Cut(place, " +0x")
			return name, lastElements(strings.TrimSpace(place))
		case isPlace:
		case name != "":
			return name, ""
		case strings.HasPrefix(text, "panic("):
			panicking = true
		case panicking && !strings.HasPrefix(text, "runtime."):
			name = text
			if i := strings.LastIndexByte(text, '('); i > 0 {
				name = text[:i] // without the arguments
			}
		}
	}
	return name, ""
}

// lastElements returns the last directory of a path and what is in it.
func lastElements(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		if j := strings.LastIndexByte(path[:i], '/'); j >= 0 {
			return path[j+1:]
		}
	}
	return path
}
