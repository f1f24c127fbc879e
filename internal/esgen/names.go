package esgen

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// typeName is what a descriptor is exported as: its name behind those of the messages around it.
func typeName(d protoreflect.Descriptor) string { return safe(nested(d)) }

func schemaName(d protoreflect.Descriptor) string { return safe(nested(d) + "Schema") }

func nested(d protoreflect.Descriptor) string {
	name := string(d.Name())
	for p := d.Parent(); ; p = p.Parent() {
		if _, ok := p.(protoreflect.FileDescriptor); ok {
			return name
		}
		name = string(p.Name()) + "_" + name
	}
}

// reserved are the words that no type or constant of a file may be called.
var reserved = words(`break case catch class const continue debugger default delete do else enum export extends false finally for function if import
	in instanceof new null return super switch this throw true try typeof var void while with yield implements interface let package private protected
	public static Object bigint number boolean string object globalThis Uint8Array Partial`)

// ofObjects are the names that members of objects have already.
var ofObjects = words("constructor toString toJSON valueOf")

func words(text string) map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(text) {
		m[w] = true
	}
	return m
}

func safe(name string) string {
	if reserved[name] {
		return name + "$"
	}
	return name
}

func safeMember(name string) string {
	if ofObjects[name] {
		return name + "$"
	}
	return name
}

// local is what a field, or a oneof, is called.
func (f *file) local(d protoreflect.Descriptor) string {
	name := camel(string(d.Name()))
	if name == "" {
		f.faults = append(f.faults, fmt.Errorf("%s: expected a name with a letter: TypeScript leaves underscores out", d.FullName()))
	}
	return safeMember(name)
}

// camel is a name without underscores, with a capital letter behind each, as in JSON.
func camel(name string) string {
	var b strings.Builder
	up := false
	for _, r := range name {
		if r == '_' {
			up = true
			continue
		}
		if up {
			r = unicode.ToUpper(r)
		}
		up = false
		b.WriteRune(r)
	}
	return b.String()
}

// sharedPrefix is what the names of all values begin with that repeats the name of the enum: COLOR_ of an enum Color; "" where not all do.
func sharedPrefix(e protoreflect.EnumDescriptor) string {
	var b strings.Builder
	for i, r := range string(e.Name()) {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	b.WriteByte('_')
	prefix := b.String()
	for i := range e.Values().Len() {
		rest, ok := strings.CutPrefix(strings.ToLower(string(e.Values().Get(i).Name())), prefix)
		if !ok || rest == "" || unicode.IsDigit(rune(rest[0])) {
			return ""
		}
	}
	return prefix
}

// declared is a field as its .proto file declares it, in one line.
func declared(x protoreflect.FieldDescriptor) string {
	o := x.Options().(*descriptorpb.FieldOptions)
	var words, options []string
	switch {
	case x.IsList():
		words = append(words, "repeated")
	case protoutil.ProtoFromFieldDescriptor(x).GetProto3Optional():
		words = append(words, "optional")
	}
	if x.IsMap() {
		words = append(words, fmt.Sprintf("map<%s, %s>", kindName(x.MapKey()), kindName(x.MapValue())))
	} else {
		words = append(words, kindName(x))
	}
	if o != nil && o.Packed != nil {
		options = append(options, fmt.Sprintf("packed = %v", o.GetPacked()))
	}
	if !x.IsExtension() && x.JSONName() != camel(string(x.Name())) {
		options = append(options, fmt.Sprintf("json_name = %q", x.JSONName()))
	}
	if o != nil && o.Jstype != nil {
		options = append(options, "jstype = "+o.GetJstype().String())
	}
	if o.GetDeprecated() {
		options = append(options, "deprecated = true")
	}
	words = append(words, string(x.Name()), "=", fmt.Sprint(x.Number()))
	if len(options) > 0 {
		words = append(words, "["+strings.Join(options, ", ")+"]")
	}
	return strings.Join(words, " ") + ";"
}

func kindName(x protoreflect.FieldDescriptor) string {
	switch {
	case x.Message() != nil:
		return string(x.Message().FullName())
	case x.Enum() != nil:
		return string(x.Enum().FullName())
	}
	return x.Kind().String()
}
