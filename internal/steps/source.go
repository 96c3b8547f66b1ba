package steps

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"weir/internal/weir"
)

// Source is a part of the settings file that this package parses itself.
type Source struct{ node ast.Node }

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (s *Source) UnmarshalYAML(n ast.Node) error {
	s.node = n
	return nil
}

// IsSet reports whether the settings file has the part.
func (s Source) IsSet() bool { return s.node != nil }

// File is a settings file. It finds positions in the text, resolves aliases and environment
// variables, and collects mistakes.
type File struct {
	lines    []string
	anchors  map[string]ast.Node
	variable *regexp.Regexp
	lookUp   func(name string) string
	secrets  []string
	mistakes []*weir.SettingProblem
}

// NewFile returns the file with this text and its parsed documents. The regular expression in
// "variable" matches a placeholder of an environment variable; its first group is the variable's
// name. The function lookUp returns the value of an environment variable.
func NewFile(text string, docs []*ast.DocumentNode, variable *regexp.Regexp,
	lookUp func(name string) string) *File {
	f := &File{lines: strings.Split(text, "\n"), anchors: map[string]ast.Node{}, variable: variable,
		lookUp: lookUp}
	for _, doc := range docs {
		if doc.Body != nil {
			ast.Walk(anchorCollector{f}, doc.Body)
		}
	}

	return f
}

type anchorCollector struct{ file *File }

// Visit implements ast.Visitor.
func (c anchorCollector) Visit(n ast.Node) ast.Visitor {
	if anchor, ok := n.(*ast.AnchorNode); ok {
		c.file.anchors[anchor.Name.GetToken().Value] = anchor.Value
	}
	return c
}

// Secrets returns the values of the environment variables that the compiled settings use.
func (f *File) Secrets() []string {
	if f == nil {
		return nil
	}
	return f.secrets
}

// place is a position in the file, with the name of the setting there.
type place struct {
	line, column int
	path         string
}

// addMistake records a mistake. If several YAML aliases use the wrong text, addMistake records the
// mistake only once.
func (f *File) addMistake(at place, format string, args ...any) {
	text := at.path + ": " + f.hideVariables(fmt.Sprintf(format, args...))
	m := &weir.SettingProblem{Path: at.path, Message: text, Line: at.line, Column: at.column}
	same := func(other *weir.SettingProblem) bool {
		return other.Line == m.Line && other.Column == m.Column && other.Message == m.Message
	}
	if !slices.ContainsFunc(f.mistakes, same) {
		f.mistakes = append(f.mistakes, m)
	}
}

// joinMistakes returns the recorded mistakes as one error, sorted by their positions in the file,
// and clears the record. Without mistakes, the error is nil.
func (f *File) joinMistakes() error {
	slices.SortStableFunc(f.mistakes, func(a, b *weir.SettingProblem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})

	var problems []error
	for _, m := range f.mistakes {
		problems = append(problems, m)
	}
	f.mistakes = nil

	return errors.Join(problems...)
}

// hideVariables replaces the placeholders of environment variables with ${NAME}, the spelling of
// the settings file.
func (f *File) hideVariables(text string) string {
	return f.variable.ReplaceAllString(text, "$${$1}")
}

// fillVariables replaces the placeholders of environment variables with their values, and adds the
// values to the secrets.
func (f *File) fillVariables(text string) string {
	return f.variable.ReplaceAllStringFunc(text, func(found string) string {
		value := f.lookUp(f.variable.FindStringSubmatch(found)[1])
		if !slices.Contains(f.secrets, value) {
			f.secrets = append(f.secrets, value)
		}
		return value
	})
}

// resolveNode returns the value behind anchors, aliases and tags.
func (f *File) resolveNode(n ast.Node) ast.Node {
	for range 100 {
		switch t := n.(type) {
		case *ast.AnchorNode:
			n = t.Value
		case *ast.TagNode:
			n = t.Value
		case *ast.AliasNode:
			n = f.anchors[t.Value.GetToken().Value]
		default:
			return n
		}
	}

	return nil // an alias refers to itself
}

// placeOf returns the place where a node begins.
func placeOf(n ast.Node, path string) place {
	switch t := n.(type) {
	case *ast.MappingNode:
		if !t.IsFlowStyle && len(t.Values) > 0 {
			return placeOf(t.Values[0], path)
		}
	case *ast.MappingValueNode:
		return placeOf(t.Key, path)
	}

	at := n.GetToken().Position
	return place{at.Line, at.Column, path}
}

// pair is an entry of a mapping.
type pair struct {
	key   string
	value ast.Node
	at    place // the place of the key
}

func (p pair) placeOfValue() place { return placeOf(p.value, p.at.path) }

// readMapping returns the entries of a mapping, including merged ones (<<). It returns false if n
// is not a mapping.
func (f *File) readMapping(n ast.Node, path string) ([]pair, bool) {
	var values []*ast.MappingValueNode
	switch t := f.resolveNode(n).(type) {
	case *ast.MappingNode:
		values = t.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{t}
	default:
		return nil, false
	}

	var pairs []pair
	for _, v := range values {
		if v.Key.IsMergeKey() {
			merged, _ := f.readMapping(v.Value, path)
			for _, m := range merged {
				pairs = addMerged(pairs, m)
			}
			continue
		}

		name := v.Key.GetToken().Value
		p := pair{key: name, value: f.resolveNode(v.Value), at: placeOf(v.Key, path+"."+name)}
		if p.value == nil {
			p.value = emptyAt(p.at)
		}

		pairs = slices.DeleteFunc(pairs, func(other pair) bool { return other.key == name })
		pairs = append(pairs, p)
	}

	return pairs, true
}

// emptyAt returns a null node, for a setting without a value.
func emptyAt(at place) ast.Node {
	return &ast.NullNode{BaseNode: &ast.BaseNode{},
		Token: &token.Token{Position: &token.Position{Line: at.line, Column: at.column}}}
}

// addMerged adds an entry of a merged mapping to pairs, except if pairs already has the entry's
// key.
func addMerged(pairs []pair, p pair) []pair {
	if slices.ContainsFunc(pairs, func(other pair) bool { return other.key == p.key }) {
		return pairs
	}
	return append(pairs, p)
}

// readList returns the items of a sequence. It returns false if n is not a sequence.
func (f *File) readList(n ast.Node) ([]ast.Node, bool) {
	list, ok := f.resolveNode(n).(*ast.SequenceNode)
	if !ok {
		return nil, false
	}

	items := make([]ast.Node, len(list.Values))
	for i, item := range list.Values {
		items[i] = f.resolveNode(item)
	}

	return items, true
}

// readText returns the text of a scalar. A number or a bool is spelled as in the file. For any
// other node, readText returns false.
func readText(n ast.Node) (string, bool) {
	switch t := n.(type) {
	case *ast.StringNode:
		return t.Value, true
	case *ast.LiteralNode:
		return t.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	}

	return "", false
}

// locatePart returns the place where the scalar n contains the text in "part". The argument "count"
// is the number of the occurrence, from 0. If the text in "skip" begins at that place, locatePart
// returns the place after this text. If locatePart does not find the occurrence, it returns the
// beginning of the scalar.
func (f *File) locatePart(n ast.Node, path, part string, count int, skip string) place {
	at := placeOf(n, path)
	line, column := at.line, at.column
	for l := line; l <= len(f.lines); l++ {
		text := f.lines[l-1]
		from := 0
		if l == line {
			from = byteOffset(text, column-1)
		}

		for {
			i := strings.Index(text[from:], part)
			if i < 0 {
				break
			}

			if count == 0 {
				at.line, at.column = l, utf8.RuneCountInString(text[:from+i])+1
				return f.advancePlace(at, from+i, skip)
			}

			count--
			from += i + len(part)
		}
	}

	return at
}

// advancePlace moves a place to the end of the text in "skip". If the place's line does not have
// this text at the byte offset, advancePlace returns the place unchanged.
func (f *File) advancePlace(at place, offset int, skip string) place {
	if rest := f.lines[at.line-1][offset:]; strings.HasPrefix(rest, skip) {
		at.column += utf8.RuneCountInString(skip)
	}
	return at
}

// byteOffset converts an offset in characters to the offset in bytes.
func byteOffset(line string, characters int) int {
	offset := 0
	for range characters {
		_, size := utf8.DecodeRuneInString(line[offset:])
		if size == 0 {
			break
		}
		offset += size
	}

	return offset
}

// SuggestName returns a hint for the end of an error text, such as "; did you mean headers?". The
// hint has the name that is most similar to the given name. If each name has more than half of its
// letters from elsewhere, such as tls for cms, the hint is empty.
func SuggestName(given string, names []string) string {
	best, bestCost := "", 3
	for _, name := range names {
		one, other := strings.ToLower(given), strings.ToLower(name)
		cost := levenshtein.ComputeDistance(one, other)
		isNear := 2*cost <= len(given) || sortLetters(one) == sortLetters(other)
		if cost < bestCost && isNear {
			best, bestCost = name, cost
		}
	}

	if best == "" {
		return ""
	}

	return "; did you mean " + best + "?"
}

func sortLetters(text string) string {
	letters := []rune(text)
	slices.Sort(letters)
	return string(letters)
}
