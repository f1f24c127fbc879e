package zactor

import "unsafe"

// goType is the Go type of a value in an interface, for comparing only: what reflect.TypeOf would be, as one pointer. Two
// reflect.Types are interfaces, and comparing those for each message costs a call; see BenchmarkTell.
type goType struct{ word unsafe.Pointer }

// goTypeOf returns the dynamic type of v, zero for nil. An interface without methods is its type's word and its value's, in all
// versions of Go so far; TestGoType fails where that changes.
func goTypeOf(v any) goType { return goType{*(*unsafe.Pointer)(unsafe.Pointer(&v))} }
