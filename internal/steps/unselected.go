package steps

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser"
)

// A GraphQL server answers with the fields that the query selects. A rule that compares another
// field, such as the path of the item that was found, never holds, and the chain writes to another
// key's item.

// WarnUnselected returns a warning for each field in the answer to a GraphQL request that an
// expression of the contract reads, and that the query does not select.
func (s *Sender) WarnUnselected(contract string) (warnings []string) {
	ch := s.chains[contract]
	if ch == nil {
		return nil
	}

	for _, st := range ch.steps {
		for _, e := range st.expressions {
			r := fieldReader{chain: ch, own: st}
			for _, field := range r.listUnselected(e.source) {
				warning := fmt.Sprintf("%s: %s reads %s, and the query does not select %s",
					contract, st.name, field, field[strings.LastIndexByte(field, '.')+1:])
				if !slices.Contains(warnings, warning) {
					warnings = append(warnings, warning)
				}
			}
		}
	}

	return warnings
}

// fieldReader finds the fields of GraphQL answers that the expressions of a step read.
type fieldReader struct {
	chain *chain
	own   *step
}

// fieldPath is a place in the answer to a GraphQL request, such as find.json.data.item.
type fieldPath struct {
	step  *step
	base  string   // "find.json", or "json" for the step's own answer
	names []string // without the indexes of lists
}

// listUnselected returns the fields that an expression reads, and that their queries do not select.
func (r fieldReader) listUnselected(source string) (fields []string) {
	tree, err := parser.Parse(source)
	if err != nil {
		return nil // cannot happen: the expression was compiled
	}

	check := func(p fieldPath, found bool) {
		if found && p.lacksLast() {
			fields = append(fields, p.base+"."+strings.Join(p.names, "."))
		}
	}

	ast.Walk(&tree.Node, visitorFunc(func(n ast.Node) {
		if member, isMember := n.(*ast.MemberNode); isMember {
			check(r.pathOf(member, nil))
		}

		if list, predicate := loopOf(n); list != nil {
			ast.Walk(&predicate, visitorFunc(func(n ast.Node) {
				if member, isMember := n.(*ast.MemberNode); isMember && isOfItem(member) {
					check(r.pathOf(member, list))
				}
			}))
		}
	}))

	return fields
}

// loopOf returns the list and the predicate of a function such as filter. It returns nil for
// another node, and for a predicate with a loop of its own.
func loopOf(n ast.Node) (list, predicate ast.Node) {
	b, isBuiltin := n.(*ast.BuiltinNode)
	if !isBuiltin || len(b.Arguments) < 2 {
		return nil, nil
	}

	p, isPredicate := b.Arguments[1].(*ast.PredicateNode)
	if !isPredicate || hasNode(p.Node,
		func(n ast.Node) bool { _, isLoop := n.(*ast.PredicateNode); return isLoop }) {
		return nil, nil
	}

	return b.Arguments[0], p.Node
}

// isOfItem reports whether a member belongs to the item of a loop.
func isOfItem(n *ast.MemberNode) bool {
	return hasNode(n, func(n ast.Node) bool { _, isItem := n.(*ast.PointerNode); return isItem })
}

// pathOf returns the place that a node reads. The item of a loop is one of the list. It returns
// false if the node reads no answer to a GraphQL request.
func (r fieldReader) pathOf(n, list ast.Node) (p fieldPath, found bool) {
	switch t := n.(type) {
	case *ast.ChainNode:
		return r.pathOf(t.Node, list)
	case *ast.PointerNode:
		if list == nil || t.Name != "" {
			return p, false
		}
		return r.pathOf(list, nil)

	case *ast.BuiltinNode:
		if !slices.Contains([]string{"filter", "find", "findLast", "first", "last"}, t.Name) {
			return p, false
		}
		return r.pathOf(t.Arguments[0], list)

	case *ast.IdentifierNode:
		if t.Value == string(partJSON) {
			return fieldPath{step: r.own, base: t.Value}, r.own.isGraphQL
		}

		i := slices.IndexFunc(r.chain.steps,
			func(st *step) bool { return st.name == t.Value && st.isGraphQL })
		if i < 0 {
			return p, false
		}

		return fieldPath{step: r.chain.steps[i], base: t.Value}, true

	case *ast.MemberNode:
		p, found = r.pathOf(t.Node, list)
		switch property := t.Property.(type) {
		case *ast.IntegerNode:
			return p, found
		case *ast.StringNode:
			if found && p.base == p.step.name && property.Value == string(partJSON) &&
				len(p.names) == 0 {
				p.base += "." + property.Value
				return p, true
			}

			p.names = append(slices.Clone(p.names), property.Value)
			return p, found
		}
	}

	return p, false
}

var (
	graphQLText      = regexp.MustCompile(`"""(?s:.*?)"""|"(?:[^"\\\n]|\\.)*"|#[^\n]*`)
	graphQLArguments = regexp.MustCompile(`\([^()]*\)`)
)

// lacksLast reports whether the query selects fields of the last but one name, and does not select
// the last one. The fields of a fragment count as selected everywhere. A value that the query does
// not look into can have any members.
func (p fieldPath) lacksLast() bool {
	if len(p.names) < 2 || p.names[0] != "data" {
		return false
	}

	selection := graphQLArguments.ReplaceAllString(graphQLText.ReplaceAllString(p.step.query, ""),
		"")
	last, parent := p.names[len(p.names)-1], p.names[len(p.names)-2]
	word := func(name, behind string) bool {
		found, _ := regexp.MatchString(`\b`+regexp.QuoteMeta(name)+`\b`+behind, selection)
		return found
	}

	isLookedInto := len(p.names) == 2 || word(parent, `\s*(:\s*\w+)?\s*(@\w+\s*)*\{`)

	return isLookedInto && !word(last, "")
}
