package steps

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/vm/runtime"
)

// The expressions for one request of an attempt share a budget of work. A unit is a byte or an item
// that an expression reads or makes; it takes a few nanoseconds. Upstreams choose the sizes of a
// message's lists and texts, so an expression that is harmless for ten tags can be quadratic, or
// fill the memory, for 100,000.
const (
	// mostWork and workPerByte are the units for a request: about half a second of a core. A recipe
	// reads each value of a message a few times, which takes a thousandth of that.
	mostWork, workPerByte = 64 << 20, 16
	// mostValue and valuePerByte limit the size of one text, or of one list with all its items. A
	// request for a CMS is about as large as its message; base64 and escapes at most multiply it by
	// six.
	mostValue, valuePerByte = 16 << 20, 6
	// stepWork is the work of one step of a loop such as map or any. The interpreter takes some 200
	// ns for it.
	stepWork = 32
	// clockWork is the work between two looks at the clock: less than a millisecond.
	clockWork = 64 << 10
)

// errOutOfTime is the error of an expression whose attempt ended.
var errOutOfTime = errors.New("the attempt ended while it was evaluated")

// work is the budget of the expressions of an attempt. The interpreter looks at no clock, so all
// loops and all functions that read texts or lists spend work, and the budget looks at the clock.
// So an expression ends with its attempt, in the goroutine of the attempt. A work is not safe for
// concurrent use.
type work struct {
	ctx       context.Context // ends with the attempt
	size      int64           // size of the message
	left      int64
	toClock   int64 // units until the next look at the clock
	mostValue int64
	failed    error // why the budget stopped an expression; then it stops each further one, too
}

// newWork returns the budget for a message of "size" bytes.
func newWork(ctx context.Context, size int) *work {
	w := &work{ctx: ctx, size: int64(size), mostValue: mostValue + valuePerByte*int64(size)}
	w.renew()
	return w
}

// renew begins the budget of the next request.
func (w *work) renew() {
	if w != nil {
		w.left, w.toClock, w.failed = mostWork+workPerByte*w.size, clockWork, nil
	}
}

// spend takes units from the budget. If none are left, or if the attempt has ended, spend panics;
// the interpreter turns the panic into its error.
func (w *work) spend(units int64) {
	w.left -= units
	w.toClock -= units
	switch {
	case w.failed != nil:
	case w.left < 0:
		w.failed = errors.New(
			"it needs too much work; the message or the answer has too many or too large values " +
				"for it")

	case w.toClock < 0:
		w.toClock = clockWork
		if w.ctx.Err() != nil {
			w.failed = errOutOfTime
		}
	}

	if w.failed != nil {
		panic(w.failed)
	}
}

// spendValue spends the work for a value of "size" units that is about to be made.
func (w *work) spendValue(size int64) {
	if size > w.mostValue && w.failed == nil {
		w.failed = fmt.Errorf("it makes a value of more than %d bytes", w.mostValue)
	}
	w.spend(size)
}

// measureResult measures the value of an expression. It returns an error if the value is too large.
func (w *work) measureResult(value any) (err error) {
	defer func() {
		if p := recover(); p != nil && w.failed == nil {
			panic(p)
		}
		err = w.failed
	}()

	w.measure(value)
	return nil
}

// measure spends the size of a value: its texts, and all items of its lists and objects. A list can
// contain one list many times, so the size can be far larger than the memory of the value.
func (w *work) measure(value any) {
	before := w.left
	w.addSize(value, before-w.mostValue)
}

// addSize spends the size of a value. It fails if the units that are left fall below "least".
func (w *work) addSize(value any, least int64) {
	size := int64(1)
	switch v := value.(type) {
	case string:
		size += int64(len(v))
	case []string:
		for _, text := range v {
			size += int64(len(text)) + 1
		}
	}

	if w.left-size < least {
		w.spendValue(w.mostValue + 1)
	}

	w.spend(size)

	switch v := value.(type) {
	case []any:
		for _, item := range v {
			w.addSize(item, least)
		}

	case map[string]any:
		for name, item := range v {
			w.addSize(name, least)
			w.addSize(item, least)
		}
	}
}

// The names of the functions that meter adds to expressions. No expression can be written with
// these names.
const (
	tickName    = "\x00step"
	measureName = "\x00measure"
	matchName   = "\x00matches"
	equalName   = "\x00equal"
	exactName   = "\x00exact"
	productName = "\x00product"
	// followed by the name of the function of package expr that it replaces
	ownPrefix = "\x00own "
	workName  = "\x00work" // the *work of an environment
)

// addWork adds a budget, and the functions that spend it, to the environment env.
func addWork(env map[string]any, w *work) {
	env[workName] = w
	env[tickName] = func(...any) any { w.spend(stepWork); return nil }
	env[measureName] = func(args ...any) any { w.measure(args[0]); return args[0] }
	env[matchName] = w.matchText
	env[equalName] = func(args ...any) any { return areEqual(args[0], args[1]) }
	env[productName] = func(args ...any) any { return multiply(args[0], args[1]) }
	env[exactName] = func(args ...any) any { return requireExact(args[0]) }
	for name, replacement := range map[string]func(...any) any{"uniq": w.removeRepeats,
		"join":    w.joinTexts,
		"replace": w.replaceText, "repeat": w.repeatText, "split": w.splitText,
		"splitAfter": w.splitText} {
		env[ownPrefix+name] = func(args ...any) any {
			return replacement(append([]any{name}, args...)...)
		}
	}
}

// meter is a visitor that makes an expression spend the work of its environment.
type meter struct{ own []string }

// cheap has the functions of package expr whose work does not depend on the size of their
// arguments.
var cheap = []string{"first", "last", "get", "type", "int", "float", "abs", "ceil", "floor",
	"round", "duration", "date",
	"timezone", "bitand", "bitor", "bitxor", "bitnand", "bitnot", "bitshl", "bitshr", "bitushr"}

// Visit implements ast.Visitor. It visits the inner nodes of a node first.
func (m *meter) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.MemberNode:
		lowerHeaderName(n)
	case *ast.PredicateNode:
		n.Node = &ast.SequenceNode{Nodes: []ast.Node{newCall(tickName), n.Node}}
	case *ast.SliceNode:
		n.Node = newMeasure(n.Node)
	case *ast.BinaryNode:
		m.visitBinary(node, n)
	case *ast.BuiltinNode:
		if slices.Contains(m.own, n.Name) {
			ast.Patch(node, newCall(ownPrefix+n.Name, n.Arguments...))
			return
		}

		for i, argument := range n.Arguments {
			if !slices.Contains(cheap, n.Name) {
				n.Arguments[i] = newMeasure(argument)
			}
		}
	}
}

func (m *meter) visitBinary(node *ast.Node, n *ast.BinaryNode) {
	switch n.Operator {
	case "matches":
		if _, isConstant := n.Right.(*ast.StringNode); isConstant {
			n.Left = newMeasure(n.Left)
			return
		}
		ast.Patch(node, newCall(matchName, n.Left, n.Right))

	case "==", "!=":
		equal := newCall(equalName, newMeasure(n.Left), newMeasure(n.Right))
		if n.Operator == "!=" {
			ast.Patch(node, &ast.UnaryNode{Operator: "not", Node: equal})
			return
		}
		ast.Patch(node, equal)

	case "*":
		ast.Patch(node, newCall(productName, newMeasure(n.Left), newMeasure(n.Right)))
	case "+", "-", "/", "%", "**", "^":
		n.Left, n.Right = newCall(exactName, newMeasure(n.Left)),
			newCall(exactName, newMeasure(n.Right))
		ast.Patch(node, newCall(exactName, n))

	case "in", "contains", "startsWith", "endsWith":
		n.Left, n.Right = newMeasure(n.Left), newMeasure(n.Right)
	}
}

func newCall(name string, arguments ...ast.Node) *ast.CallNode {
	return &ast.CallNode{Callee: &ast.IdentifierNode{Value: name}, Arguments: arguments}
}

// newMeasure returns a node that measures the value of n. Constants and predicates stay as they
// are.
func newMeasure(n ast.Node) ast.Node {
	switch n := n.(type) {
	case *ast.NilNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.StringNode,
		*ast.ConstantNode,
		*ast.PredicateNode:
		return n

	case *ast.ArrayNode:
		if !slices.ContainsFunc(n.Nodes,
			func(item ast.Node) bool { return newMeasure(item) != item }) {
			// a list of constants, which package expr turns into a set for the operator "in"
			return n
		}
	}

	return newCall(measureName, n)
}

// matchText is the operator "matches" with a pattern that the expression computes. The first
// argument is the text.
func (w *work) matchText(args ...any) any {
	text, isText := args[0].(string)
	pattern, isPattern := args[1].(string)
	if !isText || !isPattern {
		return false
	}

	w.spend(int64(len(text)+1) * int64(len(pattern)+1))
	r, err := regexp.Compile(pattern)
	if err != nil {
		panic(err)
	}

	return r.MatchString(text)
}

// textArgument returns an argument of the function that args[0] names. It panics if the argument is
// no text.
func textArgument(args []any, i int) string {
	text, ok := args[i].(string)
	if !ok {
		panic(fmt.Errorf("argument %d of %s is %s and must be a text", i, args[0],
			describeKind(args[i])))
	}
	return text
}

// joinTexts is the function join of package expr, with a bound on the size of the text.
func (w *work) joinTexts(args ...any) any {
	var separator string
	if len(args) > 2 {
		separator = textArgument(args, 2)
	}

	w.measure(args[1])
	var texts []string
	switch list := args[1].(type) {
	case []string:
		texts = list
	case []any:
		texts = make([]string, len(list))
		for i, item := range list {
			text, ok := item.(string)
			if !ok {
				panic(fmt.Errorf("an item of the list of join is %s and must be a text",
					describeKind(item)))
			}
			texts[i] = text
		}

	default:
		panic(fmt.Errorf("the argument of join is %s and must be a list", describeKind(args[1])))
	}

	w.spendValue(int64(len(texts)) * int64(len(separator)))

	return strings.Join(texts, separator)
}

// replaceText is the function replace of package expr, with a bound on the size of the text.
func (w *work) replaceText(args ...any) any {
	text, old, replacement := textArgument(args, 1), textArgument(args, 2), textArgument(args, 3)
	most := -1
	if len(args) > 4 {
		most = runtime.ToInt(args[4])
	}

	w.measure(text)
	count := strings.Count(text, old)
	if most >= 0 {
		count = min(count, most)
	}

	w.spendValue(int64(len(text)) + int64(count)*int64(len(replacement)))

	return strings.Replace(text, old, replacement, most)
}

// repeatText is the function repeat of package expr, with a bound on the size of the text.
func (w *work) repeatText(args ...any) any {
	text, count := textArgument(args, 1), int64(runtime.ToInt(args[2]))
	if count < 0 {
		panic(fmt.Errorf("the count of repeat is %d and must not be negative", count))
	}

	if count > w.mostValue {
		count = w.mostValue + 1
	}

	w.spendValue(count * int64(len(text)+1))

	return strings.Repeat(text, int(count))
}

// itemWork is the work for an item of a new list of texts: its memory in bytes.
const itemWork = 16

// splitText is the functions split and splitAfter of package expr, with a bound on the number of
// items.
func (w *work) splitText(args ...any) any {
	text, separator, most := textArgument(args, 1), textArgument(args, 2), -1
	if len(args) > 3 {
		most = runtime.ToInt(args[3])
	}

	w.measure(text)
	count := strings.Count(text, separator) + 1
	if most >= 0 {
		count = min(count, most)
	}

	w.spendValue(itemWork * int64(count))
	if args[0] == "splitAfter" {
		return strings.SplitAfterN(text, separator, most)
	}

	return strings.SplitN(text, separator, most)
}

// removeRepeats is the function uniq of package expr, which compares each item with all others.
// removeRepeats does so for lists and objects only.
func (w *work) removeRepeats(args ...any) any {
	unique, known, others := []any{}, map[any]bool{}, []any{}
	add := func(item any) {
		w.spend(stepWork)
		given := item

		switch v := item.(type) {
		case string:
			w.measure(v)
		case nil, bool:
		case int:
			item = float64(v) // 1 equals 1.0
		case float64:
		default:
			for _, other := range others {
				w.measure(item)
				if runtime.Equal(item, other) {
					return
				}
			}

			others, unique = append(others, item), append(unique, item)
			return
		}

		if known[item] {
			return
		}

		known[item] = true
		unique = append(unique, given)
	}

	switch list := args[1].(type) {
	case []string:
		for _, item := range list {
			add(item)
		}

	case []any:
		for _, item := range list {
			add(item)
		}

	case []int:
		for _, item := range list {
			add(item)
		}

	default:
		panic(fmt.Errorf("the argument of uniq is %s and must be a list", describeKind(args[1])))
	}

	return unique
}
