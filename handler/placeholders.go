package main

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// ${NAME} stands for a variable of the environment. Variables are put into the parsed values,
// so that whatever stands in one (a quote, a colon, a line break) stays as it is, and cannot
// become YAML of its own. Until then marks stand in their places, for braces mean something
// in YAML.

const (
	markBegin = "\uE000" // for private use: nobody writes them
	markEnd   = "\uE001"
)

var (
	placeholder = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)
	mark        = regexp.MustCompile(markBegin + `([^` + markEnd + `]*)` + markEnd)
	unmarked    = strings.NewReplacer(markBegin, "${", markEnd, "}")
)

// decode reads YAML into the settings, and lists the variables that are named and not set.
func (s *Settings) decode(text string, env func(string) string) (missing []string, err error) {
	file, err := parser.ParseBytes([]byte(placeholder.ReplaceAllString(text, markBegin+"$1"+markEnd)), 0)
	if err != nil {
		return nil, errors.New(unmarked.Replace(yaml.FormatError(err, false, false)))
	}
	fill := &filler{env: env}
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.NullType {
			continue // comments alone
		}
		ast.Walk(fill, doc.Body)
		if err := yaml.NodeToValue(doc.Body, s, yaml.Strict()); err != nil {
			return fill.missing, errors.New(yaml.FormatError(err, false, false))
		}
	}
	return fill.missing, nil
}

// filler puts variables in the places of their marks.
type filler struct {
	env     func(string) string
	missing []string
}

// Visit implements ast.Visitor.
func (f *filler) Visit(n ast.Node) ast.Visitor {
	if text, ok := n.(*ast.StringNode); ok {
		text.Value = mark.ReplaceAllStringFunc(text.Value, f.variable)
		text.Token.Value = text.Value
	}
	return f
}

func (f *filler) variable(marked string) string {
	name := mark.FindStringSubmatch(marked)[1]
	value := f.env(name)
	if value == "" && !slices.Contains(f.missing, name) {
		f.missing = append(f.missing, name)
	}
	return value
}
