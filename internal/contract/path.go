package contract

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/beevik/etree"

	"weir/internal/weir"
)

// path is an etree path, split into steps. Each step selects each element only once. etree itself
// can list an element several times, for example once for each child that a filter matches. With a
// hostile body, etree would list billions of elements.
type path struct {
	given    string
	absolute bool // true = begins at the document; false = begins at the root element
	steps    []step
	// name in the first step, without prefix; empty if the path does not begin with a single /
	first string
	space string // prefix of attr; unused if namespace is not nil
	attr  string // name of the attribute that the last step selects; empty = the element's text
	// namespace is the uri of a last step @{uri}local. If namespace is nil, the last step selects
	// the attribute by its prefix (see space).
	namespace *string
	needs     needs
}

type step struct {
	selector     etree.Path
	namespace    *string // nil = any namespace
	isDescendant bool    // true = the empty step between the two slashes of //
	isParent     bool    // true = the step ..
	filters      []filter
}

// filter selects the element at position. If position is 0, the filter selects the elements that
// meet the condition.
type filter struct {
	position int // from 1; a negative position counts backwards from the last element, which is -1
	*condition
}

var (
	nextStep = regexp.MustCompile(
		`^((?:@?\{[^{}]*\})?[^/\[\]{}]*)((?:\[(?:[^\[\]'"]|'[^']*'|"[^"]*")*\])*)(/|$)`)
	brackets  = regexp.MustCompile(`\[((?:[^\[\]'"]|'[^']*'|"[^"]*")*)\]`)
	stepNames = regexp.MustCompile(
		`^(|\.|\.\.|\*|[\pL_][\pL\pM\pN._-]*(:[\pL_][\pL\pM\pN._-]*)?)$`)
	attribute   = regexp.MustCompile(`^@(?:([\pL_][\pL\pM\pN._-]*):)?([\pL_][\pL\pM\pN._-]*)$`)
	inNamespace = regexp.MustCompile(`^(@?)\{([^{}\s]*)\}([\pL_][\pL\pM\pN._-]*)$`)
	wholeNumber = regexp.MustCompile(`^-?[0-9]{1,6}$`)
)

// compilePath compiles a path. For an empty path it returns nil.
func compilePath(given string) (*path, error) {
	if given == "" {
		return nil, nil
	}

	p := &path{given: given}
	rest, absolute := strings.CutPrefix(given, "/")
	p.absolute = absolute
	last := ""
	for more := true; more; {
		m := nextStep.FindStringSubmatch(rest)
		if m == nil {
			return nil, fmt.Errorf("path %q: brackets or quotes do not match", given)
		}

		rest, more = rest[len(m[0]):], m[3] == "/"
		if err := p.addStep(m[1], m[2], more); err != nil {
			return nil, fmt.Errorf("path %q: %w", given, err)
		}

		last = m[1]
	}

	if p.attr == "" {
		p.needs.addText(last[strings.IndexByte(last, '}')+1:])
	}

	return p, nil
}

// addStep adds a step to the path. The parameter more is true if further steps follow. Only the
// last step can select an attribute.
func (p *path) addStep(name, filters string, more bool) error {
	var namespace *string
	if n := inNamespace.FindStringSubmatch(name); n != nil {
		name, namespace = n[1]+n[3], &n[2]
		p.needs.declarations = true
	}

	if a := attribute.FindStringSubmatch(name); a != nil && filters == "" && !more {
		p.space, p.attr, p.namespace = a[1], a[2], namespace
		p.needs.addAttribute(p.attr)
		// The document has no attributes, so /@a means an attribute of the root element.
		p.absolute = p.absolute && len(p.steps) > 0
		return nil
	}

	if !stepNames.MatchString(name) {
		if strings.Contains(name, "|") {
			return fmt.Errorf(
				"%q is not a step; several paths are a list, such as [./@slug, ./@lang]", name)
		}
		return fmt.Errorf("%q is not a step", name)
	}

	if name == "" && (!more || filters != "") {
		return errors.New("a step is empty")
	}

	p.needs.addStep(name)

	if p.absolute && len(p.steps) == 0 {
		_, local, hasPrefix := strings.Cut(name, ":")
		p.first = name
		if hasPrefix {
			p.first = local
		}
	}

	s := step{isDescendant: name == "", isParent: name == "..", namespace: namespace}
	var err error
	if !s.isDescendant {
		if s.selector, err = etree.CompilePath(name); err != nil {
			return err
		}
	}

	for _, m := range brackets.FindAllStringSubmatch(filters, -1) {
		f, err := compileFilter(m[1])
		if err != nil {
			return err
		}

		if f.position == 0 {
			f.addNeeds(&p.needs)
		}

		s.filters = append(s.filters, f)
	}

	p.steps = append(p.steps, s)

	return nil
}

// checkRoot returns an error if the path begins with / and its first step cannot match the root
// element. Such a path selects nothing in any message.
func (p *path) checkRoot(root string) error {
	_, local, isQualified := strings.Cut(root, "}")
	if !isQualified {
		local = root
	}

	if p == nil || !p.absolute || slices.Contains([]string{"", "*", ".", "..", local}, p.first) {
		return nil
	}

	return fmt.Errorf("path %q starts at the document, whose only element is %s: write .%s",
		p.given, local, p.given)
}

func compileFilter(given string) (f filter, err error) {
	if wholeNumber.MatchString(given) {
		f.position, err = strconv.Atoi(given)
		if err == nil && f.position == 0 {
			err = errors.New("places count from 1")
		}
		return f, err
	}

	f.condition, err = compileCondition(given)
	return f, err
}

// trimSpace removes XML's white space around a value. It keeps any other space, because the CMS
// reads such space as a part of the value: two keys that differ only in such a space are different
// keys.
func trimSpace(value string) string { return strings.Trim(value, xmlSpace) }

// xmlSpace has the white space of XML.
const xmlSpace = " \t\r\n"

// placedValue is a selected value with its place in the document.
type placedValue struct {
	element   *etree.Element
	attribute string // name with prefix; empty = the value is the text of the element
	text      string // without surrounding white space
}

// selectPlacedValues returns the selected values in the order of the document.
func (p *path) selectPlacedValues(doc *etree.Document) []placedValue {
	var out []placedValue
	p.visitValues(doc, func(v placedValue) bool {
		out = append(out, v)
		return true
	})
	return out
}

// visitValues calls visit with each selected value, in the order of the document, until visit
// returns false.
func (p *path) visitValues(doc *etree.Document, visit func(placedValue) bool) {
	spaces := namespaces{}
	for _, e := range p.selectPlaces(doc) {
		if p.attr == "" {
			if !visit(placedValue{element: e, text: trimSpace(textOf(e))}) {
				return
			}
			continue
		}

		for _, a := range e.Attr { // not SelectAttr: SelectAttr("id") also finds the attribute x:id
			if a.Key == p.attr && p.isInSpace(e, a, spaces) &&
				!visit(placedValue{e, a.FullKey(), trimSpace(a.Value)}) {
				return
			}
		}
	}
}

// selectValues returns the selected values, without surrounding white space.
func (p *path) selectValues(doc *etree.Document) []string {
	var out []string
	for _, v := range p.selectPlacedValues(doc) {
		out = append(out, v.text)
	}
	return out
}

func (p *path) isInSpace(e *etree.Element, a etree.Attr, spaces namespaces) bool {
	if p.namespace == nil {
		return a.Space == p.space
	}
	return spaces.ofAttribute(e, a) == *p.namespace
}

// selectPlaces returns the elements whose text or attribute the path selects.
func (p *path) selectPlaces(doc *etree.Document) []*etree.Element {
	start := doc.Root()
	if p.absolute {
		start = &doc.Element
	}

	found, spaces := []*etree.Element{start}, namespaces{}
	for _, s := range p.steps {
		found = s.selectElements(found, spaces)
	}

	if p.hasDescendants() && len(found) > 1 {
		sortByPlace(found, doc)
	}

	return found
}

// hasDescendants reports whether the path has the step //. Without //, all selected elements have
// the same depth, so they are already in the order of the document.
func (p *path) hasDescendants() bool {
	return slices.ContainsFunc(p.steps, func(s step) bool { return s.isDescendant })
}

// sortByPlace puts elements into the order of the document.
func sortByPlace(found []*etree.Element, doc *etree.Document) {
	places := map[*etree.Element]int{}
	for i, e := range appendDescendants(&doc.Element, map[*etree.Element]bool{}, nil) {
		places[e] = i
	}
	slices.SortFunc(found, func(a, b *etree.Element) int { return places[a] - places[b] })
}

// selectElements returns the elements that the step selects from the given elements, each once.
func (s *step) selectElements(given []*etree.Element, spaces namespaces) []*etree.Element {
	var out []*etree.Element
	seen := map[*etree.Element]bool{}
	parents := map[*etree.Element]bool{}
	for _, e := range given {
		if s.isDescendant {
			out = appendDescendants(e, seen, out)
			continue
		}

		if s.isParent {
			// All children have the same parent. Its filters would read its text once for each.
			if parents[e.Parent()] {
				continue
			}
			parents[e.Parent()] = true
		}

		named := e.FindElementsPath(s.selector)
		if s.namespace != nil {
			named = slices.DeleteFunc(named,
				func(e *etree.Element) bool { return spaces.ofElement(e) != *s.namespace })
		}

		for _, found := range s.applyFilters(named, spaces) {
			if !seen[found] {
				seen[found] = true
				out = append(out, found)
			}
		}
	}

	return out
}

func (s *step) applyFilters(found []*etree.Element, spaces namespaces) []*etree.Element {
	for _, f := range s.filters {
		found = f.keepMatching(found, spaces)
	}
	return found
}

func (f *filter) keepMatching(found []*etree.Element, spaces namespaces) []*etree.Element {
	if f.position != 0 {
		at := f.position - 1
		if f.position < 0 {
			at = len(found) + f.position
		}

		if at < 0 || at >= len(found) {
			return nil
		}

		return found[at : at+1]
	}

	var out []*etree.Element
	for _, e := range found {
		if f.holds(element{e, spaces}) {
			out = append(out, e)
		}
	}

	return out
}

// appendDescendants appends an element and its descendants. It skips an element in seen, because
// that element and its descendants were appended before.
func appendDescendants(e *etree.Element, seen map[*etree.Element]bool,
	out []*etree.Element) []*etree.Element {
	if seen[e] {
		return out
	}

	seen[e] = true
	out = append(out, e)
	for _, child := range e.Child {
		if c, ok := child.(*etree.Element); ok {
			out = appendDescendants(c, seen, out)
		}
	}

	return out
}

// textOf returns the text of an element: the string-value of XPath 1.0, section 5.2. It is the text
// in the element and in all elements inside, in the order of the document.
func textOf(e *etree.Element) string {
	if len(e.Child) == 1 {
		if data, isText := e.Child[0].(*etree.CharData); isText {
			return data.Data // the usual case needs no copy
		}
	}

	var b strings.Builder
	writeText(&b, e)
	return b.String()
}

func writeText(b *strings.Builder, e *etree.Element) {
	for _, child := range e.Child {
		switch c := child.(type) {
		case *etree.CharData:
			b.WriteString(c.Data)
		case *etree.Element:
			writeText(b, c)
		}
	}
}

// textDirectlyIn returns the text in an element without the text of inner elements.
func textDirectlyIn(e *etree.Element) string {
	var b strings.Builder
	for _, child := range e.Child {
		if data, ok := child.(*etree.CharData); ok {
			b.WriteString(data.Data)
		}
	}
	return b.String()
}

// spendText subtracts the size of an element's text, and one for each node, so that a document of
// empty elements also has an end. It returns false if more than left would be spent.
func spendText(e *etree.Element, left *int) bool {
	for _, child := range e.Child {
		*left--
		switch c := child.(type) {
		case *etree.CharData:
			*left -= len(c.Data)
		case *etree.Element:
			if !spendText(c, left) {
				return false
			}
		}

		if *left < 0 {
			return false
		}
	}

	return true
}

func hasElements(e *etree.Element) bool { return firstElement(e) != nil }

// firstElement returns the first element directly in e, or nil.
func firstElement(e *etree.Element) *etree.Element {
	for _, child := range e.Child {
		if inner, ok := child.(*etree.Element); ok {
			return inner
		}
	}
	return nil
}

// checkNested returns the problem of a path that selects elements in each other whose texts
// together are much longer than the document. An inner text belongs to each element around it, so
// 250 nested elements would make 250 MB of a text of 1 MB.
func (p *path) checkNested(doc *etree.Document) []weir.Problem {
	if p == nil || p.attr != "" || !p.hasDescendants() {
		return nil // all selected elements have the same depth, so none is in another one
	}

	found := p.selectPlaces(doc)
	if len(found) < 2 {
		return nil
	}

	whole := math.MaxInt
	_ = spendText(&doc.Element, &whole)
	left := math.MaxInt - whole + maxContents
	for _, e := range found {
		if !spendText(e, &left) {
			return []weir.Problem{{Path: p.given, Rule: "text",
				Message: fmt.Sprintf("%s selects elements "+
					"in each other, and their texts together have over %d bytes more than the document",
					p.given, maxContents)}}
		}
	}

	return nil
}
