package steps

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// template is a text that can have {{ expressions }}.
type template struct{ parts []templatePart }

// templatePart is a literal text or an expression.
type templatePart struct {
	literal    string
	expression *expression
}

// compileTemplate compiles a text with {{ expressions }}. If an expression does not compile,
// compileTemplate records the mistake and leaves the expression out.
func (f *File) compileTemplate(n ast.Node, path string, s *scope) *template {
	text, ok := readText(n)
	if !ok {
		f.addMistake(placeOf(n, path), "it must be a text")
		return &template{}
	}
	return f.compileText(n, path, text, s, f.fillVariables)
}

// compileText compiles the text of a node. The function fill inserts environment variables into the
// literal parts.
func (f *File) compileText(n ast.Node, path, text string, s *scope,
	fill func(string) string) *template {
	t := &template{}
	for count := 0; ; count++ {
		literal, rest, found := strings.Cut(text, "{{")
		if literal != "" {
			t.parts = append(t.parts, templatePart{literal: fill(literal)})
		}

		if !found {
			if strings.Contains(literal, "}}") {
				f.addMistake(f.locatePart(n, path, "}}", 0, ""),
					"}} without {{ before it; write {{ expression }}")
			}
			return t
		}

		end := findEnd(rest)
		if end < 0 {
			f.addMistake(f.locatePart(n, path, "{{", count, ""),
				"{{ is not closed; write {{ expression }}, or {{ '{{' }} for "+
					"the two braces themselves")
			return t
		}

		source := rest[:end]
		if e := f.compileExpression(source, s, f.newLocator(n, path, source, count)); e != nil {
			t.parts = append(t.parts, templatePart{expression: e})
		}

		text = rest[end+2:]
	}
}

// newLocator returns a function that converts a line (from 1) and a column (from 0) within an
// expression to a place in the file. Parameter count is the number of the expression in the text of
// the node n, from 0.
func (f *File) newLocator(n ast.Node, path, source string, count int) func(line, column int) place {
	return func(line, column int) place {
		if line > 1 {
			return f.locateIn(n, path, source, line, column)
		}

		first, _, _ := strings.Cut(source, "\n")
		before := string([]rune(first)[:min(column, len([]rune(first)))])
		at := f.locatePart(n, path, "{{", count, "{{"+before)
		if column == 0 && at.line > 0 { // the expression begins after {{ and white space
			at = f.locatePart(n, path, "{{", count, "{{"+leadingSpace(first))
		}

		return at
	}
}

func leadingSpace(text string) string { return text[:len(text)-len(strings.TrimLeft(text, " \t"))] }

// findEnd returns the index of the }} that closes an expression, or -1. Braces in quoted texts and
// braces of maps do not close the expression.
func findEnd(text string) int {
	depth, quote := 0, byte(0)
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quote != 0:
			if c == '\\' && quote != '`' {
				i++
			} else if c == quote {
				quote = 0
			}

		case c == '\'' || c == '"' || c == '`':
			quote = c
		case c == '{':
			depth++
		case c == '}' && depth > 0:
			depth--
		case c == '}' && i+1 < len(text) && text[i+1] == '}':
			return i
		}
	}

	return -1
}

// isSingle reports whether the template is one expression without any literal text.
func (t *template) isSingle() bool { return len(t.parts) == 1 && t.parts[0].expression != nil }

// isConstant reports whether the template has no expression.
func (t *template) isConstant() bool {
	for _, p := range t.parts {
		if p.expression != nil {
			return false
		}
	}
	return true
}

// literalText returns the literal parts as one text.
func (t *template) literalText() string {
	var b strings.Builder
	for _, p := range t.parts {
		b.WriteString(p.literal)
	}
	return b.String()
}

// evaluateLeaf returns the template's value. The value of a single expression keeps its type; any
// other value is a text.
func (t *template) evaluateLeaf(env map[string]any) (any, error) {
	if t.isSingle() {
		return t.parts[0].expression.evaluateExpression(env)
	}
	return t.evaluateText(env)
}

// evaluateText returns the template as a text. A nil value becomes an empty text.
func (t *template) evaluateText(env map[string]any) (string, error) {
	return t.joinParts(env, func(_ string, value any) (string, error) { return toText(value) })
}

// joinParts returns the template as a text. It calls the function change to convert each
// expression's value. The first argument of change is all literal text of the template in front of
// the expression.
func (t *template) joinParts(env map[string]any,
	change func(before string, value any) (string, error)) (string, error) {
	if len(t.parts) == 1 && t.parts[0].expression == nil {
		return t.parts[0].literal, nil
	}

	var b, literals strings.Builder
	for _, p := range t.parts {
		if p.expression == nil {
			b.WriteString(p.literal)
			literals.WriteString(p.literal)
			continue
		}

		value, err := p.expression.evaluateExpression(env)
		if err != nil {
			return "", err
		}

		text, err := change(literals.String(), value)
		if err != nil {
			return "", p.expression.newValueError(err)
		}

		b.WriteString(text)
	}

	return b.String(), nil
}

// valueError is the error of an expression that failed, or whose value cannot be used.
type valueError struct {
	err   error
	reads bool     // the expression reads an answer of the CMS, or the remembered id
	steps []string // the names of the earlier steps whose answers the expression reads
}

func (e *valueError) Error() string { return e.err.Error() }

func (e *expression) newValueError(err error) error {
	return &valueError{fmt.Errorf("{{ %s }}: %w", e.source, err), e.reads, e.steps}
}

// requireText records a mistake for each expression whose value can never be a text.
func (f *File) requireText(t *template, at place) {
	for _, p := range t.parts {
		if p.expression == nil || p.expression.kind == nil {
			continue
		}

		if p.expression.kind == rawBytesType {
			f.addMistake(at, bytesElsewhere)
			continue
		}

		switch p.expression.kind.Kind() {
		case reflect.Slice, reflect.Array, reflect.Map, reflect.Pointer, reflect.Func,
			reflect.Struct:
			f.addMistake(at,
				"{{ %s }} is %s and cannot stand in a text; take one part of it, or let the value be this "+
					"expression alone", p.expression.source, describeType(p.expression.kind))
		}
	}
}

// readsRemembered reports whether an expression of the template reads the remembered id.
func (t *template) readsRemembered() bool {
	return t != nil && slices.ContainsFunc(t.parts, func(p templatePart) bool {
		return p.expression != nil && p.expression.readsRemembered
	})
}

// newValueError returns the error of a template whose value cannot be used. The error names the
// template's first expression.
func (t *template) newValueError(err error) error {
	for _, p := range t.parts {
		if p.expression != nil {
			return p.expression.newValueError(err)
		}
	}
	return err
}
