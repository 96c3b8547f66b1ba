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
	"weir/internal/weir"
)

// expression is a compiled expression.
type expression struct {
	program         *vm.Program
	source          string
	kind            reflect.Type // type of the value; nil = known only after evaluation
	reads           bool         // the expression reads an answer of the CMS, or the remembered id
	message         bool         // the expression reads the message
	steps           []string     // names of the earlier steps whose answers the expression reads
	readsRemembered bool         // the expression reads the remembered id
	// members of answers that the expression reads, and that each answer should have
	members   []memberPath
	readsText bool // the expression reads the own answer as text or XML

	placeholder func(m *weir.Message) string // the value, without a program; nil = program has it
}

// evaluateExpression returns the value of an expression. If the expression reads an answer that is
// missing in a trial, the value is a pendingValue.
func (e *expression) evaluateExpression(env map[string]any) (any, error) {
	if e.placeholder != nil {
		return e.placeholder(env[placeholderName].(*weir.Message)), nil
	}

	if pending := e.findPending(env); pending != "" {
		return pending, nil
	}

	e.reportMissing(env)
	budget := env[workName].(*work)
	value, err := expr.Run(e.program, env)
	if err == nil {
		err = budget.measureResult(value)
	}

	if budget.failed != nil {
		return nil, e.newValueError(budget.failed)
	}
	if err != nil {
		return nil, e.newValueError(errors.New(explainFailure(firstLine(err))))
	}

	if raw, isRaw := value.(*rawBytes); isRaw && raw == nil {
		return nil, nil
	}

	return value, nil
}

func (e *expression) evaluateCondition(env map[string]any) (bool, error) {
	value, err := e.evaluateExpression(env)
	if err != nil {
		return false, err
	}

	if _, isPending := value.(pendingValue); isPending {
		return false, errPending
	}

	holds, ok := value.(bool)
	if !ok {
		return false, e.newValueError(fmt.Errorf("it is %s, neither true nor false",
			describeKind(value)))
	}

	return holds, nil
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

// ownParts maps the names that expressions use for the step's own answer to the parts of the
// answer.
var ownParts = map[string]part{"status": partStatus, "json": partJSON, "xml": partXML,
	"body": partBody, "headers": partHeaders}

// scope has the names that an expression can use.
type scope struct {
	chain   *chain  // nil = a sign-in, which has no message
	earlier []*step // steps whose answers the expression can read
	// names that the expression cannot use: its own step and the steps after it
	later []string
	// step whose own answer the expression can read; nil = the step has no answer yet
	own       *step
	compiled  *[]*expression // list to which each compiled expression is added; nil = no list
	isLenient bool           // a part that the expression reads can be absent from the answer
}

// buildPrototype returns an environment with a value of the right type for each name.
func (s *scope) buildPrototype() map[string]any {
	env := map[string]any{}
	addFunctions(env, nil)
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

// compileExpression compiles an expression. If the expression does not compile, compileExpression
// records a mistake and returns nil. The function locate returns the place of a line (from 1) and a
// column (from 0) of the source.
func (f *File) compileExpression(source string, s *scope,
	locate func(line, column int) place) *expression {
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
	program, err := expr.Compile(source, expr.Env(known), expr.DisableBuiltin("now"),
		expr.Patch(keysCall{}), expr.Patch(visitor))
	if err != nil {
		var found *file.Error
		if errors.As(err, &found) {
			at = locate(found.Line, found.Column)
		}
		f.addMistake(at, "%s", s.explainError(err, source, env))
		return nil
	}

	kind := program.Node().Type()

	if program, err = compileMetered(source, known); err != nil {
		f.addMistake(at, "%s", s.explainError(err, source, env))
		return nil
	}

	e := &expression{program: program, source: strings.TrimSpace(source),
		reads: visitor.recordWholeUses()}
	e.steps, e.message = visitor.stepNames(), visitor.readsMessage()
	e.readsRemembered, e.readsText = visitor.readsRemembered, visitor.readsText
	e.members = visitor.sortedMembers()
	if s.compiled != nil {
		*s.compiled = append(*s.compiled, e)
	}

	if kind != nil && kind.Kind() != reflect.Interface {
		e.kind = kind
	}

	return e
}

// compileMetered compiles an expression that spends the work of its environment. known has the
// types of the names. The program of an expression is compiled twice, because the functions of
// meter hide the types of their arguments.
func compileMetered(source string, known types.Map) (*vm.Program, error) {
	functions := map[string]any{}
	addWork(functions, nil)
	metered := maps.Clone(known)
	m := &meter{}
	for name, value := range functions {
		metered[name] = types.TypeOf(value)
		if own, isOwn := strings.CutPrefix(name, ownPrefix); isOwn {
			m.own = append(m.own, own)
		}
	}

	return expr.Compile(source, expr.Env(metered), expr.DisableBuiltin("now"),
		expr.Patch(keysCall{}), expr.Patch(m))
}

// keysCall is a visitor that makes keys(…) the function of package expr. Without it, the name keys,
// the parts of the ordering key, would hide the function.
type keysCall struct{}

// Visit implements ast.Visitor.
func (keysCall) Visit(node *ast.Node) {
	call, isCall := (*node).(*ast.CallNode)
	if !isCall {
		return
	}

	if name, isName := call.Callee.(*ast.IdentifierNode); isName && name.Value == keysName {
		ast.Patch(node, &ast.BuiltinNode{Name: keysName, Arguments: call.Arguments})
	}
}

// compileCondition compiles the value of a setting as an expression that is true or false. If the
// value is no such expression, compileCondition records a mistake and returns nil.
func (f *File) compileCondition(n yaml.Node, path string, s *scope) *expression {
	source, ok := readText(n)
	if !ok {
		f.addMistake(placeOf(n, path), "it must be an expression such as status == 404")
		return nil
	}

	if trimmed := strings.TrimSpace(source); strings.HasPrefix(trimmed, "{{") &&
		strings.HasSuffix(trimmed, "}}") {
		f.addMistake(placeOf(n, path), "it is an expression already; write it without {{ and }}")
		return nil
	}

	e := f.compileExpression(source, s, func(line,
		column int) place {
		return f.locateIn(n, path, source, line, column)
	})
	if e != nil && e.kind != nil && e.kind.Kind() != reflect.Bool {
		f.addMistake(placeOf(n, path),
			"%s is %s and must be true or false; compare it, for example with ==", e.source,
			describeType(e.kind))
		return nil
	}

	return e
}

// locateIn returns the place of a line (from 1) and a column (from 0) of source, which is the value
// of the node n.
func (f *File) locateIn(n yaml.Node, path, source string, line, column int) place {
	lines := strings.Split(source, "\n")
	if line < 1 || line > len(lines) {
		return placeOf(n, path)
	}

	text := lines[line-1]
	before := string([]rune(text)[:min(column, len([]rune(text)))])
	return f.locatePart(n, path, strings.TrimSpace(text), 0, strings.TrimLeft(before, " \t"))
}

// uses visits the syntax tree of an expression. It records the paths with which the expression
// reads the message, and the parts of answers that the expression reads.
type uses struct {
	file  *File
	scope *scope
	at    func(line, column int) place
	// names has each occurrence of a name in the expression. The bool is true if the expression
	// reads the name's whole value there. It is false if the expression reads a member of the
	// value, or compares the value with nil.
	names           map[*ast.IdentifierNode]bool
	reads           bool // the expression reads an answer of the CMS, or the remembered id
	readsRemembered bool
	members         map[*ast.MemberNode]memberPath // the longest paths into answers
	// the expression reads the own answer as text or XML
	readsText bool
}

// Visit implements ast.Visitor.
func (u *uses) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		if u.names == nil {
			u.names = map[*ast.IdentifierNode]bool{}
		}
		u.names[n] = true
		u.noteRemembered(n)
		u.noteKeys(n)

	case *ast.MemberNode:
		u.visitMember(n)
		u.checkKeyPart(n)
		u.recordMembers(n)

	case *ast.BinaryNode:
		u.visitComparison(n)
		u.visitChoice(n)
	case *ast.ConditionalNode:
		u.visitChoice(n)
	case *ast.CallNode:
		u.visitCall(n)
	case *ast.BuiltinNode:
		u.visitBuiltin(n)
	}
}

// visitBuiltin refuses toJSON of a whole answer, such as toJSON(find). The type answer has a field
// with a function, which JSON cannot represent, so each attempt would fail.
func (u *uses) visitBuiltin(n *ast.BuiltinNode) {
	if n.Name != "toJSON" || len(n.Arguments) != 1 {
		return
	}

	if name, ok := n.Arguments[0].(*ast.IdentifierNode); ok && u.scope.findStep(name.Value) != nil {
		u.refuseNode(name, fmt.Sprintf("%s is a step's answer and has no JSON of its own; write toJSON(%[1]s.json)",
			name.Value))
	}
}

// noteRemembered records whether a name reads the remembered id.
func (u *uses) noteRemembered(n *ast.IdentifierNode) {
	if n.Value != rememberedName || u.scope.chain == nil {
		return
	}

	u.readsRemembered, u.reads = true, true
	if r := &u.scope.chain.remembering; !r.isRead {
		r.isRead, r.firstRead = true, u.at(1, n.Location().From)
	}
}

// noteKeys adds the parts of the ordering key to the values that the chain reads from the message.
func (u *uses) noteKeys(n *ast.IdentifierNode) {
	if n.Value != keysName || u.scope.chain == nil {
		return
	}
	for _, path := range u.scope.chain.keyPaths {
		u.scope.chain.addSelection(contract.Selection{Path: path})
	}
}

// checkKeyPart refuses keys[i] if the ordering key has no part i.
func (u *uses) checkKeyPart(n *ast.MemberNode) {
	base, isName := n.Node.(*ast.IdentifierNode)
	index, isNumber := n.Property.(*ast.IntegerNode)
	if !isName || !isNumber || base.Value != keysName || u.scope.chain == nil {
		return
	}

	switch last := len(u.scope.chain.keyPaths) - 1; {
	case last < 0:
		u.refuseNode(base, "keys has no items, because the contract has no key")
	case index.Value > last:
		u.refuseNode(base, fmt.Sprintf("keys[%d] does not exist, because the last part of the contract's key is keys[%d]",
			index.Value, last))
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
	}

	lowerHeaderName(n)
}

// lowerHeaderName writes the name of a header in lower case, as the environment has it.
func lowerHeaderName(n *ast.MemberNode) {
	if name, ok := n.Property.(*ast.StringNode); ok && isHeaders(n.Node) {
		name.Value = strings.ToLower(name.Value)
	}
}

// isHeaders reports whether a node stands for the headers of an answer.
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

// visitComparison records comparisons such as find == nil. Such a comparison only tests whether the
// step "find" was sent, and needs no part of the answer.
func (u *uses) visitComparison(n *ast.BinaryNode) {
	if n.Operator != "==" && n.Operator != "!=" {
		return
	}

	for _, sides := range [][2]ast.Node{{n.Left, n.Right}, {n.Right, n.Left}} {
		name, isName := sides[0].(*ast.IdentifierNode)
		if _, isNil := sides[1].(*ast.NilNode); isName && isNil &&
			u.scope.findStep(name.Value) != nil {
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
		if path, ok := u.constantPath(n, callee.Value, isPath && u.scope.chain != nil ||
			isXML); ok {
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

// constantPath returns the path in a function call. If the path is not a constant, constantPath
// records a mistake and returns false, because Weir checks paths when it reads the settings. It
// also returns false if wanted is false.
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

// recordWholeUses records the parts of the step's own answer that the expression reads. If the
// expression reads the whole answer of an earlier step, recordWholeUses records that the JSON of
// this answer is needed. It reports whether the expression reads any answer or the remembered id.
func (u *uses) recordWholeUses() bool {
	for name, isWhole := range u.names {
		if own := u.scope.own; own != nil && ownParts[name.Value] != "" {
			need := needStrict
			if u.scope.isLenient {
				need = needLenient
			}

			read := ownParts[name.Value]
			own.needs.addPart(read, need)
			u.reads, u.readsText = true, u.readsText || read == partBody || read == partXML
		}

		if st := u.scope.findStep(name.Value); st != nil && isWhole {
			// a variable can give access to the JSON: let f = find; f.json
			st.needs.addPart(partJSON, needStrict)
			u.reads = true
		}
	}

	return u.reads
}

func (u *uses) readsMessage() bool {
	if u.scope.chain == nil {
		return false
	}

	own := messageNames()
	for name := range u.names {
		if slices.Contains(own, name.Value) {
			return true
		}
	}

	return false
}

// stepNames returns the names of the earlier steps whose answers the expression reads.
func (u *uses) stepNames() []string {
	var names []string
	for name := range u.names {
		if u.scope.findStep(name.Value) != nil && !slices.Contains(names, name.Value) {
			names = append(names, name.Value)
		}
	}
	return names
}

func (s *scope) findStep(name string) *step {
	for _, st := range s.earlier {
		if st.name == name {
			return st
		}
	}
	return nil
}
