package contract

import (
	"context"
	"errors"
	"fmt"
	"net/textproto"
	"reflect"
	"slices"
	"strings"

	"github.com/beevik/etree"
	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/vm"

	"weir/internal/weir"
)

// match is the compiled condition of Definition.Match.
type match struct {
	source  string
	program *vm.Program
	paths   map[string]*path // the paths that the condition reads
}

// matchBuiltins are the functions of package expr that a condition can call. The others can make a
// large value of a small one.
var matchBuiltins = []string{"len", "lower", "upper", "trim"}

// maxMatch limits the bytes of a condition.
const maxMatch = 4 << 10

// compileMatch compiles a condition. For an empty text it returns nil.
func compileMatch(source string) (*match, error) {
	if strings.TrimSpace(source) == "" {
		return nil, nil
	}
	if len(source) > maxMatch {
		return nil, fmt.Errorf("the condition has more than %d bytes", maxMatch)
	}

	m := &match{source: strings.TrimSpace(source), paths: map[string]*path{}}
	calls := &matchCalls{match: m}
	options := []expr.Option{expr.Env(m.environment(nil, nil)), expr.AsKind(reflect.Bool),
		expr.DisableAllBuiltins()}
	for _, name := range matchBuiltins {
		options = append(options, expr.EnableBuiltin(name))
	}

	program, err := expr.Compile(m.source, append(options, expr.Patch(calls))...)
	if err := errors.Join(calls.problems...); err != nil {
		return nil, err
	}

	if err != nil {
		line, _, _ := strings.Cut(err.Error(), "\n")
		return nil, fmt.Errorf(
			"%s; it is a condition such as has('./Body/order') or header('SOAPAction') == 'order'",
			line)
	}

	m.program = program

	return m, nil
}

// environment has the functions of a condition. For compileMatch, doc is nil.
func (m *match) environment(doc *etree.Document, headers map[string][]string) map[string]any {
	values := func(given string) []string {
		if p := m.paths[given]; p != nil && doc != nil {
			return p.selectValues(doc)
		}
		return nil
	}

	first := func(values []string) any {
		if len(values) == 0 {
			return nil
		}
		return values[0]
	}

	return map[string]any{
		"text":  func(path string) any { return first(values(path)) },
		"texts": func(path string) []string { return append([]string{}, values(path)...) },
		"has":   func(path string) bool { return len(values(path)) > 0 },
		"header": func(name string) any {
			return first(headers[textproto.CanonicalMIMEHeaderKey(name)])
		},
	}
}

// matchCalls visits a condition. It compiles the paths, and refuses what could take long: a
// condition runs for each message, before its contract is known.
type matchCalls struct {
	match    *match
	problems []error
}

// Visit implements ast.Visitor.
func (c *matchCalls) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.PredicateNode:
		c.problems = append(c.problems,
			errors.New("a condition has no loops such as any(…) and filter(…)"))
	case *ast.BinaryNode:
		if _, isText := n.Right.(*ast.StringNode); n.Operator == "matches" && !isText {
			// else the sender of a message could choose the pattern
			c.problems = append(c.problems,
				errors.New("the pattern of matches must be written out in quotes"))
		}
	case *ast.VariableDeclaratorNode:
		c.problems = append(c.problems, errors.New("a condition has no variables (let)"))
	case *ast.CallNode:
		name, isName := n.Callee.(*ast.IdentifierNode)
		if !isName {
			c.problems = append(c.problems,
				errors.New("a condition calls functions by their names only"))
			return
		}

		if !slices.Contains([]string{"text", "texts", "has"}, name.Value) ||
			len(n.Arguments) != 1 {
			return
		}

		given, isText := n.Arguments[0].(*ast.StringNode)
		if !isText {
			c.problems = append(c.problems,
				fmt.Errorf("the path of %s must be written out in quotes", name.Value))
			return
		}

		p, err := compileSelection(Selection{Path: given.Value})
		if err != nil {
			c.problems = append(c.problems, err)
			return
		}

		c.match.paths[given.Value] = p
	}
}

// holds reports whether the condition holds. The reason says why it does not; "" = it is false.
func (m *match) holds(doc *etree.Document, headers map[string][]string) (holds bool,
	reason string) {
	for _, p := range m.paths {
		if problems := p.checkNested(doc); len(problems) > 0 {
			return false, problems[0].Message
		}
	}

	result, err := expr.Run(m.program, m.environment(doc, headers))
	if err != nil {
		line, _, _ := strings.Cut(err.Error(), "\n")
		return false, line
	}

	holds, isBool := result.(bool)
	if !isBool {
		return false, "its value is neither true nor false"
	}

	return holds, ""
}

// findCandidates returns the contracts for a root element, in the order in which they are tried. A
// contract whose root names the namespace takes precedence over a contract for any namespace.
func (s *Set) findCandidates(root qualifiedName) (found []*compiledContract) {
	for _, name := range []string{"{" + root.uri + "}" + root.local, root.local} {
		for _, c := range s.contracts {
			if c.def.Root == name {
				found = append(found, c)
			}
		}
	}

	return found
}

// needsOf returns the parts of a document that one of the contracts needs.
func needsOf(candidates []*compiledContract) (merged needs) {
	if len(candidates) == 1 {
		return candidates[0].needs
	}

	for _, c := range candidates {
		merged.merge(c.needs)
	}
	return merged
}

// chooseContract returns the first candidate that takes the document. If none does, it returns nil
// and a problem for each condition that does not hold.
func chooseContract(ctx context.Context, candidates []*compiledContract,
	one *scanned) (*compiledContract, []weir.Problem) {
	var problems []weir.Problem
	for _, c := range candidates {
		if c.match == nil {
			return c, nil
		}

		holds, reason := c.match.holds(one.doc, weir.HeadersOf(ctx))
		if holds {
			return c, nil
		}

		message := fmt.Sprintf(
			"contract %s does not take the message, because its match does not hold: %s",
			c.def.Name,
			truncateAt(c.match.source, maxShownMatch))

		if reason != "" {
			message += fmt.Sprintf(" (%s)", truncate(reason))
		}

		problems = append(problems, weir.Problem{Path: "/", Rule: "match", Message: message})
	}

	if len(problems) == 0 {
		problems = []weir.Problem{{Path: "/", Rule: "contract",
			Message: "no contract accepts the root element " + truncate(one.root.String())}}
	}

	return nil, problems
}

// maxShownMatch limits the characters of a condition in a problem.
const maxShownMatch = 300
