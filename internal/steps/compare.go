package steps

import (
	"fmt"
	"slices"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser"
)

// The search of a CMS finds what its database takes for equal: another case, other accents, a
// longer value that contains the key. Then the item that a look-up finds is another key's item, and
// the chain writes to it. So a chain that looks an item up by its key must compare a value of the
// answer with the key.

// WarnLookUps returns a warning for each look-up of a contract that finds an item by the key, if a
// step that writes uses the item, and no expression of the chain compares an answer with the key.
func (s *Sender) WarnLookUps(contract string) []string {
	ch := s.chains[contract]
	if ch == nil {
		return nil
	}

	reader := keyReader{paths: ch.keyPaths}
	for _, st := range ch.steps {
		reader.steps = append(reader.steps, st.name)
	}

	for _, st := range ch.steps {
		if slices.ContainsFunc(st.expressions, reader.comparesKey) {
			return nil
		}
	}

	var warnings []string
	for i, st := range ch.steps {
		if !st.isSafe || !slices.ContainsFunc(st.requested, reader.findsByKey) {
			continue
		}

		usesItem := func(e *expression) bool { return slices.Contains(e.steps, st.name) }
		for _, w := range ch.steps[i+1:] {
			if !w.isSafe && slices.ContainsFunc(w.requested, usesItem) {
				warnings = append(warnings,
					fmt.Sprintf("%s: %s finds an item by the key, %s writes to it, "+
						"and nothing compares the item with the key: a CMS that ignores case or accents, or finds "+
						"a part of a value, finds another key's item; see question 3 in docs/recipes.md",
						contract, st.name, w.name))
				break
			}
		}
	}

	return warnings
}

// keyReader finds the uses of the ordering key in expressions.
type keyReader struct {
	paths []string // the paths of the key in the message
	steps []string // the names of all steps
}

// findsByKey reports whether an expression of a request has the key as a value that the CMS
// compares. An id that is made of the key by uuid5 is not such a value: two keys never have the
// same.
func (k keyReader) findsByKey(e *expression) bool {
	found := false
	k.walk(e.source, func(n ast.Node, isHashed bool) { found = found || k.isKey(n) && !isHashed })
	return found
}

// comparesKey reports whether an expression compares the key with a value of an answer.
func (k keyReader) comparesKey(e *expression) bool {
	found := false
	k.walk(e.source, func(n ast.Node, _ bool) {
		b, isBinary := n.(*ast.BinaryNode)
		if isBinary && slices.Contains(comparisons, b.Operator) {
			found = found || k.hasKey(b.Left) && k.isOfAnswer(b.Right) ||
				k.hasKey(b.Right) && k.isOfAnswer(b.Left)
		}
	})

	return found
}

var comparisons = []string{"==", "!=", "in", "contains", "startsWith", "endsWith", "matches"}

// isKey reports whether a node is the key itself, by its name or by its path in the message.
func (k keyReader) isKey(n ast.Node) bool {
	switch t := n.(type) {
	case *ast.IdentifierNode:
		return t.Value == "key" || t.Value == "keys"
	case *ast.CallNode:
		callee, isName := t.Callee.(*ast.IdentifierNode)
		if !isName || callee.Value != "text" || len(t.Arguments) != 1 {
			return false
		}
		path, isText := t.Arguments[0].(*ast.StringNode)
		return isText && slices.Contains(k.paths, path.Value)
	}

	return false
}

// hasKey reports whether a node, or a node in it, is the key, or a variable: a variable may have
// the key as its value.
func (k keyReader) hasKey(n ast.Node) bool {
	return hasNode(n, func(n ast.Node) bool { return k.isKey(n) || k.isVariable(n) })
}

// isOfAnswer reports whether a node has a value of an answer: it reads an answer by the name of a
// step or of a part, the item of a loop, or a variable.
func (k keyReader) isOfAnswer(n ast.Node) bool {
	return hasNode(n, func(n ast.Node) bool {
		switch t := n.(type) {
		case *ast.PointerNode, *ast.MemberNode:
			return true
		case *ast.IdentifierNode:
			return ownParts[t.Value] != "" && ownParts[t.Value] != partStatus || k.isVariable(n)
		}
		return false
	})
}

// isVariable reports whether a node is a name that an expression has declared itself, by let.
func (k keyReader) isVariable(n ast.Node) bool {
	name, isName := n.(*ast.IdentifierNode)
	return isName && !slices.Contains(messageNames(), name.Value) && ownParts[name.Value] == "" &&
		!slices.Contains(k.steps, name.Value) && !isFunctionName(name.Value)
}

func isFunctionName(name string) bool {
	env := map[string]any{}
	addFunctions(env, nil)
	_, isFunction := env[name]
	_, isOfPath := pathFunctions[name]
	return isFunction || isOfPath
}

// walk visits the nodes of an expression. The argument isHashed is true within a call of uuid5.
func (k keyReader) walk(source string, visit func(n ast.Node, isHashed bool)) {
	tree, err := parser.Parse(source)
	if err != nil {
		return // cannot happen: the expression was compiled
	}

	hashed := map[ast.Node]bool{}
	ast.Walk(&tree.Node, visitorFunc(func(n ast.Node) {
		if call, isCall := n.(*ast.CallNode); isCall {
			if callee, isName := call.Callee.(*ast.IdentifierNode); isName &&
				callee.Value == "uuid5" {
				for _, argument := range call.Arguments {
					ast.Walk(&argument, visitorFunc(func(inner ast.Node) { hashed[inner] = true }))
				}
			}
		}
	}))

	ast.Walk(&tree.Node, visitorFunc(func(n ast.Node) { visit(n, hashed[n]) }))
}

// hasNode reports whether a node, or a node in it, has a property.
func hasNode(n ast.Node, has func(ast.Node) bool) bool {
	found := false
	ast.Walk(&n, visitorFunc(func(n ast.Node) { found = found || has(n) }))
	return found
}

// visitorFunc is an ast.Visitor that changes nothing.
type visitorFunc func(ast.Node)

// Visit implements ast.Visitor.
func (f visitorFunc) Visit(n *ast.Node) { f(*n) }
