package steps

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// template is a text with expressions in it.
type template struct{ parts []templatePart }

// templatePart is a literal text or an expression.
type templatePart struct {
	literal    string
	expression *expression
}

// compileTemplate compiles a text with {{ expressions }}. It records mistakes; then the template lacks
// the part.
func (f *File) compileTemplate(n ast.Node, path string, s *scope) *template {
	text, ok := readText(n)
	if !ok {
		f.refuse(placeOf(n, path), "it must be a text")
		return &template{}
	}
	return f.compileText(n, path, text, s, f.fillVariables)
}

// compileText compiles the text of a node. Fill puts variables of the environment into literal parts.
func (f *File) compileText(n ast.Node, path, text string, s *scope, fill func(string) string) *template {
	t := &template{}
	for count := 0; ; count++ {
		literal, rest, found := strings.Cut(text, "{{")
		if literal != "" {
			t.parts = append(t.parts, templatePart{literal: fill(literal)})
		}
		if !found {
			if strings.Contains(literal, "}}") {
				f.refuse(f.locate(n, path, "}}", 0, ""), "}} without {{ before it; write {{ expression }}")
			}
			return t
		}
		end := findEnd(rest)
		if end < 0 {
			f.refuse(f.locate(n, path, "{{", count, ""), "{{ is not closed; write {{ expression }}, or {{ '{{' }} for "+
				"the two braces themselves")
			return t
		}
		source := rest[:end]
		if e := f.compile(source, s, f.locator(n, path, source, count)); e != nil {
			t.parts = append(t.parts, templatePart{expression: e})
		}
		text = rest[end+2:]
	}
}

// locator returns a function that finds the place of a line and column of the expression number count.
func (f *File) locator(n ast.Node, path, source string, count int) func(line, column int) place {
	return func(line, column int) place {
		if line > 1 {
			return f.locateIn(n, path, source, line, column)
		}
		first, _, _ := strings.Cut(source, "\n")
		before := string([]rune(first)[:min(column, len([]rune(first)))])
		at := f.locate(n, path, "{{", count, "{{"+before)
		if column == 0 && at.line > 0 { // the expression, not the space before it
			at = f.locate(n, path, "{{", count, "{{"+leadingSpace(first))
		}
		return at
	}
}

func leadingSpace(text string) string { return text[:len(text)-len(strings.TrimLeft(text, " \t"))] }

// findEnd returns the place of the }} that closes an expression, or -1. Braces in quoted texts and of
// maps belong to the expression.
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

// isSingle reports whether the template is one expression and nothing else.
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

// literal returns the literal parts together.
func (t *template) literal() string {
	var b strings.Builder
	for _, p := range t.parts {
		b.WriteString(p.literal)
	}
	return b.String()
}

// value returns the value of a leaf: a single expression keeps its type, all else is a text.
func (t *template) value(env map[string]any) (any, error) {
	if t.isSingle() {
		return t.parts[0].expression.evaluate(env)
	}
	return t.text(env)
}

// text returns the template as a text. A nil is an empty text.
func (t *template) text(env map[string]any) (string, error) {
	return t.convert(env, func(_ string, value any) (string, error) { return toText(value) })
}

// convert joins the parts. It passes each value through a function, with the literal text before it.
func (t *template) convert(env map[string]any, change func(before string, value any) (string, error)) (string, error) {
	var b, literals strings.Builder
	for _, p := range t.parts {
		if p.expression == nil {
			b.WriteString(p.literal)
			literals.WriteString(p.literal)
			continue
		}
		value, err := p.expression.evaluate(env)
		if err != nil {
			return "", err
		}
		text, err := change(literals.String(), value)
		if err != nil {
			return "", p.expression.fail(err)
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// valueError is a failure to use the value of an expression.
type valueError struct {
	err   error
	reads bool // the value depends on an answer of the CMS
}

func (e *valueError) Error() string { return e.err.Error() }

func (e *expression) fail(err error) error {
	return &valueError{fmt.Errorf("{{ %s }}: %w", e.source, err), e.reads}
}

// requireText records a mistake if a part can never stand in a text.
func (f *File) requireText(t *template, at place) {
	for _, p := range t.parts {
		if p.expression == nil || p.expression.kind == nil {
			continue
		}
		switch p.expression.kind.Kind() {
		case reflect.Slice, reflect.Array, reflect.Map, reflect.Pointer, reflect.Func, reflect.Struct:
			f.refuse(at, "{{ %s }} is %s and cannot stand in a text; take one part of it, or let the value be this "+
				"expression alone", p.expression.source, describeType(p.expression.kind))
		}
	}
}
