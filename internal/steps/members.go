package steps

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// memberPath is a chain of constant names by which an expression reads the JSON of an answer, such
// as find.json.id.
type memberPath struct {
	base  string // "find.json", or "json" for the step's own answer
	step  string // "find"; empty = the step's own answer
	names []any  // names of members, and indexes of lists
}

// memberPathOf returns the path of a member node. It returns false for a node that reads no JSON of
// an answer, or a member that the expression expects to be absent (?.).
func (u *uses) memberPathOf(n *ast.MemberNode) (p memberPath, ok bool) {
	var node ast.Node = n
	for {
		switch t := node.(type) {
		case *ast.MemberNode:
			switch property := t.Property.(type) {
			case *ast.StringNode:
				p.names = append(p.names, property.Value)
			case *ast.IntegerNode:
				p.names = append(p.names, property.Value)
			default:
				return p, false
			}

			if t.Optional {
				return p, false
			}

			node = t.Node
			continue

		case *ast.IdentifierNode:
			slices.Reverse(p.names)
			if u.scope.findStep(t.Value) != nil && len(p.names) > 1 &&
				p.names[0] == string(partJSON) {
				p.base, p.step, p.names = t.Value+".json", t.Value, p.names[1:]
				return p, true
			}

			p.base = t.Value
			return p, u.scope.own != nil && t.Value == string(partJSON)
		}

		return p, false
	}
}

// recordMembers records the path of a member node, in place of the paths that it contains.
func (u *uses) recordMembers(n *ast.MemberNode) {
	p, isRead := u.memberPathOf(n)
	if isRead || n.Optional {
		u.dropMembers(n.Node, false)
	}

	if !isRead || u.scope.isLenient {
		return
	}

	if u.members == nil {
		u.members = map[*ast.MemberNode]memberPath{}
	}

	u.members[n] = p
}

// sortedMembers returns the recorded paths in an order that does not change.
func (u *uses) sortedMembers() []memberPath {
	return slices.SortedFunc(maps.Values(u.members), func(a, b memberPath) int {
		return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
}

// dropMembers forgets the paths in a part of an expression that reads members which may be absent.
// With onlyOwn, it forgets only paths into the step's own answer.
func (u *uses) dropMembers(in ast.Node, onlyOwn bool) {
	if len(u.members) > 0 {
		ast.Walk(&in, &memberDropper{u.members, onlyOwn})
	}
}

type memberDropper struct {
	members map[*ast.MemberNode]memberPath
	onlyOwn bool
}

// Visit implements ast.Visitor.
func (d *memberDropper) Visit(node *ast.Node) {
	if n, ok := (*node).(*ast.MemberNode); ok && (!d.onlyOwn || d.members[n].step == "") {
		delete(d.members, n)
	}
}

// visitChoice forgets paths that need not be in each answer: those that the expression evaluates
// only sometimes, those that it compares with nil, and in conditions those into the step's own
// answer, because a rule tells answers apart.
func (u *uses) visitChoice(node ast.Node) {
	switch n := node.(type) {
	case *ast.ConditionalNode:
		u.dropMembers(n.Exp1, false)
		u.dropMembers(n.Exp2, false)
	case *ast.BinaryNode:
		switch n.Operator {
		case "??":
			u.dropMembers(n.Left, false)
			u.dropMembers(n.Right, false)
		case "and", "or", "&&", "||":
			u.dropMembers(n.Right, false)
		}

		_, leftIsNil := n.Left.(*ast.NilNode)
		_, rightIsNil := n.Right.(*ast.NilNode)
		u.dropMembers(n, !leftIsNil && !rightIsNil)
	}
}

// missingName is the name in an environment under which a rehearsal stores the function that is
// called for each member that an answer lacks. Expressions cannot read this name.
const missingName = "\x00missing"

// reportMissing calls the rehearsal's function for each member that the expression reads, and that
// the answer lacks.
func (e *expression) reportMissing(env map[string]any) {
	report, _ := env[missingName].(func(string))
	if report == nil {
		return
	}

	for _, p := range e.members {
		value := env[string(partJSON)]
		if p.step != "" {
			found, _ := env[p.step].(*answer)
			if found == nil {
				continue
			}
			value = found.JSON
		}

		if text := p.describeMissing(value); text != "" {
			report(text)
		}
	}
}

// maxMembers limits the names in the text of describeMissing.
const maxMembers = 10

// describeMissing returns a sentence about the first member of the path that a JSON value lacks, or
// "". It returns "" for values that are not objects, because their errors are explained elsewhere;
// see explainFailure.
func (p memberPath) describeMissing(value any) string {
	read := p.base
	for _, name := range p.names {
		switch name := name.(type) {
		case string:
			object, isObject := value.(map[string]any)
			if !isObject {
				return ""
			}

			next, has := object[name]
			if !has {
				return fmt.Sprintf("%s has no member %s; it has %s", read, name,
					listMembers(object))
			}

			value, read = next, read+"."+name

		case int:
			list, isList := value.([]any)
			if !isList || name < 0 || name >= len(list) {
				return ""
			}
			value, read = list[name], read+"["+strconv.Itoa(name)+"]"
		}
	}

	return ""
}

func listMembers(object map[string]any) string {
	names := slices.Sorted(maps.Keys(object))
	if len(names) == 0 {
		return "none"
	}

	if len(names) > maxMembers {
		names = append(names[:maxMembers], "…")
	}

	return strings.Join(names, ", ")
}
