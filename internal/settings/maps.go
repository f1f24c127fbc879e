package settings

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// mapBlock is a setting that is a map of blocks, whose names whoever writes the settings chooses.
type mapBlock struct {
	key   string
	value reflect.Value            // the map
	named map[string]reflect.Value // the blocks, that can be set
}

// mapsOf returns the maps of a struct, with the blocks that are there.
func mapsOf(v reflect.Value, path string) []*mapBlock {
	var all []*mapBlock
	eachField(v, path, func(f reflect.StructField, key string, v reflect.Value) {
		switch f.Type.Kind() { //nolint:exhaustive // the others are leaves
		case reflect.Struct:
			all = append(all, mapsOf(v, key)...)
		case reflect.Map:
			m := &mapBlock{key, v, make(map[string]reflect.Value)}
			for _, name := range v.MapKeys() {
				m.block(name.String()).Set(v.MapIndex(name))
			}
			all = append(all, m)
		}
	})
	return all
}

// block returns the block of a name, making it if need be.
func (m *mapBlock) block(name string) reflect.Value {
	b, ok := m.named[name]
	if !ok {
		b = reflect.New(m.value.Type().Elem()).Elem()
		m.named[name] = b
	}
	return b
}

func (m *mapBlock) leaves() (all []leaf) {
	for _, name := range slices.Sorted(maps.Keys(m.named)) {
		for _, l := range leavesOf(m.named[name], m.key+"."+name, nil) {
			l.inMap = true
			all = append(all, l)
		}
	}
	return all
}

// nameBlocks makes the blocks that a file and the environment name.
func (m *mapBlock) nameBlocks(doc *yaml.Node, environ []string, prefix string) {
	n := doc
	if n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
		n = n.Content[0]
	}
	for part := range strings.SplitSeq(m.key, ".") {
		n = child(n, part)
	}
	if n != nil && n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			m.block(n.Content[i].Value)
		}
	}
	var settings []string // of one block, as variables have them
	for _, l := range leavesOf(reflect.New(m.value.Type().Elem()).Elem(), "", nil) {
		settings = append(settings, EnvName("", l.key))
	}
	for _, kv := range environ {
		variable, _, _ := strings.Cut(kv, "=")
		rest, ok := strings.CutPrefix(variable, EnvName(prefix, m.key)+"_")
		if !ok {
			continue
		}
		if name := blockName(rest, settings); name != "" && !m.has(name) {
			m.block(strings.ToLower(name))
		}
	}
}

// has reports whether there is a block whose variables have the name.
func (m *mapBlock) has(name string) bool {
	for n := range m.named {
		if EnvName("", n) == "_"+name {
			return true
		}
	}
	return false
}

// blockName takes the name of the setting, the longest that fits, off the end of a variable.
func blockName(variable string, settings []string) string {
	name := ""
	for _, s := range settings {
		if n, ok := strings.CutSuffix(variable, s); ok && (name == "" || len(n) < len(name)) {
			name = n
		}
	}
	return name
}

// child returns the value of a key of a block, nil if it has none.
func child(n *yaml.Node, key string) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			v := n.Content[i+1]
			if v.Kind == yaml.AliasNode {
				v = v.Alias
			}
			return v
		}
	}
	return nil
}

// store puts the blocks into the map.
func (m *mapBlock) store() {
	if len(m.named) == 0 {
		return
	}
	made := reflect.MakeMap(m.value.Type()) // not the one that is there: others may share it
	for name, b := range m.named {
		made.SetMapIndex(reflect.ValueOf(name), b)
	}
	m.value.Set(made)
}
