// Package openapitest compares Weir's answers with the OpenAPI document, so that neither changes without the
// other.
package openapitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Document is a parsed OpenAPI document. It is safe for concurrent use.
type Document struct {
	root       map[string]any
	operations []operation

	mu       sync.Mutex
	compiler *jsonschema.Compiler
}

// operation is one method of one path.
type operation struct {
	method string
	path   []string       // segments; see matchPath
	item   map[string]any // the path's object, with all its methods
	self   map[string]any // the operation's object
	place  string         // JSON pointer to the operation
}

// methods are the keys of a path that are operations.
var methods = []string{"get", "put", "post", "delete", "patch", "head"}

// resource is the name of the document in the schema compiler.
const resource = "weir:openapi"

// Read parses a document. Every reference in it must have a target, every key a value, and every schema of the
// components must be valid.
func Read(source []byte) (*Document, error) {
	data, err := yaml.YAMLToJSON(source)
	if err != nil {
		return nil, fmt.Errorf("read YAML: %w", err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	root, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the document is a %T", value)
	}
	d := &Document{root: root, compiler: jsonschema.NewCompiler()}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource(resource, root); err != nil {
		return nil, err
	}
	return d, d.indexOperations()
}

// indexOperations makes the list of operations, and checks the references, keys and schemas that Read demands.
func (d *Document) indexOperations() error {
	for path, item := range asObject(d.root["paths"]) {
		for _, method := range methods {
			if self := asObject(asObject(item)[method]); self != nil {
				d.operations = append(d.operations, operation{
					method: strings.ToUpper(method), path: strings.Split(path, "/"), item: asObject(item), self: self,
					place: "/paths/" + escapePointer(path) + "/" + method})
			}
		}
	}
	slices.SortFunc(d.operations, func(a, b operation) int { return strings.Compare(a.place, b.place) })
	if err := d.checkEach(d.root); err != nil {
		return err
	}
	for name := range asObject(asObject(d.root["components"])["schemas"]) {
		if _, err := d.compileSchema("/components/schemas/" + escapePointer(name)); err != nil {
			return err
		}
	}
	return nil
}

// checkEach returns an error for a reference without a target, and for a key without a value. In YAML, a comma
// in an unquoted text of a flow mapping starts such a key.
func (d *Document) checkEach(v any) error {
	switch v := v.(type) {
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok {
			if target, _ := d.followRef(ref); target == nil {
				return fmt.Errorf("%s leads nowhere", ref)
			}
		}
		for key, each := range v {
			if each == nil {
				return fmt.Errorf("%q has no value", key)
			}
			if err := d.checkEach(each); err != nil {
				return err
			}
		}
	case []any:
		for _, each := range v {
			if err := d.checkEach(each); err != nil {
				return err
			}
		}
	}
	return nil
}

// Operations returns all operations. Each has the form "method path".
func (d *Document) Operations() []string {
	var out []string
	for _, o := range d.operations {
		out = append(out, o.fullName())
	}
	return out
}

func (o *operation) fullName() string { return o.method + " " + strings.Join(o.path, "/") }

// Function returns the function of an operation, which is named as in Operations; "" = unknown. It also reports whether
// the operation needs no key.
func (d *Document) Function(name string) (function string, keyless bool) {
	for _, o := range d.operations {
		if o.fullName() == name {
			function, _ = o.self["x-function"].(string)
			security, own := o.self["security"].([]any)
			return function, own && len(security) == 1 && len(asObject(security[0])) == 0
		}
	}
	return "", false
}

// resolveRef returns an object or, if the object is a reference, the target. It also returns the JSON pointer
// of the result.
func (d *Document) resolveRef(v any, place string) (map[string]any, string) {
	o := asObject(v)
	if ref, ok := o["$ref"].(string); ok {
		return d.followRef(ref)
	}
	return o, place
}

// followRef returns the target of a reference, and its JSON pointer. The target is nil if there is none.
func (d *Document) followRef(ref string) (map[string]any, string) {
	place, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil, ""
	}
	at := d.root
	for part := range strings.SplitSeq(strings.TrimPrefix(place, "/"), "/") {
		at = asObject(at[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)])
	}
	return at, place
}

// compileSchema compiles the schema at a JSON pointer. It compiles each schema only once.
func (d *Document) compileSchema(place string) (*jsonschema.Schema, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.compiler.Compile(resource + "#" + strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D").Replace(place))
}

// validateJSON validates JSON by the schema at a JSON pointer.
func (d *Document) validateJSON(place string, data []byte) error {
	schema, err := d.compileSchema(place)
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("no JSON: %w", err)
	}
	return schema.Validate(value)
}

// validateText validates the text of a header or parameter by the schema at a JSON pointer. The text is valid if the
// schema allows it as a string, or as the JSON value that it may be, such as a number.
func (d *Document) validateText(place, text string) error {
	schema, err := d.compileSchema(place)
	if err != nil {
		return err
	}
	failed := schema.Validate(text)
	var meant any
	if failed != nil && json.Unmarshal([]byte(text), &meant) == nil && schema.Validate(meant) == nil {
		return nil
	}
	return failed
}

func asObject(v any) map[string]any {
	o, _ := v.(map[string]any)
	return o
}

// escapePointer escapes one step of a JSON pointer.
func escapePointer(s string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(s) }
