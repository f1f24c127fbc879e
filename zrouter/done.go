package zrouter

import (
	"bytes"
	"fmt"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"zgame/zmsg"
	"zgame/zmsg/wirepb"
	"zgame/zstore"
)

// maxKeptReply is the longest encoded answer that is remembered: one is not to take the place of most others.
const maxKeptReply = zstore.MaxDone / 4

// doneRing remembers the requests with a key that an object has run, so that none runs twice: the newest ones, as many as limit, and as
// fit into most bytes. It is stored with the object's state, in one write. A nil doneRing remembers nothing, and so does one with a
// limit below 1.
//
// It is not safe for concurrent use. What list returns is not changed afterwards.
type doneRing struct {
	limit int
	most  int           // bytes, as the store counts
	done  []zstore.Done // oldest first; elements are written once, for list gives them away
	size  int           // in bytes, as the store counts
}

// newDoneRing goes on with what the record has; it does not change from.
func newDoneRing(limit, most int, from []zstore.Done) *doneRing {
	r := &doneRing{limit: limit, most: most}
	for i := range from {
		if from[i].Seq == 0 { // else it is of a clientDone
			r.push(from[i])
		}
	}
	return r
}

// checkOnce returns what is wrong with the id of a request.
func checkOnce(id string) error {
	if id == "" || len(id) > zmsg.MaxOnce || !utf8.ValidString(id) {
		return &zmsg.Error{
			Code: zmsg.CodeBadRequest, Outcome: zmsg.NotExecuted,
			Text: fmt.Sprintf("the idempotency key %.20q has %d bytes: expected 1 to %d bytes of UTF-8", id, len(id), zmsg.MaxOnce),
		}
	}
	return nil
}

// find returns the answer of the request id, if it is remembered that it ran. Where the answer itself is not, it says so: code
// too_large, executed.
func (r *doneRing) find(id string) (reply zmsg.Reply, ok bool) {
	if r == nil {
		return reply, false
	}
	for i := len(r.done) - 1; i >= 0; i-- {
		if d := &r.done[i]; d.Origin == id {
			return decodeReply(d.Reply), true
		}
	}
	return reply, false
}

// add remembers that the request id ran, and its answer; of an id that is there already the first answer stays. The error says what
// is wrong with id, or that the answer cannot be encoded; that it ran is remembered then all the same.
func (r *doneRing) add(id string, reply *zmsg.Reply) error {
	if err := checkOnce(id); err != nil {
		return err
	}
	if r == nil {
		return nil
	}
	if _, ok := r.find(id); ok {
		return nil
	}
	raw, err := encodeReply(reply)
	r.push(zstore.Done{Origin: string([]byte(id)), Reply: raw})
	return err
}

// push appends d, and drops the oldest that are too many.
func (r *doneRing) push(d zstore.Done) {
	if d.Size() > r.most {
		return // of a record that another program wrote
	}
	r.done = append(r.done, d)
	r.size += d.Size()
	for len(r.done) > max(0, r.limit) || r.size > r.most {
		r.size -= r.done[0].Size()
		r.done = r.done[1:]
	}
}

// list returns what is to be stored, oldest first, with the ids of requests that run: what is stored with it may have some of what they have changed, so
// whoever finds that there is told that nobody knows how they ended. Nobody changes it.
func (r *doneRing) list(running ...string) []zstore.Done {
	switch {
	case r == nil:
		return nil
	case len(running) > 0:
		with := newDoneRing(r.limit, r.most, r.done)
		for _, id := range running {
			with.push(zstore.Done{Origin: id, Reply: endUnknown})
		}
		return with.list()
	case len(r.done) == 0:
		return nil
	}
	return slices.Clip(r.done)
}

// A remembered answer is a wirepb.Envelope of the kind reply; no bytes at all mean that it ran and its answer was not kept.

// notKept is the answer of a request whose own is not remembered.
var notKept = zmsg.Reply{
	Code: zmsg.CodeTooLarge, Outcome: zmsg.Executed, Text: "the request has run before; its answer was too large to be remembered",
}

// endUnknown is the answer of a request whose node died before it had ended.
var endUnknown = mustEncode(&zmsg.Reply{Code: zmsg.CodeUnknownOutcome, Outcome: zmsg.Unknown, Text: "it ran when its node died"})

func mustEncode(r *zmsg.Reply) []byte {
	raw, err := encodeReply(r)
	if err != nil {
		panic(err)
	}
	return raw
}

// encoded returns reply with its body encoded, in memory of its own. Where it does not encode, that it ran and the answer was not kept.
func encoded(reply *zmsg.Reply) zmsg.Reply {
	body, err := replyBody(reply)
	if err != nil {
		return notKept
	}
	r := *reply
	r.Value, r.Body = nil, bytes.Clone(body)
	return r
}

func replyBody(r *zmsg.Reply) ([]byte, error) {
	if r.Body != nil || r.Value == nil {
		return r.Body, nil
	}
	return proto.Marshal(r.Value)
}

// encodeReply returns nil for one that is too large, or does not encode.
func encodeReply(r *zmsg.Reply) ([]byte, error) {
	body, err := replyBody(r)
	if err != nil {
		return nil, err
	}
	e := zmsg.Envelope{
		Kind: wirepb.EnvelopeKind_ENVELOPE_KIND_REPLY, ID: r.ID, Code: r.Code, Outcome: r.Outcome, Text: r.Text, Body: body,
	}
	if len(body)+len(r.Text) > maxKeptReply || e.Size() > maxKeptReply {
		return nil, nil
	}
	return zmsg.AppendEnvelope(make([]byte, 0, e.Size()), &e), nil
}

// decodeReply returns the answer; its text and body alias raw, which is never changed. What does not decode counts as not kept: that it
// ran is certain.
func decodeReply(raw []byte) zmsg.Reply {
	var e zmsg.Envelope
	if len(raw) == 0 || e.Decode(raw) != nil || e.Kind != wirepb.EnvelopeKind_ENVELOPE_KIND_REPLY {
		return notKept
	}
	return zmsg.Reply{ID: e.ID, Code: e.Code, Outcome: e.Outcome, Text: e.Text, Body: e.Body}
}
