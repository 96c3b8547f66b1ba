package main

import (
	"fmt"
	"go/token"
	"go/types"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/packages"
)

// namedType is a type of the module by its methods: name to signature. A package that tests extend
// is loaded twice, with types of its own each time, so types are compared by their text.
type namedType struct {
	name        string
	methods     map[string]string
	isInterface bool
	isTest      bool
}

// measureInterfaces returns the rows about interfaces of the product: how many have exactly one
// implementation in the product, and how many of these no test fakes.
func (t *tree) measureInterfaces() []row {
	all := t.collectTypes()
	var interfaces int
	var single, unfaked []string
	for _, i := range all {
		if !i.isInterface || i.isTest || len(i.methods) == 0 {
			continue
		}

		interfaces++
		product, fakes := countImplementations(all, i)
		if product != 1 {
			continue
		}

		single = append(single, i.name)
		if fakes == 0 {
			unfaked = append(unfaked, i.name)
		}
	}

	slices.Sort(unfaked)

	return []row{
		{name: "interfaces; with exactly one implementation",
			value: fmt.Sprintf("%d; %d", interfaces, len(single))},
		{name: "interfaces with exactly one implementation and no fake",
			value: strconv.Itoa(len(unfaked)), names: unfaked},
	}
}

func countImplementations(all map[string]*namedType, i *namedType) (product, fakes int) {
	for _, n := range all {
		switch {
		case n.isInterface || !n.implements(i):
		case n.isTest:
			fakes++
		default:
			product++
		}
	}

	return product, fakes
}

func (n *namedType) implements(i *namedType) bool {
	for name, signature := range i.methods {
		if n.methods[name] != signature {
			return false
		}
	}
	return true
}

// collectTypes returns the types that the module declares, those of tests and of functions
// included.
func (t *tree) collectTypes() map[string]*namedType {
	all := map[string]*namedType{}
	for _, p := range t.packages {
		for _, object := range p.TypesInfo.Defs {
			declared, ok := object.(*types.TypeName)
			if !ok || declared.IsAlias() {
				continue
			}

			if n := t.describe(p, declared); n != nil {
				all[fmt.Sprint(t.fset.Position(declared.Pos()))] = n
			}
		}
	}

	return all
}

// describe returns nil for a type parameter, and for a constraint.
func (t *tree) describe(p *packages.Package, declared *types.TypeName) *namedType {
	if _, ok := declared.Type().(*types.Named); !ok {
		return nil
	}

	n := &namedType{name: p.PkgPath + "." + declared.Name(), methods: map[string]string{},
		isTest: t.isTest(p, declared.Pos())}
	typ := declared.Type()
	if body, ok := typ.Underlying().(*types.Interface); ok {
		if !body.IsMethodSet() {
			return nil
		}
		n.isInterface = true
	} else {
		typ = types.NewPointer(typ)
	}

	set := types.NewMethodSet(typ)
	for method := range set.Methods() {
		signature := method.Type().(*types.Signature)
		n.methods[method.Obj().Id()] = describeSignature(signature)
	}

	return n
}

// describeSignature returns the types of a signature, without the names of parameters.
func describeSignature(s *types.Signature) string {
	var b strings.Builder
	for _, tuple := range []*types.Tuple{s.Params(), s.Results()} {
		b.WriteString("(")
		for v := range tuple.Variables() {
			b.WriteString(types.TypeString(stripNames(v.Type()), qualify) + ",")
		}
		b.WriteString(")")
	}

	return b.String() + strconv.FormatBool(s.Variadic())
}

func qualify(p *types.Package) string { return p.Path() }

// stripNames removes the names of parameters from a type of functions, which two equal types can
// have different.
func stripNames(typ types.Type) types.Type {
	function, ok := typ.(*types.Signature)
	if !ok {
		return typ
	}

	strip := func(tuple *types.Tuple) *types.Tuple {
		var vars []*types.Var
		for v := range tuple.Variables() {
			vars = append(vars, types.NewParam(token.NoPos, nil, "", stripNames(v.Type())))
		}
		return types.NewTuple(vars...)
	}

	return types.NewSignatureType(nil, nil, nil, strip(function.Params()),
		strip(function.Results()), function.Variadic())
}
