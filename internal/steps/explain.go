package steps

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/expr-lang/expr/builtin"
)

// explainFailure explains the error text of an expression that failed: it returns the cause and a
// correct expression. If explainFailure does not know the error text, it returns the text
// unchanged.
func explainFailure(text string) string {
	rest, isFetch := strings.CutPrefix(text, "cannot fetch ")
	name, isOfNil := strings.CutSuffix(rest, " from <nil>")
	isOfNil = isOfNil && isFetch
	switch {
	case isOfNil && name == "length":
		return "cannot read length of nil; write len(list ?? []) for the length of a list that may be absent"
	case isOfNil && strings.Trim(name, "0123456789") == "":
		return fmt.Sprintf("cannot read item %[1]s of nil; write list?.[%[1]s] if the list may be absent", name)
	case isOfNil:
		return fmt.Sprintf("cannot read %[1]s of nil; write object?.%[1]s if the object may be absent", name)
	case text == "invalid operation: int(string)":
		return "a name is read of a list or a text; write list[0].id for an item, or len(list) for the length"
	case text == "invalid argument for len (type <nil>)":
		return "the argument of len is nil; write len(list ?? []) if the list may be absent"
	}

	return text
}

// firstLine returns the first line of an error, without the position in brackets at the end.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	if i := strings.LastIndex(line, " ("); i > 0 && strings.HasSuffix(line, ")") {
		line = line[:i]
	}
	return line
}

func describeKind(value any) string {
	switch value.(type) {
	case nil:
		return "nil"
	case string:
		return "a text"
	case bool:
		return "true or false"
	case int, float64, json.Number:
		return "a number"
	case map[string]any:
		return "an object"
	case []any, []string:
		return "a list"
	}

	return fmt.Sprintf("a %T", value)
}

func describeType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map:
		return "an object"
	case reflect.Int, reflect.Int64, reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.Pointer:
		return "a step's answer"
	case reflect.Func:
		return "a function"
	}

	return "of another kind"
}

// explainError returns a sentence for the user: the reason why an expression does not compile.
func (s *scope) explainError(err error, source string, env map[string]any) string {
	text := firstLine(err)
	if hint := s.suggestSpelling(text, source); hint != "" {
		return hint
	}

	if name, ok := strings.CutPrefix(text, "unknown name "); ok {
		return s.explainName(name, env)
	}

	if rest, ok := strings.CutPrefix(text, "type *steps.answer has no field "); ok {
		return "a step's answer has no " + rest +
			"; it has status, json, headers, body and xml('path')"
	}

	if rest, ok := strings.CutPrefix(text, "type steps.answer has no field "); ok {
		return "a step's answer has no " + rest +
			"; it has status, json, headers, body and xml('path')"
	}

	text = strings.NewReplacer("*steps.answer", "step's answer", "interface {}", "any value").Replace(text)
	switch {
	case strings.HasPrefix(text, "unexpected token"),
		strings.HasPrefix(text, "literal not terminated"),
		strings.HasPrefix(text, "unclosed"), strings.HasPrefix(text, "unrecognized"),
		strings.HasPrefix(text, "unexpected end"):
		return "the expression cannot be read (" + text +
			"); write one such as text('./title') or find.json.id"
	}

	return text
}

// suggestSpelling returns a sentence with the right spelling for two kinds of expressions: those
// that call a step as a function, and those in the syntax of another language. For other
// expressions it returns "".
func (s *scope) suggestSpelling(text, source string) string {
	if strings.HasPrefix(text, "unexpected token") || strings.HasPrefix(text, "type func(") ||
		strings.HasSuffix(text, "is not callable") {
		for _, st := range append(slices.Clone(s.earlier), s.own) {
			if st != nil && slices.Contains(builtin.Names, st.name) &&
				strings.Contains(source, st.name+"(") {
				return fmt.Sprintf(
					"%[1]s( is a function, so the step %[1]s cannot be read in it; name the step "+
						"%[1]s_item, or write first(filter(…)) for find(…)", st.name)
			}
		}
	}

	method, isMethod := strings.CutPrefix(text, "type string has no method ")
	switch {
	case isMethod:
		return fmt.Sprintf("a text has no %s; write a function in front of it, such as lower(key) or trim(key)", method)
	case strings.HasPrefix(text, `unexpected token Operator("=")`):
		return "= is not known here; write == to compare"
	case strings.HasPrefix(text, `unexpected token Identifier("then")`):
		return "then is not known here; write a choice as condition ? value : other"
	case strings.HasPrefix(text, "invalid operation: ||") && strings.Contains(text, "string"):
		return "|| joins conditions; write ?? for a text in place of nil"
	case strings.HasPrefix(text, `unexpected token Operator(":")`) &&
		strings.Contains(source, "map("):
		return "an object in map needs brackets, such as map(texts('./tag'), ({'name': #}))"
	case strings.HasPrefix(text, "unexpected token EOF") && strings.Contains(source, "|"):
		return "a function behind | needs brackets, such as key | upper()"
	}

	return ""
}

// notWords maps words of other languages to the words of expressions.
var notWords = map[string]string{"null": "nil", "None": "nil", "undefined": "nil", "AND": "and",
	"OR": "or", "NOT": "not", "True": "true", "False": "false"}

func (s *scope) explainName(name string, env map[string]any) string {
	switch {
	case slices.Contains(s.later, name):
		return fmt.Sprintf("%s is a later step; an expression can read the steps above it only",
			name)
	case notWords[name] != "":
		return fmt.Sprintf("%s is not known here; write %s", name, notWords[name])
	case s.own == nil && ownParts[name] != "":
		return fmt.Sprintf("%s is not known here, because this step has no answer yet; read an earlier step's, "+
			"such as find.%s", name, name)
	case s.chain == nil && slices.Contains(messageNames(), name):
		return fmt.Sprintf("%s is of a message, and signing in has none", name)
	case name == "now":
		return "now is not known here, because a repeated request must be the same; use acceptedAt"
	case name == "env" || name == "env_":
		return "the environment cannot be read by expressions; write ${NAME} outside of {{ }}"
	}

	names := slices.Sorted(maps.Keys(env))
	hint := SuggestName(name, names)
	if hint == "" {
		hint = "; known are " + strings.Join(names, ", ")
	}

	return fmt.Sprintf("%s is not known here%s", name, hint)
}
