package znode

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"zgame/internal/adminport"
	"zgame/internal/settings"
	"zgame/zmsg"
)

// maxCall is how large the JSON of a call at the admin port may be, in bytes.
const maxCall = 1 << 20

// serveCall sends the message that the path names, made of the JSON in the body, to whoever handles it, as an actor of this node would, and answers with
// the answer as JSON: with ?type=, ?zone= and ?id= to that object, with ?user= on behalf of that user. It is off without admin.call.
func (n *Node) serveCall(w http.ResponseWriter, r *http.Request) {
	if !n.cfg.Settings.Admin.Call {
		writeText(w, http.StatusForbidden, "calls are off at this node: set admin.call\n")
		return
	}
	m, err := n.called(r.PathValue("message"), r.Body)
	if err != nil {
		writeText(w, http.StatusBadRequest, err.Error()+"\n")
		return
	}
	to := n.group.ByID()
	q := r.URL.Query()
	if q.Has("id") {
		k, err := adminport.KeyIn(q)
		if err != nil {
			m.Release()
			writeText(w, http.StatusBadRequest, err.Error()+"\n")
			return
		}
		to = n.group.Object(k)
	}
	m.User = q.Get("user")
	ctx, cancel := context.WithTimeout(r.Context(), n.cfg.Settings.Actors.AskTimeout)
	defer cancel()
	m.Deadline, _ = ctx.Deadline()
	answer := make(callReply, 1)
	m.SetReplier(answer, 1)
	n.log.Info("a message is sent by request at the admin port", "msg", r.PathValue("message"), "to", to.String(), "user", m.User)
	if err := to.Deliver(m); err != nil {
		m.TakeReplier()
		m.Release()
		writeCallError(w, zmsg.CodeOf(err), zmsg.OutcomeOf(err), err.Error())
		return
	}
	select {
	case a := <-answer:
		n.writeAnswer(w, a)
	case <-ctx.Done():
		writeCallError(w, zmsg.CodeTimeout, zmsg.Unknown, "no answer within actors.ask_timeout")
	}
}

// called makes the message.
func (n *Node) called(name string, body io.Reader) (*zmsg.Message, error) {
	id, ok := n.messages.ByName(name)
	if !ok {
		var names []string
		n.messages.IDs(func(_ uint32, name string) { names = append(names, name) })
		if near, ok := settings.Nearest(name, names); ok {
			return nil, fmt.Errorf("there is no message %q with an id, did you mean %s?", name, near)
		}
		return nil, fmt.Errorf("there is no message %q with an id: expected a full name, such as %s", name, names[0])
	}
	text, err := io.ReadAll(io.LimitReader(body, maxCall+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxCall:
		return nil, fmt.Errorf("the body has more than %d bytes", maxCall)
	}
	v, _ := n.messages.New(id)
	if len(strings.TrimSpace(string(text))) > 0 {
		if err := protojson.Unmarshal(text, v); err != nil {
			return nil, fmt.Errorf("the body is no %s in JSON: %w", name, err)
		}
	}
	m := zmsg.NewMessage(id)
	m.Value = v
	return m, nil
}

// writeAnswer writes an answer: the header Zgame-Message names its type.
func (n *Node) writeAnswer(w http.ResponseWriter, a callAnswer) {
	if a.code != zmsg.CodeOK {
		writeCallError(w, a.code, a.outcome, a.text)
		return
	}
	v := a.value
	if v == nil && a.id != 0 {
		var ok bool
		if v, ok = n.messages.New(a.id); !ok {
			writeCallError(w, zmsg.CodeInternal, zmsg.Executed, fmt.Sprintf("the answer has the message id %d, which this program does not know", a.id))
			return
		}
		if err := proto.Unmarshal(a.body, v); err != nil {
			writeCallError(w, zmsg.CodeInternal, zmsg.Executed, "the answer does not parse: "+err.Error())
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if v == nil {
		_, _ = w.Write([]byte("{}\n"))
		return
	}
	w.Header().Set("Zgame-Message", string(v.ProtoReflect().Descriptor().FullName()))
	b, err := protojson.MarshalOptions{Multiline: true, EmitUnpopulated: true}.Marshal(v)
	if err != nil {
		writeCallError(w, zmsg.CodeInternal, zmsg.Executed, err.Error())
		return
	}
	_, _ = w.Write(append(b, '\n'))
}

// writeCallError says how a call failed, and whether it ran.
func writeCallError(w http.ResponseWriter, code zmsg.Code, outcome zmsg.Outcome, text string) {
	status := http.StatusBadGateway
	if code == zmsg.CodeNoRoute {
		status = http.StatusNotFound
	}
	writeText(w, status, fmt.Sprintf("%s (code %d, %s): %s\n", code, code, outcome, text))
}

// callAnswer is a zmsg.Reply that may be kept.
type callAnswer struct {
	id      uint32
	code    zmsg.Code
	outcome zmsg.Outcome
	text    string
	body    []byte
	value   proto.Message
}

// callReply takes the one outcome of a call.
type callReply chan callAnswer

// Reply implements zmsg.Replier.
func (c callReply) Reply(_ uint64, r *zmsg.Reply) {
	select {
	case c <- callAnswer{r.ID, r.Code, r.Outcome, r.Text, append([]byte(nil), r.Body...), r.Value}:
	default: // there was one
	}
}
