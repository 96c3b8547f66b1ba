package steps

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/types"
	"github.com/expr-lang/expr/vm"
	yaml "github.com/goccy/go-yaml/ast"

	"weir/internal/contract"
)

// expression is a compiled expression.
type expression struct {
	program *vm.Program
	source  string
	kind    reflect.Type // nil = known only after evaluation
	reads   bool         // it depends on an answer of the CMS
}

// evaluateExpression returns the value of an expression.
func (e *expression) evaluateExpression(env map[string]any) (any, error) {
	value, err := expr.Run(e.program, env)
	if err != nil {
		return nil, e.newValueError(errors.New(firstLine(err)))
	}
	return value, nil
}

// evaluateCondition returns the value of a condition.
func (e *expression) evaluateCondition(env map[string]any) (bool, error) {
	value, err := e.evaluateExpression(env)
	if err != nil {
		return false, err
	}
	held, ok := value.(bool)
	if !ok {
		return false, e.newValueError(fmt.Errorf("it is %s, neither true nor false", describeKind(value)))
	}
	return held, nil
}

// firstLine returns the first line of an error, without the position within the expression.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	if i := strings.LastIndex(line, " ("); i > 0 && strings.HasSuffix(line, ")") {
		line = line[:i]
	}
	return line
}

// describeKind returns a value's kind in words.
func describeKind(value any) string {
	switch value.(type) {
	case nil:
		return "nil"
	case string:
		return "a text"
	case bool:
		return "true or false"
	case int, float64:
		return "a number"
	case map[string]any:
		return "an object"
	case []any, []string:
		return "a list"
	}
	return fmt.Sprintf("a %T", value)
}

// part is a part of an answer.
type part string

const (
	partStatus  part = "status"
	partJSON    part = "json"
	partXML     part = "xml"
	partBody    part = "body"
	partHeaders part = "headers"
)

// ownParts are the names of the parts of the step's own answer in on, success and until.
var ownParts = map[string]part{"status": partStatus, "json": partJSON, "xml": partXML, "body": partBody,
	"headers": partHeaders}

// scope has the names that an expression may use.
type scope struct {
	chain     *chain // nil = no message
	earlier   []*step
	later     []string
	own       *step // nil = there is no own answer yet
	isLenient bool  // the own answer may lack a part that the expression reads
}

// buildPrototype returns an environment with a value of the right type for each name.
func (s *scope) buildPrototype() map[string]any {
	env := map[string]any{}
	addFunctions(env)
	if s.chain != nil {
		addMessage(env, message{})
	}
	for _, st := range s.earlier {
		env[st.name] = &answer{}
	}
	if s.own != nil {
		addOwn(env, &answer{})
	}
	return env
}

// compileExpression compiles an expression. If that fails, it records a mistake and returns nil. locate returns
// the place of a line (from 1) and a column (from 0) of the source.
func (f *File) compileExpression(source string, s *scope, locate func(line, column int) place) *expression {
	at := locate(1, 0)
	if f.variable.MatchString(source) {
		f.addMistake(at, "a variable of the environment cannot stand in an expression; write it outside of {{ }}")
		return nil
	}
	if strings.TrimSpace(source) == "" {
		f.addMistake(at, "the expression is empty; write one such as text('./title')")
		return nil
	}
	env := s.buildPrototype()
	known := types.Map{}
	for name, value := range env {
		known[name] = types.TypeOf(value)
		if value == nil {
			known[name] = types.Any
		}
	}
	visitor := &uses{file: f, scope: s, at: locate}
	program, err := expr.Compile(source, expr.Env(known), expr.DisableBuiltin("now"), expr.Patch(visitor))
	if err != nil {
		var found *file.Error
		if errors.As(err, &found) {
			at = locate(found.Line, found.Column)
		}
		f.addMistake(at, "%s", s.explainError(err, env))
		return nil
	}
	e := &expression{program: program, source: strings.TrimSpace(source), reads: visitor.recordWholeUses()}
	if kind := program.Node().Type(); kind != nil && kind.Kind() != reflect.Interface {
		e.kind = kind
	}
	return e
}

// compileCondition compiles the value of a setting as an expression that is true or false.
func (f *File) compileCondition(n yaml.Node, path string, s *scope) *expression {
	source, ok := readText(n)
	if !ok {
		f.addMistake(placeOf(n, path), "it must be an expression such as status == 404")
		return nil
	}
	if trimmed := strings.TrimSpace(source); strings.HasPrefix(trimmed, "{{") && strings.HasSuffix(trimmed, "}}") {
		f.addMistake(placeOf(n, path), "it is an expression already; write it without {{ and }}")
		return nil
	}
	e := f.compileExpression(source, s, func(line,
		column int) place {
		return f.locateIn(n, path, source, line, column)
	})
	if e != nil && e.kind != nil && e.kind.Kind() != reflect.Bool {
		f.addMistake(placeOf(n, path), "%s is %s and must be true or false; compare it, for example with ==", e.source,
			describeType(e.kind))
		return nil
	}
	return e
}

// locateIn returns the place of a line and a column in a scalar's value.
func (f *File) locateIn(n yaml.Node, path, source string, line, column int) place {
	lines := strings.Split(source, "\n")
	if line < 1 || line > len(lines) {
		return placeOf(n, path)
	}
	text := lines[line-1]
	before := string([]rune(text)[:min(column, len([]rune(text)))])
	return f.locatePart(n, path, strings.TrimSpace(text), 0, strings.TrimLeft(before, " \t"))
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

// explainError returns a sentence for the user about an expression that does not compile.
func (s *scope) explainError(err error, env map[string]any) string {
	text := firstLine(err)
	if name, ok := strings.CutPrefix(text, "unknown name "); ok {
		return s.explainName(name, env)
	}
	if rest, ok := strings.CutPrefix(text, "type *steps.answer has no field "); ok {
		return "a step's answer has no " + rest + "; it has status, json, headers, body and xml('path')"
	}
	if rest, ok := strings.CutPrefix(text, "type steps.answer has no field "); ok {
		return "a step's answer has no " + rest + "; it has status, json, headers, body and xml('path')"
	}
	text = strings.NewReplacer("*steps.answer", "step's answer", "interface {}", "any value").Replace(text)
	switch {
	case strings.HasPrefix(text, "unexpected token"), strings.HasPrefix(text, "literal not terminated"),
		strings.HasPrefix(text, "unclosed"), strings.HasPrefix(text, "unrecognized"),
		strings.HasPrefix(text, "unexpected end"):
		return "the expression cannot be read (" + text + "); write one such as text('./title') or find.json.id"
	}
	return text
}

// notWords maps words of other languages to those of expressions.
var notWords = map[string]string{"null": "nil", "None": "nil", "undefined": "nil", "AND": "and", "OR": "or",
	"NOT": "not", "True": "true", "False": "false"}

func (s *scope) explainName(name string, env map[string]any) string {
	switch {
	case slices.Contains(s.later, name):
		return fmt.Sprintf("%s is a later step; an expression can read the steps above it only", name)
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
	hint := suggestName(name, names)
	if hint == "" {
		hint = "; known are " + strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s is not known here%s", name, hint)
}

// uses collects the paths of the message and the parts of answers that an expression reads.
type uses struct {
	file  *File
	scope *scope
	at    func(line, column int) place
	names map[*ast.IdentifierNode]bool // false = only the object of a member, or compared with nil
	reads bool
}

// Visit implements ast.Visitor.
func (u *uses) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		if u.names == nil {
			u.names = map[*ast.IdentifierNode]bool{}
		}
		u.names[n] = true
	case *ast.MemberNode:
		u.visitMember(n)
	case *ast.BinaryNode:
		u.visitComparison(n)
	case *ast.CallNode:
		u.visitCall(n)
	}
}

func (u *uses) visitMember(n *ast.MemberNode) {
	if name, ok := n.Property.(*ast.StringNode); ok {
		if base, isName := n.Node.(*ast.IdentifierNode); isName {
			if st := u.scope.findStep(base.Value); st != nil {
				u.names[base] = false
				u.reads = true
				st.needs.addPart(part(name.Value), needStrict)
			}
		}
		if isHeaders(n.Node) {
			name.Value = strings.ToLower(name.Value)
		}
	}
}

// isHeaders reports whether a node is the headers of an answer.
func isHeaders(n ast.Node) bool {
	switch t := n.(type) {
	case *ast.ChainNode:
		return isHeaders(t.Node)
	case *ast.IdentifierNode:
		return t.Value == string(partHeaders)
	case *ast.MemberNode:
		name, ok := t.Property.(*ast.StringNode)
		return ok && name.Value == string(partHeaders)
	}
	return false
}

// visitComparison handles comparisons such as find == nil. They ask whether the step find ran, and do not read
// its answer as a whole.
func (u *uses) visitComparison(n *ast.BinaryNode) {
	if n.Operator != "==" && n.Operator != "!=" {
		return
	}
	for _, sides := range [][2]ast.Node{{n.Left, n.Right}, {n.Right, n.Left}} {
		name, isName := sides[0].(*ast.IdentifierNode)
		if _, isNil := sides[1].(*ast.NilNode); isName && isNil && u.scope.findStep(name.Value) != nil {
			u.names[name] = false
			u.reads = true
		}
	}
}

func (u *uses) visitCall(n *ast.CallNode) {
	switch callee := n.Callee.(type) {
	case *ast.IdentifierNode:
		form, isPath := pathFunctions[callee.Value]
		isXML := callee.Value == string(partXML) && u.scope.own != nil
		if path, ok := u.constantPath(n, callee.Value, isPath && u.scope.chain != nil || isXML); ok {
			if isXML {
				u.checkTreePath(n, path)
				return
			}
			u.addSelection(n, contract.Selection{Path: path, Form: form})
		}
	case *ast.MemberNode:
		if name, ok := callee.Property.(*ast.StringNode); ok && name.Value == string(partXML) {
			if path, ok := u.constantPath(n, "xml", true); ok {
				u.checkTreePath(n, path)
			}
		}
	}
}

// constantPath returns the path argument of a call. It must be a constant, so that it is checked when the
// settings are read.
func (u *uses) constantPath(n *ast.CallNode, name string, wanted bool) (string, bool) {
	if !wanted || len(n.Arguments) != 1 {
		return "", false
	}
	path, ok := n.Arguments[0].(*ast.StringNode)
	if !ok {
		u.refuseNode(n, fmt.Sprintf("the path of %s must be written out in quotes, such as %s('./title')", name, name))
		return "", false
	}
	return path.Value, true
}

func (u *uses) addSelection(n ast.Node, s contract.Selection) {
	if err := contract.CheckSelection(s); err != nil {
		u.refuseNode(n, err.Error())
		return
	}
	u.scope.chain.addSelection(s)
}

func (u *uses) checkTreePath(n ast.Node, path string) {
	if _, err := contract.CompileTreePath(path); err != nil {
		u.refuseNode(n, err.Error())
	}
}

func (u *uses) refuseNode(n ast.Node, message string) {
	u.file.addMistake(u.at(1, n.Location().From), "%s", message)
}

// recordWholeUses records the parts of the answers that are read as a whole, and reports whether an answer is
// read.
func (u *uses) recordWholeUses() bool {
	for name, isWhole := range u.names {
		if own := u.scope.own; own != nil && ownParts[name.Value] != "" {
			need := needStrict
			if u.scope.isLenient {
				need = needLenient
			}
			own.needs.addPart(ownParts[name.Value], need)
			u.reads = true
		}
		if st := u.scope.findStep(name.Value); st != nil && isWhole {
			st.needs.addPart(partJSON, needStrict) // the value as a whole is its JSON
			u.reads = true
		}
	}
	return u.reads
}

func (s *scope) findStep(name string) *step {
	for _, st := range s.earlier {
		if st.name == name {
			return st
		}
	}
	return nil
}
