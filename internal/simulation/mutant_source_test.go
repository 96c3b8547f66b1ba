package simulation_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// chosenMutant is the name of the variable that decides, in the changed source files of a package,
// which mutant runs. Its value is the name of the mutant; empty = the program without a change.
const chosenMutant = "chosenMutant"

// numberedMutant is a mutant of a source file. The number distinguishes the function that the
// mutant adds from those of the other mutants of the package.
type numberedMutant struct {
	mutant
	number int
}

// addMutants returns a source file with each of the mutants in it: a function that a mutant changes
// stands there once for each mutant and once as it was, and calls the one that chosenMutant names.
// The second result has the mutants that change more than bodies of functions, such as a constant.
// They are not in the text.
func addMutants(source string, mutants []numberedMutant) (string, []numberedMutant, error) {
	original, err := parseSource(source)
	if err != nil {
		return "", nil, err
	}

	var apart []numberedMutant
	var added strings.Builder
	variants := map[string][]variant{} // by the name of the function
	for _, m := range mutants {
		changed, err := parseSource(m.replaceText(source))
		if err != nil {
			return "", nil, fmt.Errorf("%s: %w", m.name, err)
		}

		changes, isSwitchable := original.findChanges(changed)
		if !isSwitchable {
			apart = append(apart, m)
			continue
		}

		for _, d := range changes {
			if original[d.name] == nil {
				added.WriteString("\n" + d.text + "\n")
			} else {
				variants[d.name] = append(variants[d.name], variant{d.function, m})
			}
		}
	}

	text := source
	for _, name := range slices.Backward(original.sortedByPosition(variants)) {
		d := original[name]
		text = text[:d.start] + d.function.switchOver(variants[name]) + text[d.start+len(d.text):]
	}

	return text + added.String(), apart, nil
}

// variant is a function as a mutant has it.
type variant struct {
	function *function
	mutant   numberedMutant
}

// declarations has the declarations of a source file except the imports, by their names.
type declarations map[string]*declaration

// declaration is a function, or a group of constants, variables or types.
type declaration struct {
	name     string
	start    int // position in the file
	text     string
	function *function // nil = not a function
}

// function has the parts of a function's text.
type function struct {
	receiver       string // type of the receiver; empty = not a method
	name           string
	typeParameters string   // with brackets and constraints
	typeArguments  string   // with brackets; the names of the type parameters
	parameters     []string // types of the parameters
	results        string
	signature      string // from the name's end to the body
	heading        string // from "func" to the name's begin
	body           string
}

func parseSource(source string) (declarations, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}

	textOf := func(from, to token.Pos) string {
		return source[set.Position(from).Offset:set.Position(to).Offset]
	}
	found := declarations{}
	for _, decl := range file.Decls {
		d := &declaration{start: set.Position(decl.Pos()).Offset,
			text: textOf(decl.Pos(), decl.End())}
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			d.function = parseFunction(decl, textOf)
			d.name = d.function.receiver + "." + d.function.name
		case *ast.GenDecl:
			if decl.Tok == token.IMPORT || len(decl.Specs) == 0 {
				continue
			}
			d.name = nameSpec(decl.Specs[0])
		}

		found[d.name] = d
	}

	return found, nil
}

// nameSpec returns the name of a declared type, or of the first declared constant or variable.
func nameSpec(spec ast.Spec) string {
	if spec, ok := spec.(*ast.TypeSpec); ok {
		return spec.Name.Name
	}
	return spec.(*ast.ValueSpec).Names[0].Name
}

func parseFunction(decl *ast.FuncDecl, textOf func(from, to token.Pos) string) *function {
	f := &function{
		name:      decl.Name.Name,
		heading:   textOf(decl.Pos(), decl.Name.Pos()),
		signature: textOf(decl.Name.End(), decl.Body.Pos()),
		body:      textOf(decl.Body.Pos(), decl.Body.End()),
	}

	if decl.Recv != nil {
		t := decl.Recv.List[0].Type
		f.receiver = textOf(t.Pos(), t.End())
	}

	if p := decl.Type.TypeParams; p != nil {
		var names []string
		for _, field := range p.List {
			for _, name := range field.Names {
				names = append(names, name.Name)
			}
		}

		f.typeParameters, f.typeArguments = textOf(p.Pos(), p.End()),
			"["+strings.Join(names, ", ")+"]"
	}

	for _, field := range decl.Type.Params.List {
		for range max(len(field.Names), 1) {
			f.parameters = append(f.parameters, textOf(field.Type.Pos(), field.Type.End()))
		}
	}

	if r := decl.Type.Results; r != nil {
		f.results = textOf(r.Pos(), r.End())
	}

	return f
}

// findChanges returns the declarations that are new or different in a mutant. The second result is
// false if an existing declaration differs in more than the body of a function, or is gone.
func (d declarations) findChanges(changed declarations) ([]*declaration, bool) {
	for name := range d {
		if changed[name] == nil {
			return nil, false
		}
	}

	var found []*declaration
	for name, after := range changed {
		before := d[name]
		if before != nil && before.text == after.text {
			continue
		}

		isBody := before != nil && before.function != nil && after.function != nil &&
			before.function.signature == after.function.signature
		if before != nil && !isBody {
			return nil, false
		}

		found = append(found, after)
	}

	return found, true
}

// sortedByPosition returns the names of the functions with variants in the order of the file.
func (d declarations) sortedByPosition(variants map[string][]variant) []string {
	var names []string
	for name := range variants {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(d[a].start, d[b].start) })
	return names
}

// switchOver returns the text of the function, which calls the variant that chosenMutant names, and
// the texts of the variants. The function as it was is the variant without a mutant.
func (f *function) switchOver(variants []variant) string {
	var parameters, arguments []string
	for i, t := range f.parameters {
		name := fmt.Sprintf("parameter%d", i)
		parameters = append(parameters, name+" "+t)
		if strings.HasPrefix(t, "...") {
			name += "..."
		}
		arguments = append(arguments, name)
	}

	heading, callee := "func ", f.name
	if f.receiver != "" {
		heading, callee = "func (receiver "+f.receiver+") ", "receiver."+f.name
	}

	call := func(number int) string {
		text := fmt.Sprintf("%sMutant%d%s(%s)", callee, number, f.typeArguments,
			strings.Join(arguments, ", "))
		if f.results == "" {
			return text
		}
		return "return " + text
	}

	var text strings.Builder
	fmt.Fprintf(&text, "%s%s%s(%s) %s {\n\tswitch %s {\n", heading, f.name, f.typeParameters,
		strings.Join(parameters, ", "), f.results, chosenMutant)
	for _, v := range variants {
		fmt.Fprintf(&text, "\tcase %q:\n\t\t%s\n", v.mutant.name, call(v.mutant.number))
	}

	fmt.Fprintf(&text, "\tdefault:\n\t\t%s\n\t}\n}\n", call(0))
	text.WriteString(f.variantText(0))
	for _, v := range variants {
		text.WriteString(v.function.variantText(v.mutant.number))
	}

	return text.String()
}

func (f *function) variantText(number int) string {
	return fmt.Sprintf("\n%s%sMutant%d%s%s\n", f.heading, f.name, number, f.signature, f.body)
}
