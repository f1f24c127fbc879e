package zactor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"zgame/zmsg"
)

// maxText is how much of a message is printed, in bytes.
const maxText = 300

// describeInput says in a line what an input is.
func describeInput(in *recordedInput) string {
	var s string
	switch in.Kind {
	case inputMessage:
		s = bodyText(in.Type, in.ID, in.Body)
		if h := in.Head; h != nil {
			s += headText(h)
		}
	case inputThen:
		r := in.Reply.reply()
		s = fmt.Sprintf("outcome of %v: %s", in.Of, replyText(&r))
	case inputAsync:
		s = fmt.Sprintf("result of %v: %s", in.Of, resultText(in.Result))
	case inputTimer:
		s = fmt.Sprintf("tick of %v", in.Of)
		if in.Key != "" {
			s += fmt.Sprintf(" (%q)", in.Key)
		}
	case inputDown:
		s = fmt.Sprintf("end of what %v is about: %v", in.Of, in.Reason)
	case inputEscalation:
		s = fmt.Sprintf("child %s failed: %s", in.Name, in.Text)
	default:
		s = in.Kind
	}
	return in.At.Format("15:04:05.000 ") + s
}

func headText(h *recordedHead) (s string) {
	switch {
	case h.Name != "":
		s += " from " + h.Name
	case !h.From.IsZero():
		s += " from " + h.From.String()
	}
	if h.User != "" {
		s += " of user " + h.User
	}
	if !h.Session.IsZero() {
		s += fmt.Sprintf(" session %d", h.Session.ID)
	}
	if h.Wants {
		s += " (request)"
	}
	return s
}

func resultText(r *recordedResult) string {
	switch {
	case r.Err != nil:
		return r.Err.Text
	case r.Form == formJSON:
		return cut(string(r.Value))
	default:
		return fmt.Sprintf("%s, %d bytes %s", r.Type, len(r.Value), r.Form)
	}
}

func replyText(r *zmsg.Reply) string {
	switch {
	case r.Code != zmsg.CodeOK:
		return "error: " + r.Err().Error()
	case r.Value != nil:
		return messageText(r.Value)
	case r.ID == 0:
		return "ok"
	default:
		return bodyText("", r.ID, r.Body)
	}
}

func messageText(m proto.Message) string {
	if m == nil {
		return "nothing"
	}
	return string(m.ProtoReflect().Descriptor().FullName()) + " " + cut(jsonText(m))
}

func messageTextOf(m *zmsg.Message) string {
	if m.Value != nil {
		return messageText(m.Value)
	}
	return bodyText("", m.ID, m.Body())
}

// bodyText decodes a body where the program knows its type, by name or by id.
func bodyText(name string, id uint32, body []byte) string {
	typ, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	if err != nil {
		typ = typesByID()[id]
	}
	if typ != nil {
		m := typ.New().Interface()
		if proto.Unmarshal(body, m) == nil {
			return messageText(m)
		}
	}
	if name == "" {
		name = fmt.Sprintf("message %d", id)
	}
	return fmt.Sprintf("%s (%d bytes)", name, len(body))
}

func typeName(id uint32) string {
	if t := typesByID()[id]; t != nil {
		return string(t.Descriptor().FullName())
	}
	return fmt.Sprintf("message %d", id)
}

// typesByID holds what is linked into the program; it never changes.
var typesByID = sync.OnceValue(func() map[uint32]protoreflect.MessageType {
	out := make(map[uint32]protoreflect.MessageType)
	protoregistry.GlobalTypes.RangeMessages(func(t protoreflect.MessageType) bool {
		if id, ok := zmsg.IDOf(t.Zero().Interface()); ok {
			out[id] = t
		}
		return true
	})
	return out
})

func jsonText(m proto.Message) string {
	b, err := protojson.Marshal(m)
	if err != nil {
		return err.Error()
	}
	var out bytes.Buffer
	if json.Compact(&out, b) != nil { // protojson puts blanks in at random
		return string(b)
	}
	return out.String()
}

func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "..."
}
