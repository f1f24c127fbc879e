package zbus

import (
	"reflect"
	"testing"

	"zgame/zmsg"
)

// What a zmsg.Tell cannot carry makes a message one that is not plain, also what is added to messages later.
func TestPlain(t *testing.T) {
	t.Parallel()
	carried := map[string]bool{"ID": true, "From": true, "Value": true, "Queued": true} // the last is this node's alone
	var m zmsg.Message
	if !plain(&m) {
		t.Error("an empty message is not plain")
	}
	if m.Trace.ID[0] = 1; !plain(&m) {
		t.Error("a message of a trace that is not recorded is not plain")
	}
	for f := range reflect.TypeFor[zmsg.Message]().Fields() {
		if !f.IsExported() || f.Type.Kind() == reflect.Interface {
			continue
		}
		m := zmsg.Message{}
		v := reflect.ValueOf(&m).Elem().FieldByIndex(f.Index)
		if !fill(v) {
			t.Fatalf("%s is a %s: teach the test", f.Name, f.Type)
		}
		if plain(&m) != carried[f.Name] {
			t.Errorf("with %s set a message is plain: %v", f.Name, plain(&m))
		}
	}
}

// fill sets something in v.
func fill(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Int64:
		v.SetInt(1)
	case reflect.String:
		v.SetString("x")
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Array:
		return fill(v.Index(0))
	case reflect.Struct:
		if t, ok := reflect.TypeAssert[interface{ UnmarshalText(text []byte) error }](v.Addr()); ok { // a time
			return t.UnmarshalText([]byte("2026-11-30T10:00:00Z")) == nil
		}
		for _, field := range v.Fields() {
			if !fill(field) {
				return false
			}
		}
	default:
		return false
	}
	return true
}
