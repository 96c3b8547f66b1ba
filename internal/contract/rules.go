package contract

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/beevik/etree"
	"github.com/go-playground/validator/v10"

	"weir/internal/weir"
)

// compiled is a contract ready for use.
type compiled struct {
	def     Definition
	key     *selector
	version *selector
	skip    bool
	success *regexp.Regexp
	fields  []rule
}

type rule struct {
	selector
	tag      string // without required
	required bool
	rule     string // as weir.yaml has it
}

// selector is a path to elements or to an attribute of them.
type selector struct {
	given string
	path  etree.Path
	attr  string
}

// validate checks single values; it is safe for concurrent use.
var validate = validator.New(validator.WithRequiredStructEnabled())

// compile gives the contract and every problem of its definition.
func compile(def Definition) (*compiled, []string) {
	c := &compiled{def: def}
	var problems []string
	note := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if def.Name == "" {
		note("name is missing")
	}
	if def.Root == "" || (strings.HasPrefix(def.Root, "{") && !strings.Contains(def.Root, "}")) {
		note("root must be a local name or {uri}local")
	}
	var err error
	if c.key, err = compilePath(def.Key); err != nil {
		note("key: %v", err)
	}
	if c.version, err = compilePath(def.Version); err != nil {
		note("version: %v", err)
	}
	switch def.OnFailure {
	case "":
		c.skip = def.Key == ""
	case "block", "skip":
		c.skip = def.OnFailure == "skip"
	default:
		note("onFailure is %q and must be block or skip", def.OnFailure)
	}
	if def.Success != "" {
		if c.success, err = regexp.Compile(def.Success); err != nil {
			note("success: %v", err)
		}
	}
	for i, f := range def.Fields {
		r, err := compileRule(f)
		if err != nil {
			note("fields[%d]: %v", i, err)
			continue
		}
		c.fields = append(c.fields, r)
	}
	return c, problems
}

func compilePath(path string) (*selector, error) {
	if path == "" {
		return nil, nil
	}
	s := &selector{given: path}
	if i := strings.LastIndex(path, "/@"); i >= 0 {
		path, s.attr = path[:i], path[i+2:]
		if path == "" {
			path = "."
		}
	}
	var err error
	if s.path, err = etree.CompilePath(path); err != nil {
		return nil, fmt.Errorf("path %q: %w", s.given, err)
	}
	return s, nil
}

func compileRule(f Field) (rule, error) {
	r := rule{rule: f.Rule}
	s, err := compilePath(f.Path)
	if err != nil {
		return r, err
	}
	if s == nil {
		return r, errors.New("path is missing")
	}
	r.selector = *s
	var tags []string
	for tag := range strings.SplitSeq(f.Rule, ",") {
		if tag == "required" {
			r.required = true
		} else if tag != "" {
			tags = append(tags, tag)
		}
	}
	r.tag = strings.Join(tags, ",")
	if f.Rule == "" {
		return r, fmt.Errorf("path %q: rule is missing", f.Path)
	}
	if _, err := check("", r.tag); err != nil {
		return r, fmt.Errorf("path %q: rule %q: %w", f.Path, f.Rule, err)
	}
	return r, nil
}

// check applies a tag to a value and gives the first rule it breaks. The validator panics
// on tags it does not know; at start that is an error with its words.
func check(value, tag string) (broken string, err error) {
	if tag == "" {
		return "", nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	var found validator.ValidationErrors
	if errors.As(validate.Var(value, tag), &found) {
		broken = found[0].Tag()
		if found[0].Param() != "" {
			broken += "=" + found[0].Param()
		}
	}
	return broken, nil
}

// values gives what a path selects, trimmed. Paths begin at the root element; one that
// begins with / begins at the document.
func (s *selector) values(doc *etree.Document) []string {
	var out []string
	for _, e := range doc.Root().FindElementsPath(s.path) {
		if s.attr == "" {
			out = append(out, strings.TrimSpace(text(e)))
		} else if a := e.SelectAttr(s.attr); a != nil {
			out = append(out, strings.TrimSpace(a.Value))
		}
	}
	return out
}

// text is an element's own text, comments and the like left out.
func text(e *etree.Element) string {
	var b strings.Builder
	for _, child := range e.Child {
		if data, ok := child.(*etree.CharData); ok {
			b.WriteString(data.Data)
		}
	}
	return b.String()
}

// apply makes the message, or lists every problem.
func (c *compiled) apply(doc *etree.Document) (weir.Message, []weir.Problem) {
	m := weir.Message{Contract: c.def.Name, Skip: c.skip}
	var problems []weir.Problem
	if c.key != nil {
		key, p := single(c.key, doc, "ordering key")
		problems = append(problems, p...)
		m.Key = key
	}
	if c.version != nil {
		version, p := single(c.version, doc, "version")
		problems = append(problems, p...)
		m.Version = version
	}
	for _, r := range c.fields {
		problems = append(problems, r.problems(doc)...)
	}
	return m, problems
}

// single gives the one value of a path: the key of a message must be beyond doubt.
func single(s *selector, doc *etree.Document, what string) (string, []weir.Problem) {
	problem := func(rule, message string) []weir.Problem {
		return []weir.Problem{{Path: s.given, Rule: rule, Message: "the " + what + " " + message}}
	}
	found := s.values(doc)
	if len(found) == 0 || found[0] == "" {
		return "", problem("required", "is missing")
	}
	for _, other := range found[1:] {
		if other != found[0] {
			return "", problem("one", fmt.Sprintf("has %d different values and must have one", len(found)))
		}
	}
	if len(found[0]) > maxKey {
		return "", problem(fmt.Sprintf("max=%d", maxKey), fmt.Sprintf("has %d bytes and may have %d", len(found[0]), maxKey))
	}
	if strings.ContainsFunc(found[0], unicode.IsControl) {
		return "", problem("printable", "has control characters")
	}
	return found[0], nil
}

func (r *rule) problems(doc *etree.Document) []weir.Problem {
	found := r.values(doc)
	if r.required && (len(found) == 0 || found[0] == "") {
		return []weir.Problem{{Path: r.where(), Rule: "required", Message: fmt.Sprintf("%s is required and is missing", r.where())}}
	}
	var problems []weir.Problem
	for _, v := range found {
		if broken, _ := check(v, r.tag); broken != "" {
			problems = append(problems, weir.Problem{Path: r.where(), Rule: broken, Message: fmt.Sprintf("%s is %s and must satisfy %s", r.where(), quote(v), broken)})
		}
	}
	return problems
}

// where is the path as weir.yaml has it.
func (r *rule) where() string { return r.selector.given }

// maxQuoted is how much of a value a problem repeats.
const maxQuoted = 80

func quote(v string) string {
	if r := []rune(v); len(r) > maxQuoted {
		v = string(r[:maxQuoted]) + "…"
	}
	return fmt.Sprintf("%q", v)
}
