package zactor

import (
	"bytes"
	"runtime/pprof"
	"strings"
)

// labelKey is the key of the pprof label by which the goroutines of actors are told apart.
const labelKey = "zactor"

// maxStack bounds one stack of a report, in bytes.
const maxStack = 16 << 10

// stacksOf returns the stacks of the goroutines with the labels, the innermost call first. It takes a profile of all goroutines, which
// stops the process for a moment.
func stacksOf(labels []string) map[string]string {
	f := &stackFinder{found: make(map[string]string, len(labels)), loop: make(map[string]bool)}
	for _, l := range labels {
		f.found[l] = ""
	}
	_ = pprof.Lookup("goroutine").WriteTo(f, 1) // the finder returns no error
	f.end()
	for l, s := range f.found {
		if s == "" {
			delete(f.found, l)
		}
	}
	return f.found
}

// loopFrame is on the stack of each goroutine that handles messages, and not on those that handlers start.
const loopFrame = ".(*cell).span+"

// stackFinder picks stacks out of a goroutine profile as text: for each stack a line of addresses, one of labels, one for each
// call, and an empty line. It keeps no more than one stack that nobody asked for.
type stackFinder struct {
	found map[string]string // by label; "" if not seen yet
	loop  map[string]bool   // by label: what was found is the loop's, not that of a goroutine which inherited the label

	rest   []byte // of a line that is not whole
	label  string
	isLoop bool
	stack  strings.Builder
}

// Write takes a part of the profile.
func (f *stackFinder) Write(p []byte) (int, error) {
	n := len(p)
	for {
		line, more, whole := bytes.Cut(p, []byte{'\n'})
		if !whole {
			f.rest = append(f.rest, p...)
			return n, nil
		}
		if len(f.rest) > 0 {
			line = append(f.rest, line...)
			f.rest = f.rest[:0]
		}
		f.line(string(line))
		p = more
	}
}

func (f *stackFinder) line(s string) {
	switch {
	case s == "":
		f.end()
	case strings.HasPrefix(s, "# labels: "):
		_, after, _ := strings.Cut(s, `"`+labelKey+`":"`)
		f.label, _, _ = strings.Cut(after, `"`)
	case strings.HasPrefix(s, "#\t"):
		_, call, _ := strings.Cut(s[len("#\t"):], "\t")
		f.isLoop = f.isLoop || strings.Contains(call, loopFrame)
		if f.stack.Len()+len(call) < maxStack {
			f.stack.WriteString(strings.Join(strings.FieldsFunc(call, func(r rune) bool { return r == '\t' }), " "))
			f.stack.WriteByte('\n')
		}
	}
}

// end ends a stack.
func (f *stackFinder) end() {
	if _, wanted := f.found[f.label]; wanted && !f.loop[f.label] {
		f.found[f.label], f.loop[f.label] = f.stack.String(), f.isLoop
	}
	f.label, f.isLoop = "", false
	f.stack.Reset()
}
