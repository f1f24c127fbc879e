package zconsole

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	"zgame/zmsg"
)

// What the forms of messages are made of: their descriptors, as JSON.

// messageName is one type of messages.
type messageName struct {
	ID   uint32 `json:"id"`
	Name string `json:"name"`
}

func (c *Console) serveMessages(w http.ResponseWriter, _ *http.Request) {
	list := []messageName{}
	c.cfg.Messages.IDs(func(id uint32, name string) { list = append(list, messageName{id, name}) })
	slices.SortFunc(list, func(a, b messageName) int { return cmp.Compare(a.Name, b.Name) })
	writeJSON(w, http.StatusOK, list)
}

// form is one type of messages, with the types that its fields have.
type form struct {
	ID     uint32              `json:"id"`
	Name   string              `json:"name"`
	Fields []field             `json:"fields"`
	Types  map[string][]field  `json:"types"` // of fields: messages within, by their full names
	Enums  map[string][]string `json:"enums"`
}

// field is one field. What it is called is as JSON has it.
type field struct {
	Name     string `json:"name"`
	Kind     string `json:"kind"`           // of protobuf: string, bytes, bool, int32, ..., enum, message
	Type     string `json:"type,omitempty"` // of an enum or message: its full name
	Repeated bool   `json:"repeated,omitempty"`
	Map      bool   `json:"map,omitempty"` // of what Kind says, by keys
	Key      bool   `json:"key,omitempty"` // it says for which object the message is
	Oneof    string `json:"oneof,omitempty"`
}

// maxTypes bounds the types of a form; what is deeper has none, and is written as JSON.
const maxTypes = 64

func (c *Console) serveForm(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("message")
	id, ok := c.cfg.Messages.ByName(name)
	if !ok {
		writeError(w, &apiError{http.StatusNotFound, fmt.Sprintf("there is no message %q with an id", name)})
		return
	}
	m, _ := c.cfg.Messages.New(id)
	writeJSON(w, http.StatusOK, formOf(c.cfg.Messages, id, m.ProtoReflect().Descriptor()))
}

func formOf(messages *zmsg.Registry, id uint32, d protoreflect.MessageDescriptor) form {
	f := form{ID: id, Name: string(d.FullName()), Types: map[string][]field{}, Enums: map[string][]string{}}
	key, _ := messages.KeyField(id)
	f.Fields = f.fields(d, int32(key))
	return f
}

// fields returns the fields of a message, and keeps the types that they have.
func (f *form) fields(d protoreflect.MessageDescriptor, key int32) []field {
	list := make([]field, 0, d.Fields().Len())
	for i := range d.Fields().Len() {
		x := d.Fields().Get(i)
		one := field{Name: x.JSONName(), Kind: x.Kind().String(), Repeated: x.IsList(), Map: x.IsMap(), Key: key != 0 && int32(x.Number()) == key}
		if o := x.ContainingOneof(); o != nil && !o.IsSynthetic() {
			one.Oneof = string(o.Name())
		}
		of := x
		if x.IsMap() {
			of = x.MapValue()
			one.Kind = of.Kind().String()
		}
		switch {
		case of.Enum() != nil:
			one.Type = string(of.Enum().FullName())
			f.enum(of.Enum())
		case of.Message() != nil:
			one.Type = string(of.Message().FullName())
			f.message(of.Message())
		}
		list = append(list, one)
	}
	return list
}

func (f *form) enum(d protoreflect.EnumDescriptor) {
	name := string(d.FullName())
	if f.Enums[name] != nil {
		return
	}
	values := make([]string, d.Values().Len())
	for i := range values {
		values[i] = string(d.Values().Get(i).Name())
	}
	f.Enums[name] = values
}

func (f *form) message(d protoreflect.MessageDescriptor) {
	name := string(d.FullName())
	if _, there := f.Types[name]; there || len(f.Types) >= maxTypes {
		return
	}
	f.Types[name] = nil // messages may hold themselves
	f.Types[name] = f.fields(d, 0)
}
