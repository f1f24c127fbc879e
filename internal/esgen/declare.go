package esgen

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// doc writes the comment of d, and what it was generated from.
func (f *file) doc(indent string, d protoreflect.Descriptor, from string, deprecated bool) {
	loc := f.fd.SourceLocations().ByDescriptor(d)
	f.p(indent + "/**")
	for _, c := range []string{loc.LeadingComments, loc.TrailingComments} {
		if c == "" {
			continue
		}
		for line := range strings.SplitSeq(strings.TrimSuffix(c, "\n"), "\n") {
			f.p(indent + " *" + strings.ReplaceAll(spaced(line), "*/", `*\/`))
		}
		f.p(indent + " *")
	}
	f.p(indent + " * @generated from " + from)
	f.end(indent, deprecated)
}

func (f *file) end(indent string, deprecated bool) {
	if deprecated {
		f.p(indent + " * @deprecated")
	}
	f.p(indent + " */")
}

// describes is the comment of a descriptor's constant.
func (f *file) describes(deprecated bool, lines ...string) {
	f.p("/**")
	for _, l := range lines {
		f.p(" * " + l)
	}
	f.end("", deprecated)
}

// constant writes `export const name: type = /*@__PURE__*/` and the call that makes it.
func (f *file) constant(name, typ, make string, args ...string) {
	f.p(fmt.Sprintf("export const %s: %s = /*@__PURE__*/", name, typ),
		fmt.Sprintf("  %s(%s);", f.use(codegen, make, false), strings.Join(args, ", ")), "")
}

// fileConst is what the constant of a file is called.
func fileConst(fd protoreflect.FileDescriptor) string {
	name := strings.TrimSuffix(fd.Path(), ".proto")
	return "file_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, name)
}

func (f *file) file() {
	typ := f.use(codegen, "GenFile", true)
	args := []string{fmt.Sprintf("%q", f.embedded())}
	f.use(codegen, "fileDesc", false)
	var deps []string
	for i := range f.fd.Imports().Len() {
		dep := f.fd.Imports().Get(i).FileDescriptor
		deps = append(deps, f.use(f.module(dep), fileConst(dep), false))
	}
	if len(deps) > 0 {
		args = append(args, "["+strings.Join(deps, ", ")+"]")
	}
	f.describes(false, "Describes the file "+f.fd.Path()+".")
	f.constant(fileConst(f.fd), typ, "fileDesc", args...)
	f.types(f.fd)
	for i := range f.fd.Services().Len() {
		f.service(f.fd.Services().Get(i))
	}
	f.extensions(f.fd)
}

// embedded is the descriptor as it is embedded: without what can be derived.
func (f *file) embedded() string {
	d := proto.CloneOf(protoutil.ProtoFromFileDescriptor(f.fd))
	d.SourceCodeInfo, d.Dependency, d.PublicDependency, d.WeakDependency, d.OptionDependency = nil, nil, nil, nil, nil
	var strip func(ms []*descriptorpb.DescriptorProto)
	strip = func(ms []*descriptorpb.DescriptorProto) {
		for _, m := range ms {
			for _, x := range m.Field {
				if x.GetJsonName() == camel(x.GetName()) {
					x.JsonName = nil
				}
			}
			strip(m.NestedType)
		}
	}
	strip(d.MessageType)
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(d)
	if err != nil {
		f.faults = append(f.faults, err)
	}
	return base64.RawStdEncoding.EncodeToString(b)
}

// scope is a file, or a message, with what is declared in it.
type scope interface {
	protoreflect.Descriptor
	Messages() protoreflect.MessageDescriptors
	Enums() protoreflect.EnumDescriptors
	Extensions() protoreflect.ExtensionDescriptors
}

// exports takes the names that the file exports.
func (f *file) exports(s scope) {
	if s == scope(f.fd) {
		f.taken[fileConst(f.fd)] = true
		for i := range f.fd.Services().Len() {
			f.taken[typeName(f.fd.Services().Get(i))] = true
		}
	}
	for i := range s.Messages().Len() {
		m := s.Messages().Get(i)
		if !m.IsMapEntry() {
			f.taken[typeName(m)], f.taken[schemaName(m)] = true, true
			f.exports(m)
		}
	}
	for i := range s.Enums().Len() {
		f.taken[typeName(s.Enums().Get(i))], f.taken[schemaName(s.Enums().Get(i))] = true, true
	}
	for i := range s.Extensions().Len() {
		f.taken[typeName(s.Extensions().Get(i))] = true
	}
}

func (f *file) types(s scope) {
	for i := range s.Messages().Len() {
		if m := s.Messages().Get(i); !m.IsMapEntry() {
			f.message(m)
			f.types(m)
			f.extensions(m)
		}
	}
	for i := range s.Enums().Len() {
		f.enum(s.Enums().Get(i))
	}
}

// place is the arguments by which a descriptor is found in its file.
func place(d protoreflect.Descriptor) []string {
	args := []string{fmt.Sprint(index(d))}
	for p := d.Parent(); ; p = p.Parent() {
		fd, ok := p.(protoreflect.FileDescriptor)
		if ok {
			return append([]string{fileConst(fd)}, args...)
		}
		args = append([]string{fmt.Sprint(index(p))}, args...)
	}
}

// index counts the messages, or whatever d is, ahead of it; those that are entries of maps do not count.
func index(d protoreflect.Descriptor) int {
	n := d.Index()
	in, ok := d.Parent().(scope)
	if _, message := d.(protoreflect.MessageDescriptor); !ok || !message {
		return n
	}
	for i := range n {
		if in.Messages().Get(i).IsMapEntry() {
			n--
		}
	}
	return n
}

func (f *file) message(m protoreflect.MessageDescriptor) {
	old := m.Options().(*descriptorpb.MessageOptions).GetDeprecated()
	f.doc("", m, "message "+string(m.FullName()), old)
	f.p(fmt.Sprintf("export type %s = %s<%q> & {", typeName(m), f.use(core, "Message", true), m.FullName()))
	for i := range m.Fields().Len() {
		x := m.Fields().Get(i)
		one := x.ContainingOneof()
		if one != nil && !one.IsSynthetic() && one.Fields().Get(0) != x {
			continue // it stands with the first of them
		}
		if i > 0 {
			f.p("")
		}
		switch {
		case one == nil || one.IsSynthetic():
			f.doc("  ", x, "field: "+declared(x), x.Options().(*descriptorpb.FieldOptions).GetDeprecated())
			f.p("  " + f.member(x))
		default:
			f.oneof(one)
		}
	}
	f.p("};", "")
	f.describes(old, "Describes the message "+string(m.FullName())+".", fmt.Sprintf("Use `create(%s)` to create a new message.", schemaName(m)))
	f.constant(schemaName(m), f.use(codegen, "GenMessage", true)+"<"+typeName(m)+">", "messageDesc", place(m)...)
}

// member is the line of a field that is in no oneof.
func (f *file) member(x protoreflect.FieldDescriptor) string {
	name := f.local(x)
	switch {
	case x.IsMap():
		key := "string"
		switch x.MapKey().Kind() { //nolint:exhaustive // those that are numbers for JavaScript
		case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind, protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
			key = "number"
		}
		return fmt.Sprintf("%s: { [key: %s]: %s };", name, key, f.typeOf(x.MapValue()))
	case x.IsList():
		return fmt.Sprintf("%s: %s[];", name, f.typeOf(x))
	case x.HasPresence():
		t := f.unwrapped(x)
		if t == "" {
			t = f.typeOf(x)
		}
		return fmt.Sprintf("%s?: %s | undefined;", name, t)
	}
	return fmt.Sprintf("%s: %s;", name, f.typeOf(x))
}

func (f *file) oneof(o protoreflect.OneofDescriptor) {
	f.doc("  ", o, "oneof "+string(o.FullName()), false)
	f.body.WriteString("  " + f.local(o) + ": ")
	for i := range o.Fields().Len() {
		x := o.Fields().Get(i)
		f.p("{")
		f.doc("    ", x, "field: "+declared(x), x.Options().(*descriptorpb.FieldOptions).GetDeprecated())
		f.p("    value: "+f.typeOf(x)+";", fmt.Sprintf("    case: %q;", f.local(x)))
		f.body.WriteString("  } | ")
	}
	f.p("{ case: undefined; value?: undefined };")
}

// unwrapped is the type of a field that is a wrapper, "" for others.
func (f *file) unwrapped(x protoreflect.FieldDescriptor) string {
	m := x.Message()
	if m == nil || m.ParentFile().Path() != "google/protobuf/wrappers.proto" {
		return ""
	}
	return f.typeOf(m.Fields().Get(0))
}

// typeOf is the type of a field's value, or of one of its values.
func (f *file) typeOf(x protoreflect.FieldDescriptor) string {
	switch x.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		if x.Message().FullName() == "google.protobuf.Struct" && x.Parent().FullName() != "google.protobuf.Value" {
			return f.use(core, "JsonObject", true)
		}
		return f.of(x.Message(), typeName(x.Message()))
	case protoreflect.EnumKind:
		return f.of(x.Enum(), typeName(x.Enum()))
	case protoreflect.BoolKind:
		return "boolean"
	case protoreflect.StringKind:
		return "string"
	case protoreflect.BytesKind:
		return "Uint8Array"
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind:
		if x.Options().(*descriptorpb.FieldOptions).GetJstype() == descriptorpb.FieldOptions_JS_STRING {
			return "string"
		}
		return "bigint"
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind,
		protoreflect.FloatKind, protoreflect.DoubleKind:
		return "number"
	}
	panic(fmt.Sprintf("a field of kind %v", x.Kind())) // there are no others
}

func (f *file) enum(e protoreflect.EnumDescriptor) {
	old := e.Options().(*descriptorpb.EnumOptions).GetDeprecated()
	f.doc("", e, "enum "+string(e.FullName()), old)
	f.p("export enum " + typeName(e) + " {")
	prefix := sharedPrefix(e)
	for i := range e.Values().Len() {
		v := e.Values().Get(i)
		if i > 0 {
			f.p("")
		}
		options := ""
		if v.Options().(*descriptorpb.EnumValueOptions).GetDeprecated() {
			options = " [deprecated = true]"
		}
		f.doc("  ", v, fmt.Sprintf("enum value: %s = %d%s;", v.Name(), v.Number(), options), options != "")
		f.p(fmt.Sprintf("  %s = %d,", safeMember(string(v.Name())[len(prefix):]), v.Number()))
	}
	f.p("}", "")
	f.describes(old, "Describes the enum "+string(e.FullName())+".")
	f.constant(schemaName(e), f.use(codegen, "GenEnum", true)+"<"+typeName(e)+">", "enumDesc", place(e)...)
}

func (f *file) extensions(s scope) {
	for i := range s.Extensions().Len() {
		x := s.Extensions().Get(i)
		f.doc("", x, "extension: "+declared(x), x.Options().(*descriptorpb.FieldOptions).GetDeprecated())
		t := f.typeOf(x)
		if x.IsList() {
			t += "[]"
		} else if u := f.unwrapped(x); u != "" {
			t = u
		}
		of := x.ContainingMessage()
		f.constant(typeName(x), fmt.Sprintf("%s<%s, %s>", f.use(codegen, "GenExtension", true), f.of(of, typeName(of)), t), "extDesc", place(x)...)
	}
}

func (f *file) service(s protoreflect.ServiceDescriptor) {
	f.doc("", s, "service "+string(s.FullName()), s.Options().(*descriptorpb.ServiceOptions).GetDeprecated())
	f.p(fmt.Sprintf("export const %s: %s<{", typeName(s), f.use(codegen, "GenService", true)))
	for i := range s.Methods().Len() {
		m := s.Methods().Get(i)
		f.doc("  ", m, fmt.Sprintf("rpc %s.%s", s.FullName(), m.Name()), m.Options().(*descriptorpb.MethodOptions).GetDeprecated())
		kind := [...]string{"unary", "server_streaming", "client_streaming", "bidi_streaming"}[2*btoi(m.IsStreamingClient())+btoi(m.IsStreamingServer())]
		name := string(m.Name())
		f.p("  "+safeMember(strings.ToLower(name[:1])+name[1:])+": {", fmt.Sprintf("    methodKind: %q;", kind),
			fmt.Sprintf("    input: typeof %s;", f.of(m.Input(), schemaName(m.Input()))),
			fmt.Sprintf("    output: typeof %s;", f.of(m.Output(), schemaName(m.Output()))), "  },")
	}
	f.p("}> = /*@__PURE__*/", fmt.Sprintf("  %s(%s);", f.use(codegen, "serviceDesc", false), strings.Join(place(s), ", ")), "")
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
