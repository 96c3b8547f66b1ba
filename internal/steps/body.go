package steps

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"weir/internal/weir"
)

// body renders the body of a request.
type body interface {
	renderBody(env map[string]any, m *weir.Message) (content []byte, contentType string, err error)
}

// messageBody is the message's body, unchanged.
type messageBody struct{}

func (messageBody) renderBody(_ map[string]any, m *weir.Message) ([]byte, string, error) {
	return m.Body, m.ContentType, nil
}

// tree is a JSON value: a leaf, a list or an object. Leaves can have expressions.
type tree struct {
	leaf   *template // nil = not a leaf, or a leaf without expressions
	fixed  any       // value of a leaf without expressions
	names  []string  // names of an object's fields, in the order of values
	values []*tree   // values of an object's fields, or the items of a list
	isList bool
	isLeaf bool
}

func (f *File) compileTree(n ast.Node, path string, s *scope) *tree {
	n = f.resolveNode(n)
	switch t := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return f.compileObject(n, path, s)
	case *ast.SequenceNode:
		list := &tree{isList: true}
		for i, item := range t.Values {
			list.values = append(list.values,
				f.compileTree(item, fmt.Sprintf("%s[%d]", path, i), s))
		}
		return list

	case *ast.StringNode, *ast.LiteralNode:
		leaf := f.compileTemplate(n, path, s)
		if leaf.isConstant() {
			return &tree{isLeaf: true, fixed: leaf.literalText()}
		}

		if leaf.isSingle() {
			f.requireValue(leaf.parts[0].expression, placeOf(n, path))
		} else {
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

	f.addMistake(placeOf(n, path),
		"this value cannot be part of JSON; write a text, a number, true, false, a list or a "+
			"mapping")
	return &tree{isLeaf: true}
}

// requireValue records a mistake if the value of an expression can never be a part of JSON or of a
// form.
func (f *File) requireValue(e *expression, at place) {
	switch {
	case e.kind == nil:
	case e.kind == rawBytesType:
		f.addMistake(at, bytesElsewhere)
	case slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Func, reflect.Struct},
		e.kind.Kind()):
		f.addMistake(at, "{{ %s }} is %s and cannot be a value; take one part of it", e.source,
			describeType(e.kind))
	}
}

func (f *File) compileObject(n ast.Node, path string, s *scope) *tree {
	object := &tree{}
	pairs, _ := f.readMapping(n, path)
	for _, p := range pairs {
		if strings.Contains(p.key, "{{") {
			f.addMistake(p.at, "a name cannot have an expression; only values can")
			continue
		}
		object.names = append(object.names, p.key)
		object.values = append(object.values, f.compileTree(p.value, p.at.path, s))
	}

	return object
}

// evaluateTree returns the tree's value. If the tree is an expression with the value nil, keep is
// false, and the caller leaves the field or item out. If the settings have a null in place of an
// expression, keep is true.
func (t *tree) evaluateTree(env map[string]any) (value any, keep bool, err error) {
	switch {
	case t.isLeaf && t.leaf == nil:
		return t.fixed, true, nil
	case t.isLeaf:
		value, err := t.leaf.evaluateLeaf(env)
		if _, isRaw := value.(*rawBytes); isRaw && err == nil {
			err = t.leaf.newValueError(errors.New(bytesElsewhere))
		}
		return value, value != nil, err

	case t.isList:
		list := []any{}
		for _, item := range t.values {
			v, keep, err := item.evaluateTree(env)
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
		v, keep, err := t.values[i].evaluateTree(env)
		if err != nil {
			return nil, false, err
		}

		if keep {
			object[name] = v
		}
	}

	return object, true, nil
}

// newValueError returns err with the source of an expression in front of it. The tree t is the
// value of a form's field, and the expression is a part of t. If t is a list, newValueError prefers
// an expression that reads an answer of the CMS or the remembered id. The value of such an
// expression can be different in the next attempt, so a retry can succeed.
func (t *tree) newValueError(err error) error {
	found := err
	for _, leaf := range append([]*tree{t}, t.values...) {
		if leaf.leaf == nil {
			continue
		}

		var value *valueError
		if found = leaf.leaf.newValueError(err); errors.As(found, &value) && value.reads {
			return found
		}
	}

	return found
}

// jsonBody is a JSON document.
type jsonBody struct {
	tree        *tree
	contentType string
}

func (b *jsonBody) renderBody(env map[string]any, _ *weir.Message) ([]byte, string, error) {
	value, _, err := b.tree.evaluateTree(env)
	if err != nil {
		return nil, "", err
	}
	content, err := marshalJSON(value)
	return content, b.contentType, err
}

// marshalJSON returns JSON without HTML escapes.
func marshalJSON(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// graphQLBody is a GraphQL request.
type graphQLBody struct {
	query     string
	variables *tree // nil = no variables
}

func (b *graphQLBody) renderBody(env map[string]any, _ *weir.Message) ([]byte, string, error) {
	request := map[string]any{"query": b.query}
	if b.variables != nil {
		variables, _, err := b.variables.evaluateTree(env)
		if err != nil {
			return nil, "", err
		}
		request["variables"] = variables
	}

	content, err := marshalJSON(request)
	return content, "application/json", err
}

// formBody is a form of the type application/x-www-form-urlencoded.
type formBody struct{ tree *tree }

func (b *formBody) renderBody(env map[string]any, _ *weir.Message) ([]byte, string, error) {
	value, _, err := b.tree.evaluateTree(env)
	if err != nil {
		return nil, "", err
	}

	form := url.Values{}
	fields, _ := value.(map[string]any)
	for i, name := range b.tree.names {
		v, isKept := fields[name]
		if !isKept {
			continue
		}

		for _, item := range asList(v) {
			text, err := toText(item)
			if err != nil {
				return nil, "",
					b.tree.values[i].newValueError(fmt.Errorf("field %s: %w", name, err))
			}
			form.Add(name, text)
		}
	}

	return []byte(form.Encode()), "application/x-www-form-urlencoded", nil
}

// asList returns the items of a list. It returns any other value as a list of one item.
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

// bodyKeys are the settings that define a body.
var bodyKeys = []string{"json", "form", "xml", "multipart", "body", "graphql"}

// compileBody compiles the body of a step. It returns nil if the step has no body.
func (f *File) compileBody(settings map[string]pair, st *step, s *scope) body {
	var found []string
	for _, key := range bodyKeys {
		if _, ok := settings[key]; ok {
			found = append(found, key)
		}
	}

	if len(found) > 1 {
		f.addMistake(settings[found[1]].at, "a step has one body; write %s or %s",
			found[0], found[1])
		return nil
	}

	if len(found) == 0 {
		return nil
	}

	p := settings[found[0]]
	if st.isSafe && found[0] != "graphql" {
		f.addMistake(p.at, "a step with %s has no body; write the values into the address, or write post, put or patch",
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
	case "multipart":
		return f.compileMultipart(p, s)
	}

	return f.compileValueBody(p, s)
}

func (f *File) compileForm(p pair, s *scope) body {
	t := f.compileTree(p.value, p.at.path, s)
	if t.isLeaf || t.isList {
		f.addMistake(p.placeOfValue(),
			"form must be a mapping of fields, such as { name: \"{{ key }}\" }")
		return nil
	}

	for i, field := range t.values {
		isListOfLeaves := field.isList &&
			!slices.ContainsFunc(field.values, func(t *tree) bool { return !t.isLeaf })
		if !field.isLeaf && !isListOfLeaves {
			f.addMistake(
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
		f.addMistake(p.placeOfValue(), "graphql must be the text of a query or a mutation")
		return nil
	}

	if strings.Contains(query, "{{") {
		f.addMistake(
			f.locatePart(p.value, p.at.path, "{{", 0, ""),
			"a query has no {{ expressions }}; name a variable such as "+
				"$path in it, and write its value under variables",
		)
	}

	b := &graphQLBody{query: f.fillVariables(query)}
	if v, ok := settings["variables"]; ok {
		b.variables = f.compileTree(v.value, v.at.path, s)
		if b.variables.isLeaf || b.variables.isList {
			f.addMistake(v.placeOfValue(), "variables must be a mapping of names to values")
		}
		f.checkVariables(query, v, b.variables)
	}

	return b
}

// checkVariables records a mistake for each name under variables that the query does not contain.
// If such a name is a misspelled variable of the query, the CMS would silently take null for the
// query's variable.
func (f *File) checkVariables(query string, p pair, variables *tree) {
	for _, name := range variables.names {
		if !strings.Contains(query, "$"+name) {
			f.addMistake(p.placeOfValue(), "the query has no variable $%s", name)
		}
	}
}
