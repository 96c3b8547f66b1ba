package settings

import (
	"errors"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"weir/internal/conceal"
	"weir/internal/steps"
	"weir/internal/weir"
)

// decodeYAML replaces each placeholder ${NAME} in weir.yaml by a mark before it parses the YAML. A
// mark is the name between characters of Unicode's private use area. After the parsing, each mark
// is replaced by the value of the variable. So a quote, a colon or a line break in a value cannot
// change the structure of the YAML. The parser does not get the placeholders themselves, because
// braces have a meaning in YAML.
//
// A mark has as many characters as its placeholder, so that error messages have the positions of
// the file.
const (
	markBegin = "\uE000\uE000"
	markEnd   = "\uE001"
)

var (
	variablePattern = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)
	// defaultPattern matches the forms that a shell has for a variable with a default, such as
	// ${NAME:-value}.
	defaultPattern = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*:?[-=?+][^}\n]*\}`)
	markPattern    = regexp.MustCompile(markBegin + `([^` + markEnd + `]*)` + markEnd)
	// expressionKeys names the settings whose values can have expressions. Package steps replaces
	// the marks in these values, so that the value of a variable never becomes part of an
	// expression.
	expressionKeys = []string{"steps", "lookups", "on", "send", "for"}
	markReverser   = strings.NewReplacer(markBegin, "${", markEnd, "}")
)

// decodeYAML reads YAML into the settings. It returns the names of the variables that the YAML
// uses, and that are unset or empty, and an error for each unknown key.
func (s *Settings) decodeYAML(text string, env func(string) string) (missing []string,
	unknown []error, err error) {
	marked := variablePattern.ReplaceAllString(text, markBegin+"$1"+markEnd)
	file, err := parser.ParseBytes([]byte(marked), 0)
	if err != nil {
		return nil, nil, s.describeYAMLError(err, hintAtQuotes(text))
	}

	if m := defaultPattern.FindString(text); m != "" {
		return nil, nil, &weir.SettingProblem{File: s.FileName, Message: m +
			" has a default, which is not supported: write ${NAME}, and set the variable"}
	}

	s.File = steps.NewFile(marked, file.Docs, markPattern, env)
	expander := &envExpander{env: env, values: map[string]string{}}
	s.expander = expander
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.NullType {
			continue // the document has only comments
		}

		ast.Walk(expander, doc.Body)
		s.body = doc.Body
		unknown = append(unknown, findUnknownKeys(doc.Body, reflect.TypeFor[Settings]())...)
		if err := yaml.NodeToValue(doc.Body, s); err != nil {
			return expander.missing, unknown, s.describeTypeError(err)
		}
	}

	return expander.missing, unknown, nil
}

// describeTypeError describes an error of the YAML decoder without the names of Go types, and names
// the setting. For an unknown setting, the result can suggest a name.
func (s *Settings) describeTypeError(err error) error {
	if p := (*weir.SettingProblem)(nil); errors.As(err, &p) {
		return p
	}

	var kind *yaml.UnexpectedNodeTypeError
	if errors.As(err, &kind) && kind.Token != nil {
		want := "a list"
		if kind.Expected == ast.MappingType {
			want = "a group of settings"
		}
		return newTypeError(kind.Token, s.body, want)
	}

	var unknown *yaml.UnknownFieldError
	if errors.As(err, &unknown) && unknown.Token != nil {
		name := unknown.Token.Value
		hint := ""
		if names := listSettingNames(reflect.TypeFor[Settings]()); !slices.Contains(names, name) {
			hint = steps.SuggestName(name, names)
		}
		return s.describeYAMLError(err, hint)
	}

	var wrong *yaml.TypeError
	if !errors.As(err, &wrong) || wrong.Token == nil {
		return s.describeYAMLError(err, "")
	}

	want := wrong.DstType.String()
	switch wrong.DstType.Kind() {
	case reflect.Bool:
		want = "true or false"
	case reflect.Int, reflect.Int64, reflect.Uint64:
		want = "a whole number"
	case reflect.Float64:
		want = "a number"
	case reflect.String:
		want = "a text"
	case reflect.Slice:
		want = "a list"
	case reflect.Map, reflect.Struct:
		want = "a group of settings"
	}

	return newTypeError(wrong.Token, s.body, want)
}

// describeYAMLError returns the problem of an error of the YAML library, with a hint behind it.
func (s *Settings) describeYAMLError(err error, hint string) error {
	var placed yaml.Error
	if errors.As(err, &placed) && placed.GetToken() != nil {
		return newProblemAt(placed.GetToken(), "", "%s",
			markReverser.Replace(placed.GetMessage())+hint).OfText()
	}

	problem := &weir.SettingProblem{File: s.FileName,
		Message: markReverser.Replace(err.Error()) + hint}
	return problem.OfText()
}

// keyOfContract matches the path of a contract's key, which is one path or a list of paths.
var keyOfContract = regexp.MustCompile(`^contracts\[\d+\]\.key$`)

// newTypeError returns the error of a value whose type is wrong, with the setting's path in the
// file.
func newTypeError(at *token.Token, body ast.Node, want string) error {
	path := findPath(body, at)
	if keyOfContract.MatchString(path) {
		want = "a path such as ./@id, or a list of paths"
	}

	return newProblemAt(at, path, "%q is not %s", markReverser.Replace(at.Value), want)
}

// findPath returns the path of the outermost node that begins with a token, such as delivery.brake.
// If there is none, it returns "".
func findPath(body ast.Node, at *token.Token) string {
	finder := &pathFinder{at: at}
	ast.Walk(finder, body)
	return finder.path
}

// pathFinder finds the path of a token.
type pathFinder struct {
	at   *token.Token
	path string
}

// Visit implements ast.Visitor.
func (f *pathFinder) Visit(n ast.Node) ast.Visitor {
	if f.path != "" {
		return nil
	}

	_, isPair := n.(*ast.MappingValueNode)
	if !isPair && n.GetToken() == f.at {
		f.path = strings.TrimPrefix(n.GetPath(), "$.")
	}

	return f
}

// listSettingNames returns the names of all settings in a type, including the settings in nested
// groups.
func listSettingNames(t reflect.Type) (names []string) {
	seen := map[reflect.Type]bool{}
	var addNames func(reflect.Type)
	addNames = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			addNames(t.Elem())
			return
		case reflect.Struct:
		default:
			return
		}

		if seen[t] {
			return
		}

		seen[t] = true

		for i := range t.NumField() {
			f := t.Field(i)
			switch name, options, _ := strings.Cut(f.Tag.Get("yaml"), ","); {
			case name != "" && name != "-":
				names = append(names, name)
				addNames(f.Type)
			case options == "inline":
				addNames(f.Type)
			}
		}
	}

	addNames(t)

	return names
}

// bareExpression matches an expression without quotes. YAML would parse the braces of such an
// expression as a mapping.
var bareExpression = regexp.MustCompile(`(?m)[:,\[-][ \t]+\{\{`)

// bareTemplate matches a value within braces that has an expression and no quotes, such as { get:
// /items/{{ key }} }. YAML would take the braces of the expression for the end of the mapping.
var bareTemplate = regexp.MustCompile(`(?m)\{[ \t]*(?:[a-z]\w*:[ \t]+[^"'\s{}][^"'\n{}]*[ ,])*` +
	`[a-z]\w*:[ \t]+[^"'\s{}][^"'\n{}]*\{\{`)

// bareCondition matches a condition that stands in braces and has no quotes, such as { when:
// len(list ?? []) > 1 }. YAML would parse a bracket or a brace in the condition as the beginning of
// a list or a mapping.
var bareCondition = regexp.MustCompile(`(?m)\{[ \t]*when:[ \t]+[^"'\s][^"'\n]*[\[\]{]`)

// bareAttribute matches a path without quotes that begins with an attribute, such as @id. YAML
// reserves the @.
var bareAttribute = regexp.MustCompile(`(?m)[:,\[-][ \t]+@[\pL_{]`)

// hintAtQuotes returns a hint for a YAML error if the text has a value that needs quotes; otherwise
// "".
func hintAtQuotes(text string) string {
	switch {
	case bareAttribute.MatchString(text):
		return "\nweir.yaml has a path that begins with @ and has no quotes; write \"@name\" or ./@name"
	case bareExpression.MatchString(text):
		return "\nweir.yaml has an expression without quotes; write \"{{ … }}\""
	case bareTemplate.MatchString(text):
		return "\nweir.yaml has braces around a value with {{ and without quotes; write { get: \"/items/{{ … }}\" }"
	case bareCondition.MatchString(text):
		return "\nweir.yaml has a condition with [ or { and without quotes; write { when: \"…\", do: … }"
	}

	return ""
}

// envExpander replaces marks by the values of variables.
type envExpander struct {
	env     func(string) string
	missing []string          // names of the variables that are unset or empty
	values  map[string]string // the values of the variables, by their names
}

// Visit implements ast.Visitor.
func (e *envExpander) Visit(n ast.Node) ast.Visitor {
	if pair, ok := n.(*ast.MappingValueNode); ok &&
		slices.Contains(expressionKeys, pair.Key.GetToken().Value) {
		ast.Walk(missingCollector{e}, pair.Value)
		return nil
	}

	if text, ok := n.(*ast.StringNode); ok {
		text.Value = markPattern.ReplaceAllStringFunc(text.Value, e.readVariable)
		text.Token.Value = text.Value
	}

	return e
}

// readVariable returns the value of a mark's variable. If the value is empty, readVariable adds the
// variable's name to e.missing.
func (e *envExpander) readVariable(mark string) string {
	name := markPattern.FindStringSubmatch(mark)[1]
	value := e.env(name)
	e.values[name] = value
	if value == "" && !slices.Contains(e.missing, name) {
		e.missing = append(e.missing, name)
	}
	return value
}

// shortestValue is the length in bytes from which errors name a variable in place of its value. A
// shorter value, such as a number, is no secret, and helps to find the mistake.
const shortestValue = 6

// hideText returns a text of a problem with ${NAME} in place of the values of variables. A problem
// quotes the value that is wrong, and a secret can stand in the wrong place. The problem is printed,
// logged and shown by weir check.
func (e *envExpander) hideText(text string) string {
	if e == nil {
		return text
	}

	for _, name := range slices.Sorted(maps.Keys(e.values)) {
		if value := e.values[name]; len(value) >= shortestValue {
			f := conceal.NewFinder([]string{value}, conceal.Options{Shortest: 1})
			hidden, isSafe := f.Replace(text, "${"+name+"}")
			if !isSafe {
				hidden = "a setting is wrong; its problem is not shown, because it may have a secret"
			}
			text = hidden
		}
	}

	return text
}

// hideValues returns an error whose text has no values of variables: see hideText.
func (e *envExpander) hideValues(err error) error {
	if err == nil {
		return nil
	}
	return conceal.NewError(e.hideText(err.Error()), err)
}

// missingCollector collects the names of the variables that are unset or empty, but replaces no
// mark.
type missingCollector struct{ *envExpander }

// Visit implements ast.Visitor.
func (c missingCollector) Visit(n ast.Node) ast.Visitor {
	if text, ok := n.(*ast.StringNode); ok {
		markPattern.ReplaceAllStringFunc(text.Value, c.readVariable)
	}
	return c
}

// NamedVariables returns the names in the placeholders of weir.yaml.
func NamedVariables(text string) []string {
	var names []string
	for _, found := range variablePattern.FindAllStringSubmatch(text, -1) {
		names = append(names, found[1])
	}
	return names
}
