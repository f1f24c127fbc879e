// Package settings fills a struct of settings from a YAML file and the environment, and tells every fault at once: an
// unknown key with its line and the nearest right name, a value that does not parse with what was expected.
//
// A settings struct nests structs; each field has a `yaml:"name"` tag, a leaf may have `secret:"true"` (never
// printed, unless it is a URL without credentials and options) and `help:"..."`. Of other URLs the credentials are not
// printed. Leaves are string, bool, int, uint64, float64, time.Duration, []string, and types with the methods of Value.
// The key gate.max_sessions is the environment variable PREFIX_GATE_MAX_SESSIONS; lists are separated by commas there. The fields of an
// embedded struct are its holder's. A field map[string]T, T such a struct, holds blocks that the file, or the environment, names.
package settings

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Value is a leaf that reads itself. Expected says what values there are.
type Value interface {
	encoding.TextUnmarshaler
	Expected() string
}

// leaf is one setting: its dotted key, and where its value lives.
type leaf struct {
	key    string
	value  reflect.Value
	secret bool
	help   string
	inMap  bool
}

// Load fills dst (a pointer to a settings struct that already holds the defaults) from YAML text (may be empty; name
// is said in errors) and then from the environment (as os.Environ gives it), which wins. It returns all faults joined.
func Load(dst any, text []byte, name string, environ []string, prefix string) error {
	root := reflect.ValueOf(dst).Elem()
	maps := mapsOf(root, "")
	var doc yaml.Node
	var broken error
	if err := yaml.Unmarshal(text, &doc); err != nil {
		doc = yaml.Node{}
		broken = fmt.Errorf("%s: not YAML: %w", name, err)
	}
	for _, m := range maps {
		m.nameBlocks(&doc, environ, prefix)
	}
	leaves := leavesOf(root, "", maps)
	faults := append([]error{broken}, loadYAML(leaves, maps, &doc, name)...)
	faults = append(faults, loadEnv(leaves, environ, prefix)...)
	for _, m := range maps {
		m.store()
	}
	return errors.Join(faults...)
}

func loadYAML(leaves []leaf, maps []*mapBlock, doc *yaml.Node, name string) []error {
	if doc.Kind == 0 || len(doc.Content) == 0 {
		return nil // an empty file is all defaults
	}
	var faults []error
	seen := map[string]int{}
	var walk func(n *yaml.Node, path string)
	walk = func(n *yaml.Node, path string) {
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		if n.Kind != yaml.MappingNode {
			faults = append(faults, fmt.Errorf("%s:%d: %s: expected a block of settings", name, n.Line, orRoot(path)))
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			k, v := n.Content[i], n.Content[i+1]
			key := strings.TrimPrefix(path+"."+k.Value, ".")
			if line, twice := seen[key]; twice {
				faults = append(faults, fmt.Errorf("%s:%d: %s is set twice, first on line %d", name, k.Line, key, line))
				continue
			}
			seen[key] = k.Line
			at := slices.IndexFunc(leaves, func(l leaf) bool { return l.key == key })
			switch {
			case at >= 0:
				if err := setNode(leaves[at].value, v); err != nil {
					faults = append(faults, fmt.Errorf("%s:%d: %s: %w", name, v.Line, key, err))
				}
			case slices.ContainsFunc(leaves, func(l leaf) bool { return strings.HasPrefix(l.key, key+".") }),
				slices.ContainsFunc(maps, func(m *mapBlock) bool { return m.key == key }):
				if v.Tag != "!!null" { // `gate:` with nothing below is all defaults
					walk(v, key)
				}
			default:
				faults = append(faults, fmt.Errorf("%s:%d: unknown key %s%s", name, k.Line, key, didYouMean(key, withBlocks(keysOf(leaves)))))
			}
		}
	}
	walk(doc.Content[0], "")
	return faults
}

func loadEnv(leaves []leaf, environ []string, prefix string) []error {
	byName := map[string]leaf{}
	for _, l := range leaves {
		byName[EnvName(prefix, l.key)] = l
	}
	names := make([]string, 0, len(byName))
	for n := range byName {
		names = append(names, n)
	}
	slices.Sort(names)
	var faults []error
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, prefix+"_") {
			continue
		}
		l, ok := byName[name]
		if !ok {
			faults = append(faults, fmt.Errorf("environment: unknown variable %s%s", name, didYouMean(name, names)))
			continue
		}
		if err := setText(l.value, value); err != nil {
			faults = append(faults, fmt.Errorf("environment: %s: %w", name, err))
		}
	}
	return faults
}

// EnvName returns the environment variable of a dotted key.
func EnvName(prefix, key string) string {
	return prefix + "_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}

// Keys returns all dotted keys of the settings struct that ptr points to, in its order.
func Keys(ptr any) []string { return keysOf(allLeaves(ptr)) }

// Text returns the effective settings as YAML, secrets replaced, each with its help as a comment.
func Text(ptr any) string {
	var b strings.Builder
	var open []string
	for _, l := range allLeaves(ptr) {
		if l.inMap && l.value.IsZero() {
			continue // it says nothing
		}
		parts := strings.Split(l.key, ".")
		for depth, p := range parts[:len(parts)-1] {
			if depth < len(open) && open[depth] == p {
				continue
			}
			open = append(open[:min(depth, len(open))], p)
			fmt.Fprintf(&b, "%s%s:\n", strings.Repeat("  ", depth), p)
		}
		open = open[:min(len(open), len(parts)-1)]
		line := strings.Repeat("  ", len(parts)-1) + parts[len(parts)-1] + ": " + textOf(l)
		if l.help != "" {
			line = fmt.Sprintf("%-44s # %s", line, l.help)
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// Table returns the settings, with what they hold, as tables of a Markdown document: one under a heading for each first part of the keys.
func Table(ptr any) string {
	var b strings.Builder
	section := ""
	for _, l := range allLeaves(ptr) {
		if l.inMap {
			continue
		}
		if first, _, _ := strings.Cut(l.key, "."); first != section {
			section = first
			fmt.Fprintf(&b, "\n## %s\n\n| key | default | |\n|---|---|---|\n", section)
		}
		value := strings.Trim(textOf(l), `"`)
		if value != "" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", l.key, value, strings.NewReplacer("|", "\\|", "<", "&lt;").Replace(l.help))
	}
	return strings.TrimPrefix(b.String(), "\n")
}

func textOf(l leaf) string {
	if l.secret && !l.value.IsZero() && !bareURL.MatchString(l.value.String()) {
		return `"***"`
	}
	switch v := l.value.Interface().(type) {
	case string:
		return strconv.Quote(withoutCredentials(v))
	case []string:
		quoted := make([]string, len(v))
		for i, s := range v {
			quoted[i] = strconv.Quote(withoutCredentials(s))
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	default:
		return fmt.Sprint(v)
	}
}

// credentials stand between the scheme and the last @ before the path of a URL: a user and password, or a token.
var credentials = regexp.MustCompile(`://[^/?#]*@`)

// withoutCredentials hides what URLs in s say about who connects; where to is no secret.
func withoutCredentials(s string) string { return credentials.ReplaceAllString(s, "://***@") }

// bareURL is a URL that holds nothing but scheme, hosts and path.
var bareURL = regexp.MustCompile(`^[a-z+]+://[^@?#]*$`)

// leavesOf returns the settings of a struct, those of the blocks in maps with them.
func leavesOf(v reflect.Value, path string, maps []*mapBlock) []leaf {
	var leaves []leaf
	eachField(v, path, func(f reflect.StructField, key string, v reflect.Value) {
		switch f.Type.Kind() {
		case reflect.Struct:
			leaves = append(leaves, leavesOf(v, key, maps)...)
		case reflect.Map:
			if i := slices.IndexFunc(maps, func(m *mapBlock) bool { return m.key == key }); i >= 0 {
				leaves = append(leaves, maps[i].leaves()...)
			}
		default:
			leaves = append(leaves, leaf{key: key, value: v, secret: f.Tag.Get("secret") == "true", help: f.Tag.Get("help")})
		}
	})
	return leaves
}

// eachField calls do for the settings and blocks of a struct, with their dotted keys.
func eachField(v reflect.Value, path string, do func(f reflect.StructField, key string, v reflect.Value)) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name := f.Tag.Get("yaml")
		switch {
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			eachField(v.Field(i), path, do)
		case name != "" && name != "-":
			do(f, strings.TrimPrefix(path+"."+name, "."), v.Field(i))
		}
	}
}

// allLeaves returns the settings of the struct that ptr points to, for reading.
func allLeaves(ptr any) []leaf {
	root := reflect.ValueOf(ptr).Elem()
	return leavesOf(root, "", mapsOf(root, ""))
}

func keysOf(leaves []leaf) []string {
	keys := make([]string, len(leaves))
	for i, l := range leaves {
		keys[i] = l.key
	}
	return keys
}

// withBlocks adds the names of the blocks that the keys stand in: gate for gate.address.
func withBlocks(keys []string) []string {
	all := slices.Clone(keys)
	for _, k := range keys {
		for i := strings.LastIndexByte(k, '.'); i >= 0; i = strings.LastIndexByte(k[:i], '.') {
			if block := k[:i]; !slices.Contains(all, block) {
				all = append(all, block)
			}
		}
	}
	return all
}

func orRoot(path string) string {
	if path == "" {
		return "the file"
	}
	return path
}

func setNode(v reflect.Value, n *yaml.Node) error {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.SequenceNode && v.Kind() == reflect.Slice {
		list := make([]string, 0, len(n.Content))
		for _, item := range n.Content {
			if item.Kind != yaml.ScalarNode {
				return errors.New("expected a list of texts")
			}
			list = append(list, item.Value)
		}
		v.Set(reflect.ValueOf(list))
		return nil
	}
	if n.Kind != yaml.ScalarNode {
		return fmt.Errorf("expected %s", expected(v))
	}
	if n.Tag == "!!null" {
		return fmt.Errorf("is empty; expected %s (leave the key out to get the default)", expected(v))
	}
	return setText(v, n.Value)
}

func setText(v reflect.Value, s string) error {
	bad := func() error { return fmt.Errorf("%q is not valid; expected %s", s, expected(v)) }
	switch p := v.Addr().Interface().(type) {
	case *string:
		*p = s
	case *bool:
		b, err := strconv.ParseBool(s)
		if err != nil {
			return bad()
		}
		*p = b
	case *int:
		n, err := strconv.Atoi(s)
		if err != nil {
			return bad()
		}
		*p = n
	case *uint64:
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return bad()
		}
		*p = n
	case *float64:
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return bad()
		}
		*p = f
	case *time.Duration:
		d, err := time.ParseDuration(s)
		if err != nil {
			return bad()
		}
		*p = d
	case *[]string:
		*p = nil
		for item := range strings.SplitSeq(s, ",") {
			if item = strings.TrimSpace(item); item != "" {
				*p = append(*p, item)
			}
		}
	case Value:
		if p.UnmarshalText([]byte(s)) != nil {
			return bad()
		}
	default:
		panic("settings: unsupported type " + v.Type().String()) // a programmer's mistake, seen by the first test
	}
	return nil
}

func expected(v reflect.Value) string {
	if t, ok := reflect.TypeAssert[Value](v.Addr()); ok {
		return t.Expected()
	}
	switch v.Interface().(type) {
	case string:
		return "a text"
	case bool:
		return "true or false"
	case int:
		return "a whole number"
	case uint64:
		return "a whole number from 0"
	case float64:
		return "a number"
	case time.Duration:
		return "a time span with unit, such as 500ms or 10s"
	default:
		return "a list of texts"
	}
}
