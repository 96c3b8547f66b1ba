package app

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"weir/internal/steps"
)

// decodeYAML replaces the placeholder ${NAME} in weir.yaml by an environment variable, after it has parsed the
// YAML. So a value with a quote, a colon or a line break cannot change the structure of the YAML. Braces have a
// meaning in YAML. So the parser receives a mark in place of each placeholder: the name between characters of
// Unicode's private use area.

// A mark has as many characters as its placeholder, so that the positions in error messages are those in the
// file.
const (
	markBegin = "\uE000\uE000"
	markEnd   = "\uE001"
)

var (
	variablePattern = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)
	markPattern     = regexp.MustCompile(markBegin + `([^` + markEnd + `]*)` + markEnd)
	// expressionKeys are the settings that may contain expressions. Package steps replaces the marks in them,
	// so that the value of a variable never becomes part of an expression.
	expressionKeys = []string{"steps", "on", "send", "for"}
	markReverser   = strings.NewReplacer(markBegin, "${", markEnd, "}")
)

// decodeYAML reads YAML into the settings. It returns the names of the variables that the YAML uses and that the
// environment does not set.
func (s *Settings) decodeYAML(text string, env func(string) string) (missing []string, err error) {
	marked := variablePattern.ReplaceAllString(text, markBegin+"$1"+markEnd)
	file, err := parser.ParseBytes([]byte(marked), 0)
	if err != nil {
		return nil, errors.New(markReverser.Replace(yaml.FormatError(err, false, false)) + hintAtBraces(text))
	}
	s.file = steps.NewFile(marked, file.Docs, markPattern, env)
	expander := &envExpander{env: env}
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.NullType {
			continue // the document has only comments
		}
		ast.Walk(expander, doc.Body)
		if err := yaml.NodeToValue(doc.Body, s, yaml.Strict()); err != nil {
			return expander.missing, errors.New(yaml.FormatError(err, false, false))
		}
	}
	return expander.missing, nil
}

// bareExpression matches an expression without quotes, which YAML parses as a mapping.
var bareExpression = regexp.MustCompile(`(?m)[:,\[-][ \t]+\{\{`)

// hintAtBraces returns a hint for a YAML error if the text has an expression without quotes; otherwise "".
func hintAtBraces(text string) string {
	if !bareExpression.MatchString(text) {
		return ""
	}
	return "\nweir.yaml has an expression without quotes; write \"{{ … }}\""
}

// envExpander replaces marks by variables.
type envExpander struct {
	env     func(string) string
	missing []string
}

// Visit implements ast.Visitor.
func (e *envExpander) Visit(n ast.Node) ast.Visitor {
	if pair, ok := n.(*ast.MappingValueNode); ok && slices.Contains(expressionKeys, pair.Key.GetToken().Value) {
		ast.Walk(missingCollector{e}, pair.Value)
		return nil
	}
	if text, ok := n.(*ast.StringNode); ok {
		text.Value = markPattern.ReplaceAllStringFunc(text.Value, e.readVariable)
		text.Token.Value = text.Value
	}
	return e
}

// readVariable returns the value of a mark's variable, and collects its name if it is not set.
func (e *envExpander) readVariable(mark string) string {
	name := markPattern.FindStringSubmatch(mark)[1]
	value := e.env(name)
	if value == "" && !slices.Contains(e.missing, name) {
		e.missing = append(e.missing, name)
	}
	return value
}

// missingCollector collects the variables that are not set, and leaves the marks in place.
type missingCollector struct{ *envExpander }

// Visit implements ast.Visitor.
func (c missingCollector) Visit(n ast.Node) ast.Visitor {
	if text, ok := n.(*ast.StringNode); ok {
		markPattern.ReplaceAllStringFunc(text.Value, c.readVariable)
	}
	return c
}
