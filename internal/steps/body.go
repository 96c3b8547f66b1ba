package steps

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"weir/internal/weir"
)

// body makes the body of a request.
type body interface {
	render(env map[string]any, m *weir.Message) (content []byte, contentType string, err error)
}

// messageBody is the message's own bytes.
type messageBody struct{}

func (messageBody) render(_ map[string]any, m *weir.Message) ([]byte, string, error) {
	return m.Body, m.ContentType, nil
}

// tree is a JSON value whose leaves may be expressions.
type tree struct {
	leaf   *template // set = this is a leaf with expressions
	fixed  any       // the value of a leaf without
	names  []string  // of an object, with its values
	values []*tree
	isList bool
	isLeaf bool
}

// compileTree compiles a YAML value.
func (f *File) compileTree(n ast.Node, path string, s *scope) *tree {
	n = f.resolve(n)
	switch t := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return f.compileObject(n, path, s)
	case *ast.SequenceNode:
		list := &tree{isList: true}
		for i, item := range t.Values {
			list.values = append(list.values, f.compileTree(item, fmt.Sprintf("%s[%d]", path, i), s))
		}
		return list
	case *ast.StringNode, *ast.LiteralNode:
		leaf := f.compileTemplate(n, path, s)
		if leaf.isConstant() {
			return &tree{isLeaf: true, fixed: leaf.literal()}
		}
		if !leaf.isSingle() {
			f.requireText(leaf, placeOf(n, path))
		}
		return &tree{isLeaf: true, leaf: leaf}
	case *ast.IntegerNode:
		return &tree{isLeaf: true, fixed: t.Value}
	case *ast.FloatNode:
		return &tree{isLeaf: true, fixed: t.Value}
	case *ast.BoolNode:
		return &tree{isLeaf: true, fixed: t.Value}
	case *ast.NullNode, nil:
		return &tree{isLeaf: true}
	}
	f.refuse(placeOf(n, path), "this value cannot be part of JSON; write a text, a number, true, false, a list or a "+
		"mapping")
	return &tree{isLeaf: true}
}

func (f *File) compileObject(n ast.Node, path string, s *scope) *tree {
	object := &tree{}
	pairs, _ := f.readMapping(n, path)
	for _, p := range pairs {
		if strings.Contains(p.key, "{{") {
			f.refuse(p.at, "a name cannot have an expression; only values can")
			continue
		}
		object.names = append(object.names, p.key)
		object.values = append(object.values, f.compileTree(p.value, p.at.path, s))
	}
	return object
}

// value returns the tree's value. Keep is false for an expression that is nil: then its field is left
// out.
func (t *tree) value(env map[string]any) (value any, keep bool, err error) {
	switch {
	case t.isLeaf && t.leaf == nil:
		return t.fixed, true, nil
	case t.isLeaf:
		value, err := t.leaf.value(env)
		return value, value != nil, err
	case t.isList:
		list := []any{}
		for _, item := range t.values {
			v, keep, err := item.value(env)
			if err != nil {
				return nil, false, err
			}
			if keep {
				list = append(list, v)
			}
		}
		return list, true, nil
	}
	object := map[string]any{}
	for i, name := range t.names {
		v, keep, err := t.values[i].value(env)
		if err != nil {
			return nil, false, err
		}
		if keep {
			object[name] = v
		}
	}
	return object, true, nil
}

// jsonBody is a JSON document.
type jsonBody struct {
	tree        *tree
	contentType string
}

func (b *jsonBody) render(env map[string]any, _ *weir.Message) ([]byte, string, error) {
	value, _, err := b.tree.value(env)
	if err != nil {
		return nil, "", err
	}
	content, err := marshal(value)
	return content, b.contentType, err
}

// marshal returns JSON, without the escapes for HTML.
func marshal(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// graphQLBody is a GraphQL request.
type graphQLBody struct {
	query     string
	variables *tree // nil = none
}

func (b *graphQLBody) render(env map[string]any, _ *weir.Message) ([]byte, string, error) {
	request := map[string]any{"query": b.query}
	if b.variables != nil {
		variables, _, err := b.variables.value(env)
		if err != nil {
			return nil, "", err
		}
		request["variables"] = variables
	}
	content, err := marshal(request)
	return content, "application/json", err
}

// formBody is a form.
type formBody struct{ tree *tree }

func (b *formBody) render(env map[string]any, _ *weir.Message) ([]byte, string, error) {
	value, _, err := b.tree.value(env)
	if err != nil {
		return nil, "", err
	}
	form := url.Values{}
	fields, _ := value.(map[string]any)
	for name, v := range fields {
		for _, item := range asList(v) {
			text, err := toText(item)
			if err != nil {
				return nil, "", fmt.Errorf("field %s: %w", name, err)
			}
			form.Add(name, text)
		}
	}
	return []byte(form.Encode()), "application/x-www-form-urlencoded", nil
}

// asList returns a list's items, or the value as the only one.
func asList(value any) []any {
	switch v := value.(type) {
	case []any:
		return v
	case []string:
		items := make([]any, len(v))
		for i := range v {
			items[i] = v[i]
		}
		return items
	}
	return []any{value}
}

// bodyKeys are the settings that make a body.
var bodyKeys = []string{"json", "form", "xml", "body", "graphql"}

// compileBody compiles the body of a step, or returns nil if it has none.
func (f *File) compileBody(settings map[string]pair, st *step, s *scope) body {
	var found []string
	for _, key := range bodyKeys {
		if _, ok := settings[key]; ok {
			found = append(found, key)
		}
	}
	if len(found) > 1 {
		f.refuse(settings[found[1]].at, "a step has one body; write %s or %s", found[0], found[1])
		return nil
	}
	if len(found) == 0 {
		return nil
	}
	p := settings[found[0]]
	if st.isSafe && found[0] != "graphql" {
		f.refuse(p.at, "a step with %s has no body; write the values into the address, or write post, put or patch",
			strings.ToLower(st.method))
		return nil
	}
	switch found[0] {
	case "json":
		return &jsonBody{f.compileTree(p.value, p.at.path, s), "application/json"}
	case "form":
		return f.compileForm(p, s)
	case "xml":
		return f.compileXML(p, st, s)
	case "graphql":
		return f.compileGraphQL(settings, p, s)
	}
	if text, _ := readText(p.value); text != "message" {
		f.refuse(p.place(), "it must be message (the message's own bytes); for a body of your own write json, form "+
			"or xml")
	} else if s.chain == nil {
		f.refuse(p.at, "signing in has no message; write json or form")
	}
	return messageBody{}
}

func (f *File) compileForm(p pair, s *scope) body {
	t := f.compileTree(p.value, p.at.path, s)
	if t.isLeaf || t.isList {
		f.refuse(p.place(), "form must be a mapping of fields, such as { name: \"{{ key }}\" }")
		return nil
	}
	for i, field := range t.values {
		isListOfLeaves := field.isList && !slices.ContainsFunc(field.values, func(t *tree) bool { return !t.isLeaf })
		if !field.isLeaf && !isListOfLeaves {
			f.refuse(
				p.at,
				"the field %s of a form must be a text or a list of texts; for a tree write json",
				t.names[i],
			)
		}
	}
	return &formBody{t}
}

func (f *File) compileGraphQL(settings map[string]pair, p pair, s *scope) body {
	query, ok := readText(p.value)
	if !ok || strings.TrimSpace(query) == "" {
		f.refuse(p.place(), "graphql must be the text of a query or a mutation")
		return nil
	}
	if strings.Contains(query, "{{") {
		f.refuse(
			f.locate(p.value, p.at.path, "{{", 0, ""),
			"a query has no {{ expressions }}; name a variable such as "+
				"$path in it, and write its value under variables",
		)
	}
	b := &graphQLBody{query: f.fillVariables(query)}
	if v, ok := settings["variables"]; ok {
		b.variables = f.compileTree(v.value, v.at.path, s)
		if b.variables.isLeaf || b.variables.isList {
			f.refuse(v.place(), "variables must be a mapping of names to values")
		}
		f.checkVariables(query, v, b.variables)
	}
	return b
}

// checkVariables records variables that the query does not name: a typing error would be sent as null.
func (f *File) checkVariables(query string, p pair, variables *tree) {
	for _, name := range variables.names {
		if !strings.Contains(query, "$"+name) {
			f.refuse(p.place(), "the query has no variable $%s", name)
		}
	}
}
