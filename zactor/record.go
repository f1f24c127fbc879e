package zactor

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
)

// Record is what a flight recorder kept of one actor: its last inputs, and its state before the first of them. Replay runs them
// again. As a file it is JSON lines: the header, then one input a line; bodies of messages are base64 of their protobuf bytes. What
// players and other actors sent is in there as it was, secrets included.
type Record struct {
	Header RecordHeader

	inputs []recordedInput // in order; OnStart first, if it is there
}

// RecordHeader is the first line of a record's file.
type RecordHeader struct {
	Format   int          `json:"zgame_record"` // 1
	Type     string       `json:"type"`         // of the actor, see WithType
	Name     string       `json:"name,omitempty"`
	Actor    zmsg.Address `json:"actor"`
	Instance uint32       `json:"instance"` // counts restarts
	Build    string       `json:"build"`    // of the program: module, version, revision
	At       time.Time    `json:"at"`
	Seed     uint64       `json:"seed"` // of the instance's Context.Rand

	// Base says what the actor's state is before the first input.
	Base  RecordBase `json:"base"`
	State []byte     `json:"state,omitempty"` // of BaseSnapshot: what Snapshotter.Snapshot returned
	// Dropped is how many inputs of the instance came before the first one of the record.
	Dropped uint64 `json:"dropped,omitempty"`
	// Truncated says that RecorderOptions.Bytes left room for fewer than RecorderOptions.Messages.
	Truncated bool `json:"truncated,omitempty"`

	// The failure.
	Panic string `json:"panic"`           // the value, as text
	Frame string `json:"frame,omitempty"` // the function that panicked
	Line  string `json:"line,omitempty"`  // where, with the last directory: rooms/rooms.go:12
	Stack string `json:"stack,omitempty"`
}

// RecordBase says what the first input of a record met.
type RecordBase string

// The bases.
const (
	BaseStart    RecordBase = "start"    // a fresh instance
	BaseSnapshot RecordBase = "snapshot" // the state of a snapshot
	BaseNone     RecordBase = "none"     // nobody knows: inputs have been dropped, and there was no snapshot
)

// recordFormat is the version of the file's format.
const recordFormat = 1

// Kinds of inputs.
const (
	inputStart      = "start"   // OnStart
	inputMessage    = "message" // a handler
	inputThen       = "then"    // the continuation of a Then
	inputAsync      = "async"   // the continuation of an Async
	inputTimer      = "timer"
	inputDown       = "down"       // of a watch
	inputEscalation = "escalation" // a child's failure
)

// recordedInput is one turn of an actor: what came in, and what it got to know while it ran.
type recordedInput struct {
	Turn uint64    `json:"turn"` // of the instance, from 1; OnStart is 0
	Kind string    `json:"kind"`
	At   time.Time `json:"at"` // Context.Now

	// Of a message.
	ID   uint32        `json:"id,omitempty"`
	Type string        `json:"type,omitempty"` // full name of the protobuf message
	Body []byte        `json:"body,omitempty"`
	Head *recordedHead `json:"head,omitempty"` // nil: a one-way message of nobody

	Of     opID            `json:"of,omitzero"`       // what this is the outcome, tick or end of
	Key    string          `json:"key,omitempty"`     // of a timer
	LateNs int64           `json:"late_ns,omitempty"` // of a timer: see timer.since
	Reply  *recordedReply  `json:"reply,omitempty"`   // of a Then
	Result *recordedResult `json:"result,omitempty"`  // of an Async
	Reason Reason          `json:"reason,omitempty"`  // of a Down
	Child  *zmsg.Address   `json:"child,omitempty"`   // of an escalation; Name is the child's
	Name   string          `json:"name,omitempty"`
	Text   string          `json:"text,omitempty"` // of an escalation: its cause

	Missing string       `json:"missing,omitempty"` // why the body is not there
	Did     []recordedOp `json:"did,omitempty"`     // what the turn did that had an outcome
	Panic   string       `json:"panic,omitempty"`   // what the turn panicked with

	counts [opKinds]uint16 // what the turn has done so far
	size   int
}

// recordedHead is what a message says beside its body.
type recordedHead struct {
	From    zmsg.Address    `json:"from,omitzero"`
	Name    string          `json:"name,omitempty"` // of the sender
	User    string          `json:"user,omitempty"`
	Session zmsg.SessionRef `json:"session,omitzero"`
	Client  bool            `json:"client,omitempty"`
	Seq     uint64          `json:"seq,omitempty"`
	Trace   zmsg.TraceID    `json:"trace,omitzero"`
	Chain   []uint64        `json:"chain,omitempty"`
	Hops    uint32          `json:"hops,omitempty"`
	Once    string          `json:"once,omitempty"`
	LeftNs  int64           `json:"left_ns,omitempty"` // until the deadline; 0: none
	Wants   bool            `json:"wants,omitempty"`   // somebody waits for a reply
}

// recordedReply is the outcome of a request.
type recordedReply struct {
	ID      uint32       `json:"id,omitempty"`
	Code    zmsg.Code    `json:"code,omitempty"`
	Outcome zmsg.Outcome `json:"outcome,omitempty"`
	Text    string       `json:"text,omitempty"`
	Body    []byte       `json:"body,omitempty"`
	Missing string       `json:"missing,omitempty"`
}

// recordedResult is what the work of an Async returned.
type recordedResult struct {
	Form  string         `json:"form"` // proto, binary, json, or opaque: it cannot be written down
	Type  string         `json:"type"` // of Go
	Value []byte         `json:"value,omitempty"`
	Err   *recordedError `json:"err,omitempty"`
}

// recordedOp is something that the actor did within a turn and that told it something.
type recordedOp struct {
	Op    opID           `json:"op"`
	To    zmsg.Address   `json:"to,omitzero"`
	Name  string         `json:"name,omitempty"`
	ID    uint32         `json:"id,omitempty"`
	Sum   uint64         `json:"sum,omitempty"` // of the request's body
	Reply *recordedReply `json:"reply,omitempty"`
	Err   *recordedError `json:"err,omitempty"`
	// Of a Call of a reentrant actor: the last turn begun meanwhile, its place among the Calls that have come back, and
	// Context.Now afterwards.
	Until   uint64    `json:"until,omitempty"`
	Resumed uint64    `json:"resumed,omitempty"`
	At      time.Time `json:"at,omitzero"`
}

// opKind is something that a turn may do.
type opKind uint8

const (
	opNone opKind = iota
	opCall
	opAsk
	opThen
	opAsync
	opTimer
	opWatch
	opSpawn
	opTell
	opForward
	opPush
	opPublish
	opJoin
	opLeave
	opKick
	opWatchSession
	opUnwatchSession
	opSubscribe
	opUnsubscribe
	opPublishTopic
	opPublishTopicLocal
	opRoute
	opKinds
)

var opNames = [opKinds]string{
	"", "call", "ask", "then", "async", "timer", "watch", "spawn", "tell", "forward", "push", "publish", "join", "leave", "kick",
	"watch_session", "unwatch_session", "subscribe", "unsubscribe", "publish_topic", "publish_topic_local", "route",
}

// opID names one doing of an instance: the third Call of turn 12. Counting each kind for itself keeps the names of the
// others when an actor is changed between record and replay.
type opID struct {
	turn uint64
	kind opKind
	n    uint16 // from 1
}

func (o opID) String() string { return fmt.Sprintf("%d.%s.%d", o.turn, opNames[o.kind], o.n) }

// MarshalText is of encoding.TextMarshaler.
func (o opID) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText is of encoding.TextUnmarshaler.
func (o *opID) UnmarshalText(b []byte) error {
	parts := strings.Split(string(b), ".")
	if len(parts) != 3 {
		return fmt.Errorf("%q: want turn.kind.number", b)
	}
	turn, err1 := strconv.ParseUint(parts[0], 10, 64)
	n, err2 := strconv.ParseUint(parts[2], 10, 16)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("%q: want turn.kind.number: %w", b, err)
	}
	for k, name := range opNames {
		if k != 0 && name == parts[1] && n > 0 {
			*o = opID{turn, opKind(k), uint16(n)}
			return nil
		}
	}
	return fmt.Errorf("%q: no such doing", b)
}

// count names the next doing of the kind.
func (in *recordedInput) count(k opKind) opID {
	if in.counts[k] < 1<<16-1 {
		in.counts[k]++
	}
	return opID{in.Turn, k, in.counts[k]}
}

// did finds what the record says of a doing, nil if nothing.
func (in *recordedInput) did(id opID) *recordedOp {
	for i := range in.Did {
		if in.Did[i].Op == id {
			return &in.Did[i]
		}
	}
	return nil
}

// recordReply notes an outcome. Within a process answers are shared values, which are encoded here.
func recordReply(r *zmsg.Reply) *recordedReply {
	out := &recordedReply{ID: r.ID, Code: r.Code, Outcome: r.Outcome, Text: r.Text}
	switch {
	case r.Body != nil:
		out.Body = bytes.Clone(r.Body)
	case r.Value != nil:
		var err error
		if out.Body, err = proto.Marshal(r.Value); err != nil {
			out.Missing = err.Error()
		}
	}
	return out
}

func (r *recordedReply) reply() zmsg.Reply {
	body := r.Body
	if body == nil {
		body = []byte{}
	}
	return zmsg.Reply{ID: r.ID, Code: r.Code, Outcome: r.Outcome, Text: r.Text, Body: body}
}

// recordedError is an error that an actor got to see. What replay makes of it has its text, its code, and is (errors.Is)
// whatever sentinels with the same text the original was.
type recordedError struct {
	Text    string       `json:"text"`
	Coded   bool         `json:"coded,omitempty"`
	Code    zmsg.Code    `json:"code,omitempty"`
	Outcome zmsg.Outcome `json:"outcome,omitempty"`
	Detail  string       `json:"detail,omitempty"` // the text that goes with the code
	Chain   []string     `json:"chain,omitempty"`  // texts of the errors that it wraps
}

// maxChain bounds what is kept of the errors that an error wraps.
const maxChain = 16

func recordError(err error) *recordedError {
	if err == nil {
		return nil
	}
	e := &recordedError{Text: err.Error()}
	if coded, ok := errors.AsType[*zmsg.Error](err); ok {
		e.Coded, e.Code, e.Outcome, e.Detail = true, coded.Code, coded.Outcome, coded.Text
	}
	e.chain(err)
	return e
}

func (e *recordedError) chain(err error) {
	if err == nil || len(e.Chain) >= maxChain {
		return
	}
	if text := err.Error(); text != e.Text {
		e.Chain = append(e.Chain, text)
	}
	switch u := err.(type) { //nolint:errorlint // walks the tree of wrapped errors by itself
	case interface{ Unwrap() error }:
		e.chain(u.Unwrap())
	case interface{ Unwrap() []error }:
		for _, w := range u.Unwrap() {
			e.chain(w)
		}
	}
}

// err returns the error again.
func (e *recordedError) err() error {
	if e == nil {
		return nil
	}
	return &replayedError{e}
}

type replayedError struct{ e *recordedError }

func (r *replayedError) Error() string { return r.e.Text }

func (r *replayedError) Is(target error) bool {
	text := target.Error()
	return text == r.e.Text || slices.Contains(r.e.Chain, text)
}

func (r *replayedError) Unwrap() error {
	if !r.e.Coded {
		return nil
	}
	return &zmsg.Error{Code: r.e.Code, Outcome: r.e.Outcome, Text: r.e.Detail}
}

// Inputs returns how many inputs the record holds, OnStart among them.
func (r *Record) Inputs() int { return len(r.inputs) }

// WriteTo writes the record as its file has it.
func (r *Record) WriteTo(w io.Writer) (int64, error) {
	counted := &countingWriter{w: w}
	buf := bufio.NewWriter(counted)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(&r.Header)
	for i := range r.inputs {
		if err == nil {
			err = enc.Encode(&r.inputs[i])
		}
	}
	if err == nil {
		err = buf.Flush()
	}
	return counted.n, err
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// OpenRecord reads the record in a file.
func OpenRecord(path string) (*Record, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("zactor: %w", err)
	}
	defer f.Close()
	r, err := ReadRecord(f)
	if err != nil {
		return nil, fmt.Errorf("%w (file %s)", err, path)
	}
	return r, nil
}

// maxRecordLine bounds one line of a record that is read; a recorder writes none that is longer than its bound on bytes and the
// base64 of that.
const maxRecordLine = 256 << 20

// ReadRecord reads a record, and says in which line it is not one.
func ReadRecord(from io.Reader) (*Record, error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 0, 64<<10), maxRecordLine)
	r := new(Record)
	n := 0
	fault := func(err error) error { return fmt.Errorf("zactor: no record: line %d: %w", n, err) }
	for lines.Scan() {
		n++
		if n == 1 {
			if err := json.Unmarshal(lines.Bytes(), &r.Header); err != nil {
				return nil, fault(err)
			}
			if err := r.Header.validate(); err != nil {
				return nil, fault(err)
			}
			continue
		}
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var in recordedInput
		if err := json.Unmarshal(lines.Bytes(), &in); err != nil {
			return nil, fault(err)
		}
		if err := in.validate(); err != nil {
			return nil, fault(err)
		}
		if k := len(r.inputs); k > 0 && in.Turn <= r.inputs[k-1].Turn {
			return nil, fault(fmt.Errorf("turn %d after turn %d", in.Turn, r.inputs[k-1].Turn))
		}
		r.inputs = append(r.inputs, in)
	}
	if err := lines.Err(); err != nil {
		n++
		return nil, fault(err)
	}
	if n == 0 {
		return nil, fault(io.ErrUnexpectedEOF)
	}
	return r, nil
}

func (h *RecordHeader) validate() error {
	switch h.Base {
	case BaseStart, BaseSnapshot, BaseNone:
	default:
		if h.Format == recordFormat {
			return fmt.Errorf("base %q: want start, snapshot or none", h.Base)
		}
	}
	if h.Format != recordFormat {
		return fmt.Errorf("zgame_record is %d: this program reads format %d", h.Format, recordFormat)
	}
	return nil
}

func (in *recordedInput) validate() error {
	want := func(ok bool, what string) error {
		if ok {
			return nil
		}
		return fmt.Errorf("turn %d is a %s without %s", in.Turn, in.Kind, what)
	}
	if (in.Turn == 0) != (in.Kind == inputStart) {
		return fmt.Errorf("turn %d is a %q: the start is turn 0", in.Turn, in.Kind)
	}
	for _, op := range in.Did {
		if op.Op.kind == opNone {
			return fmt.Errorf("turn %d did something that is not named", in.Turn)
		}
	}
	switch in.Kind {
	case inputStart, inputEscalation:
		return nil
	case inputMessage:
		return want(in.ID != 0, "an id")
	case inputThen:
		return want(in.Of.kind == opThen && in.Reply != nil, "the request and its reply")
	case inputAsync:
		return want(in.Of.kind == opAsync && in.Result != nil, "the work and its result")
	case inputTimer:
		return want(in.Of.kind == opTimer, "the timer")
	case inputDown:
		return want(in.Of.kind == opWatch, "the watch")
	default:
		return fmt.Errorf("turn %d is a %q, which is nothing that this program knows", in.Turn, in.Kind)
	}
}
