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

// ${NAME} in weir.yaml is replaced by a variable of the environment, after the YAML was parsed. So a value
// with a quote, a colon or a line break stays as it is, and cannot add YAML of its own. The braces would
// mean something to the parser, so it sees marks of Unicode's private use area in their place.

// A mark has as many characters as the placeholder, so that positions in the marked text are those of the
// file.
const (
	markBegin = "\uE000\uE000"
	markEnd   = "\uE001"
)

var (
	variablePattern = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)
	markPattern     = regexp.MustCompile(markBegin + `([^` + markEnd + `]*)` + markEnd)
	// expressionKeys are settings with expressions. Package steps puts variables there, so that none becomes
	// part of an expression.
	expressionKeys = []string{"steps", "on", "send", "for"}
	markReverser   = strings.NewReplacer(markBegin, "${", markEnd, "}")
)

// decodeYAML reads YAML into the settings. It returns the variables that the YAML names and the environment
// does not have.
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
			continue // only comments
		}
		ast.Walk(expander, doc.Body)
		if err := yaml.NodeToValue(doc.Body, s, yaml.Strict()); err != nil {
			return expander.missing, errors.New(yaml.FormatError(err, false, false))
		}
	}
	return expander.missing, nil
}

// bareExpression matches an expression as a value without quotes, which YAML takes for a mapping.
var bareExpression = regexp.MustCompile(`(?m)[:,\[-][ \t]+\{\{`)

// hintAtBraces returns the probable cause of an error of YAML, if the text has an expression without quotes.
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

// readVariable returns the value of the variable that a mark names.
func (e *envExpander) readVariable(mark string) string {
	name := markPattern.FindStringSubmatch(mark)[1]
	value := e.env(name)
	if value == "" && !slices.Contains(e.missing, name) {
		e.missing = append(e.missing, name)
	}
	return value
}

// missingCollector notes the variables that are not set, and replaces none.
type missingCollector struct{ *envExpander }

// Visit implements ast.Visitor.
func (c missingCollector) Visit(n ast.Node) ast.Visitor {
	if text, ok := n.(*ast.StringNode); ok {
		markPattern.ReplaceAllStringFunc(text.Value, c.readVariable)
	}
	return c
}
