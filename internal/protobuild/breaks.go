package protobuild

import (
	"fmt"
	"slices"

	"github.com/bufbuild/protocompile/linker"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Breaks returns what of was, the messages by their ids as others speak them, is different in now, such that they do not understand each other: ids
// that are gone, or another message's; fields, in whatever those messages hold, that are gone without their number being reserved, or have another
// type, or another name in JSON; values of enums likewise.
func Breaks(was, now map[uint32]protoreflect.MessageDescriptor) []string {
	c := &comparison{seen: map[protoreflect.FullName]bool{}}
	ids := make([]uint32, 0, len(was))
	for n := range was {
		ids = append(ids, n)
	}
	slices.Sort(ids)
	for _, n := range ids {
		old, m := was[n], now[n]
		switch {
		case m == nil:
			c.say("message id %d was %s, and is nobody's", n, old.FullName())
		case m.FullName() != old.FullName():
			c.say("message id %d was %s, and is %s", n, old.FullName(), m.FullName())
		default:
			c.message(old, m)
		}
	}
	return c.breaks
}

// Numbered returns the messages of files that id knows a message id of; it takes their full names.
func Numbered(files linker.Files, id func(name string) (uint32, bool)) map[uint32]protoreflect.MessageDescriptor {
	all := map[uint32]protoreflect.MessageDescriptor{}
	var add func(ms protoreflect.MessageDescriptors)
	add = func(ms protoreflect.MessageDescriptors) {
		for i := range ms.Len() {
			if n, ok := id(string(ms.Get(i).FullName())); ok {
				all[n] = ms.Get(i)
			}
			add(ms.Get(i).Messages())
		}
	}
	for _, f := range files {
		add(f.Messages())
	}
	return all
}

type comparison struct {
	seen   map[protoreflect.FullName]bool
	breaks []string
}

func (c *comparison) say(format string, args ...any) {
	c.breaks = append(c.breaks, fmt.Sprintf(format, args...))
}

func (c *comparison) message(was, now protoreflect.MessageDescriptor) {
	if c.seen[was.FullName()] {
		return
	}
	c.seen[was.FullName()] = true
	for i := range was.Fields().Len() {
		old := was.Fields().Get(i)
		x := now.Fields().ByNumber(old.Number())
		if x == nil {
			if !now.ReservedRanges().Has(old.Number()) {
				c.say("field %d of %s (%s) is gone: say `reserved %d;`, so that nobody takes the number for something else", old.Number(), was.FullName(), old.Name(), old.Number())
			}
			continue
		}
		switch {
		case encoding(old) != encoding(x) || old.IsList() != x.IsList() || old.IsMap() != x.IsMap():
			c.say("field %d of %s (%s) was %s, and is %s", old.Number(), was.FullName(), old.Name(), typeText(old), typeText(x))
			continue
		case old.JSONName() != x.JSONName():
			c.say("field %d of %s was called %s, and is called %s: clients that speak JSON know the name", old.Number(), was.FullName(), old.JSONName(), x.JSONName())
		}
		switch {
		case old.IsMap():
			c.value(old.MapValue(), x.MapValue())
		default:
			c.value(old, x)
		}
	}
}

// value compares what fields hold.
func (c *comparison) value(was, now protoreflect.FieldDescriptor) {
	switch {
	case was.Message() != nil && now.Message() != nil:
		c.message(was.Message(), now.Message())
	case was.Enum() != nil && now.Enum() != nil:
		c.enum(was.Enum(), now.Enum())
	}
}

func (c *comparison) enum(was, now protoreflect.EnumDescriptor) {
	if c.seen[was.FullName()] {
		return
	}
	c.seen[was.FullName()] = true
	for i := range was.Values().Len() {
		old := was.Values().Get(i)
		switch v := now.Values().ByNumber(old.Number()); {
		case v == nil && !now.ReservedRanges().Has(old.Number()):
			c.say("value %d of %s (%s) is gone: say `reserved %d;`, so that nobody takes the number for something else", old.Number(), was.FullName(), old.Name(), old.Number())
		case v != nil && now.Values().ByName(old.Name()) == nil:
			c.say("value %d of %s was called %s, and is called %s: clients that speak JSON know the name", old.Number(), was.FullName(), old.Name(), v.Name())
		}
	}
}

// encoding is what a field's value looks like on the wire and means there: types that read each other's values have the same.
func encoding(x protoreflect.FieldDescriptor) string {
	if x.IsMap() {
		return "map of " + encoding(x.MapKey()) + " to " + encoding(x.MapValue())
	}
	switch k := x.Kind(); k {
	case protoreflect.MessageKind:
		return string(x.Message().FullName())
	case protoreflect.EnumKind:
		return string(x.Enum().FullName())
	case protoreflect.Int32Kind, protoreflect.Int64Kind, protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.BoolKind:
		return "varint"
	case protoreflect.Sint32Kind, protoreflect.Sint64Kind:
		return "zigzag"
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind:
		return "four bytes"
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind:
		return "eight bytes"
	default:
		return k.String()
	}
}

func typeText(x protoreflect.FieldDescriptor) string {
	text := x.Kind().String()
	switch {
	case x.IsMap():
		return "map<" + typeText(x.MapKey()) + ", " + typeText(x.MapValue()) + ">"
	case x.Message() != nil:
		text = string(x.Message().FullName())
	case x.Enum() != nil:
		text = string(x.Enum().FullName())
	}
	if x.IsList() {
		return "repeated " + text
	}
	return text
}
