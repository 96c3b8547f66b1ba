package settings

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"weir/internal/steps"
)

// findUnknownKeys returns an error for each key of a node that is no setting of the type t, in the
// order of the file. It does not look into values that have a form of their own (UnmarshalYAML):
// their decoders refuse unknown keys. The YAML decoder would report only one unknown key, and then
// no problem of another kind.
func findUnknownKeys(n ast.Node, t reflect.Type) (unknown []error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}

	if reflect.PointerTo(t).Implements(nodeDecoder) ||
		reflect.PointerTo(t).Implements(valueDecoder) {
		return nil
	}

	switch values := n.(type) {
	case *ast.SequenceNode:
		for _, value := range values.Values {
			if t.Kind() == reflect.Slice {
				unknown = append(unknown, findUnknownKeys(value, t.Elem())...)
			}
		}

	case *ast.MappingNode:
		for _, pair := range values.Values {
			unknown = append(unknown, findUnknownKeys(pair, t)...)
		}

	case *ast.MappingValueNode:
		if _, isMerge := values.Key.(*ast.MergeKeyNode); isMerge {
			return nil
		}

		if t.Kind() == reflect.Map {
			return findUnknownKeys(values.Value, t.Elem())
		}
		if t.Kind() != reflect.Struct {
			return nil // the decoder reports the wrong type
		}

		key := values.Key.GetToken()
		field, isKnown := fieldTypes(t)[key.Value]
		if !isKnown {
			return []error{newUnknownKeyError(key, t)}
		}

		return findUnknownKeys(values.Value, field)
	}

	return unknown
}

var (
	nodeDecoder  = reflect.TypeFor[yaml.NodeUnmarshaler]()
	valueDecoder = reflect.TypeFor[yaml.InterfaceUnmarshaler]()
)

// fieldTypes returns the types of a struct's settings, by their names. It includes those of inline
// structs.
func fieldTypes(t reflect.Type) map[string]reflect.Type {
	types := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		switch name, options, _ := strings.Cut(f.Tag.Get("yaml"), ","); {
		case name != "" && name != "-":
			types[name] = f.Type
		case options == "inline":
			maps.Copy(types, fieldTypes(f.Type))
		}
	}

	return types
}

// newUnknownKeyError returns the error of an unknown key. It suggests a name of the same group, or
// else one of another group, if the name differs by a slip. Without such a name it lists those of
// the group.
func newUnknownKeyError(key *token.Token, group reflect.Type) error {
	name := markReverser.Replace(key.Value)
	near := slices.Sorted(maps.Keys(fieldTypes(group)))
	all := listSettingNames(reflect.TypeFor[Settings]())
	for _, names := range [][]string{near, all} {
		names = slices.DeleteFunc(slices.Clone(names), func(other string) bool {
			return len(other) < len(name)-1 // such a name differs by more than a slip
		})
		if hint := steps.SuggestName(name, names); hint != "" && !slices.Contains(all, name) {
			return newProblemAt(key, "", "unknown field %q%s", name, hint).OfText()
		}
	}

	return newProblemAt(key, "", "unknown field %q; known here: %s", name,
		strings.Join(near, ", ")).OfText()
}
