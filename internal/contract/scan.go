package contract

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/beevik/etree"
)

// qualifiedName is an element's local name with its namespace.
type qualifiedName struct{ uri, local string }

func (n qualifiedName) String() string {
	if n.uri == "" {
		return n.local
	}
	return "{" + n.uri + "}" + n.local
}

// scanner reads a document as a stream of tokens. It refuses a document at the first token that
// exceeds a limit. It also refuses documents that are not well-formed but that encoding/xml accepts
// (wellformed.go). The scanner adds each needed token to the tree right after the check, so that
// the document is read only once.
type scanner struct {
	text                string
	tokens              *markupReader
	limits              Limits
	elementsLeft        int  // number of elements that the document may still have
	mayExceedAttributes bool // the text has more equals signs than limits.Attributes
	open                []openElement
	namespaces          namespaceScope
	root                qualifiedName
	hasRoot             bool
	needsOf             func(root qualifiedName) needs
	needs               needs // the parts that the caller needs; set at the root element
	doctype             doctypeState
	doctypeAt           textRange // the document type declaration
	doc                 *etree.Document
	places              *places // nil = positions are not stored
	start, end          int     // offsets of the current token
}

type openElement struct {
	raw      xml.Name
	tree     *etree.Element // nil = not in the tree
	holder   *etree.Element // gets the texts in the element; nil = they are not needed
	declared []string       // namespace prefixes that the element declares
}

// scanDocument returns the root element's name, and the tree of the document. The tree has only the
// parts that needsOf returns for the root element.
func scanDocument(text string, limits Limits,
	needsOf func(root qualifiedName) needs) (qualifiedName, *etree.Document, error) {
	one, err := scanWithPlaces(text, limits, nil, needsOf)
	if err != nil {
		return qualifiedName{}, nil, err
	}
	return one.root, one.doc, nil
}

// scanned is the result of scanning a document.
type scanned struct {
	text    string // the document in UTF-8
	root    qualifiedName
	doc     *etree.Document
	doctype textRange // the document type declaration; the zero value if there is none
}

// scanWithPlaces does the work of scanDocument, and adds the position of each element in the tree
// to places.
func scanWithPlaces(text string, limits Limits, places *places,
	needsOf func(root qualifiedName) needs) (*scanned, error) {
	if places != nil {
		places.text = text
	}

	s := &scanner{places: places, text: text, tokens: &markupReader{text: text},
		limits: limits, elementsLeft: limits.Elements,
		mayExceedAttributes: strings.Count(text, "=") > limits.Attributes,
		namespaces:          newNamespaceScope(),
		needsOf:             needsOf, doc: &etree.Document{}}

	if at, r := findForbiddenCharacter(text); at >= 0 {
		return nil, s.errorAt(at, fmt.Sprintf("the character %U is not allowed in XML", r))
	}

	for {
		start := s.tokens.offset
		if s.mayExceedAttributes && countAttributes(text[start:]) > limits.Attributes {
			return nil, s.errorAt(start,
				fmt.Sprintf("an element has more than %d attributes", limits.Attributes))
		}

		if strings.HasPrefix(text[start:], doctypeStart) {
			// The decoder would read an internal subset to its end.
			if problem := describeDoctype(text[start:]); problem != "" {
				return nil, s.errorAt(start, problem)
			}
		}

		s.start = start
		token, err := s.tokens.next()
		end := s.tokens.offset
		s.end = end
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, s.errorAt(end, describeSyntaxError(err, s.doctype.found))
		}

		if problem := s.checkToken(token, text[start:end]); problem != "" {
			return nil, s.errorAt(start, problem)
		}
	}

	switch {
	case len(s.open) > 0:
		return nil, s.errorAt(len(text),
			fmt.Sprintf("element <%s> is not closed",
				quoted(formatRawName(s.open[len(s.open)-1].raw))))
	case !s.hasRoot:
		return nil, s.errorAt(len(text), "there is no element")
	}

	return &scanned{text, s.root, s.doc, s.doctypeAt}, nil
}

// checkToken checks a token, and adds the token to the tree if it is needed. The parameter raw is
// the token as the document has it. checkToken returns the token's problem, or an empty string.
func (s *scanner) checkToken(token xml.Token, raw string) string {
	switch t := token.(type) {
	case xml.StartElement:
		t.Attr = normalizeAttributes(t.Attr, raw)
		return firstNonEmpty(checkStartTag(raw), s.startElement(t))
	case xml.EndElement:
		return s.endElement(t)
	case plainText:
		return s.addText(raw, string(t))
	case xml.CharData:
		return s.addText(raw, string(t))

	case xml.Directive:
		problem := s.doctype.readDirective(raw, s.hasRoot)
		s.doctypeAt = textRange{s.start, s.end}
		return problem

	case xml.ProcInst:
		if problem := checkInstruction(t.Target, raw); problem != "" {
			return problem
		}

		if parent := s.currentParent(); parent != nil && s.needs.all {
			// The tree needs the instruction, because etree ends an element's text at an
			// instruction. The tree does not need the instruction's content.
			parent.AddChild(etree.NewProcInst(t.Target, ""))
		}
	}

	return ""
}

// addText checks a text, and adds it to the tree if it is needed. The tree has a copy, because a
// message can keep it for longer than the document.
func (s *scanner) addText(raw, text string) (problem string) {
	if problem := s.checkText(raw); problem != "" {
		return problem
	}

	if len(s.open) > 0 && s.open[len(s.open)-1].holder != nil {
		s.open[len(s.open)-1].holder.AddChild(etree.NewText(strings.Clone(text)))
	}

	return ""
}

// currentParent returns the element of the tree that gets the next content, or nil if the content
// is not needed.
func (s *scanner) currentParent() *etree.Element {
	if len(s.open) == 0 {
		return &s.doc.Element
	}
	return s.open[len(s.open)-1].tree
}

// appendElement adds an element to the tree. If the element is not needed, appendElement returns
// nil.
func (s *scanner) appendElement(t xml.StartElement) *etree.Element {
	parent := s.currentParent()
	if parent == nil || len(s.open) > 0 && !s.needs.needsElement(t.Name.Local) {
		return nil
	}

	e := &etree.Element{Space: t.Name.Space, Tag: t.Name.Local}
	for _, a := range t.Attr {
		if s.needs.needsAttribute(a.Name) {
			e.Attr = append(e.Attr,
				etree.Attr{Space: a.Name.Space, Key: a.Name.Local, Value: a.Value})
		}
	}

	parent.AddChild(e)
	s.places.beginElement(e, s.start, s.end)

	return e
}

// findHolder returns the element of the tree that gets the texts in a new element, or nil if no
// path reads them. The parameter tree is the new element, or nil if it is not in the tree: then the
// element around it that is in the tree gets the texts, because they belong to its text, and one
// element that marks it as mixed content.
func (s *scanner) findHolder(tree *etree.Element, local string) *etree.Element {
	var around *etree.Element
	if len(s.open) > 0 {
		around = s.open[len(s.open)-1].holder
	}

	switch {
	case tree != nil && (around != nil || s.needs.needsText(local)):
		return tree
	case tree == nil && around != nil && !hasElements(around):
		// no path selects it, because no path needs its name
		around.AddChild(&etree.Element{Tag: local})
	}

	return around
}

// checkText returns the problem of a text, or an empty string. The parameter raw is the text as the
// document has it. Outside the root element, XML allows only plain white space: no CDATA section
// and no reference.
func (s *scanner) checkText(raw string) string {
	switch {
	case len(s.open) == 0 && !s.hasRoot && trimSpace(raw) != "":
		return fmt.Sprintf("there is text before the root element: %s",
			quoted(strconv.Quote(shorten(trimSpace(raw)))))
	case len(s.open) == 0 && strings.Trim(raw, " \t\r\n") != "":
		return "there is text after the root element"
	case strings.HasPrefix(raw, "<![CDATA["):
		return ""
	}

	return checkReferences(raw)
}

func (s *scanner) startElement(t xml.StartElement) string {
	if len(s.open) == 0 && s.hasRoot {
		return "there is more than one root element"
	}
	if len(s.open)+1 > s.limits.Depth {
		return fmt.Sprintf("elements are nested more than %d deep", s.limits.Depth)
	}

	if s.elementsLeft--; s.elementsLeft < 0 {
		return "there are too many elements"
	}

	declared, problem := s.namespaces.declarePrefixes(t.Attr)
	if problem != "" {
		return problem
	}

	uri, problem := s.namespaces.lookUpNamespace(t.Name)
	if problem != "" {
		return problem
	}

	if !s.hasRoot {
		s.root, s.hasRoot = qualifiedName{uri, t.Name.Local}, true
		s.needs = s.needsOf(s.root)
	}

	tree := s.appendElement(t)
	s.open = append(s.open, openElement{t.Name, tree, s.findHolder(tree, t.Name.Local), declared})

	return s.namespaces.checkAttributes(t.Attr)
}

func (s *scanner) endElement(t xml.EndElement) string {
	if len(s.open) == 0 {
		return fmt.Sprintf("</%s> closes nothing", quoted(formatRawName(t.Name)))
	}

	last := s.open[len(s.open)-1]
	if last.raw != t.Name {
		return fmt.Sprintf("element <%s> is closed by </%s>", quoted(formatRawName(last.raw)),
			quoted(formatRawName(t.Name)))
	}

	s.namespaces.dropPrefixes(last.declared)
	s.places.endElement(last.tree, s.start)
	s.open = s.open[:len(s.open)-1]

	return ""
}

// formatRawName returns a name with its prefix, truncated for use in a message.
func formatRawName(n xml.Name) string {
	if n.Space == "" {
		return truncate(n.Local)
	}
	return truncate(n.Space + ":" + n.Local)
}

// describeSyntaxError returns the problem of a token that the decoder does not read. hasDoctype is
// true if the document has a document type declaration, so that the sender's DTD can declare an
// entity.
func describeSyntaxError(err error, hasDoctype bool) string {
	var syntax *xml.SyntaxError
	if !errors.As(err, &syntax) {
		return "not well-formed"
	}

	entity, isEntity := strings.CutPrefix(syntax.Msg, "invalid character entity ")
	switch {
	case isEntity && strings.HasSuffix(entity, "(no semicolon)"):
		return "an & begins no entity; write & as &amp;"
	case isEntity && hasDoctype:
		return fmt.Sprintf("the entity %s needs the DTD, which Weir does not load; write the character itself",
			quoted(truncate(entity)))
	case isEntity:
		return fmt.Sprintf("there is no entity %s; XML knows only &amp; &lt; &gt; &quot; and &apos;",
			quoted(truncate(entity)))
	}

	if slices.Contains(fixedSyntaxErrors, syntax.Msg) {
		return syntax.Msg
	}

	for _, fixed := range []string{"invalid XML name: ", "illegal character code "} {
		if words, has := strings.CutPrefix(syntax.Msg, fixed); has {
			return fixed + quoted(truncate(words))
		}
	}

	return "not well-formed: " + quoted(truncate(syntax.Msg))
}

// fixedSyntaxErrors are the messages of encoding/xml without a word of the document.
var fixedSyntaxErrors = []string{
	"unexpected EOF", "invalid UTF-8", "expected attribute name in element",
	"attribute name without = in element",
	"unquoted or missing attribute value in element", "expected /> in element",
	"expected element name after <",
	"expected element name after </", "unescaped < inside quoted string",
	"unescaped ]]> not in CDATA section",
	"invalid sequence <!- not part of <!--", `invalid sequence "--" not allowed in comments`,
	"invalid <![ sequence",
	"expected target name after <?",
}

// lineColumn returns the line and column at the end of a text, from 1. The column counts
// characters.
func lineColumn(before string) (line, column int) {
	last := before[strings.LastIndexByte(before, '\n')+1:]
	return strings.Count(before, "\n") + 1, utf8.RuneCountInString(last) + 1
}

func (s *scanner) errorAt(offset int, problem string) error {
	return malformedErrorAt("xml", s.limits.describeProblem(problem),
		s.text[:min(offset, len(s.text))])
}

// needs are the parts of a document that a contract's paths can select or traverse. The scanner
// checks all other parts, but does not add them to the tree, because a tree of the whole document
// takes up to 30 times the body's memory. The zero value needs only the root element.
type needs struct {
	// all elements, because a path traverses elements that it does not name
	all          bool
	elements     map[string]bool // by local name
	attributes   map[string]bool // by local name
	declarations bool            // declarations of namespaces
	// all attributes, because the XML of an element is read, not only its text
	markup   bool
	texts    map[string]bool // elements whose text is read, by local name
	allTexts bool            // the text of each element
}

// needsText reports whether the text of an element is read, and so the text of all elements in it.
func (n *needs) needsText(local string) bool { return n.allTexts || n.markup || n.texts[local] }

// addText adds the need of the elements that a path selects. The parameter selector is the path's
// last step.
func (n *needs) addText(selector string) {
	switch selector {
	case "", "*", ".", "..":
		n.allTexts = true
	default:
		if n.texts == nil {
			n.texts = map[string]bool{}
		}
		n.texts[localName(selector)] = true
	}
}

func (n *needs) needsElement(local string) bool { return n.all || n.elements[local] }

func (n *needs) needsAttribute(given xml.Name) bool {
	if n.markup {
		return true
	}
	if given.Space == "xmlns" || given.Space == "" && given.Local == "xmlns" {
		return n.declarations || n.attributes[given.Local]
	}
	return n.attributes[given.Local]
}

// addStep adds the needs of one step of a path. The selector is empty for the step //. The steps //
// and * need every element.
func (n *needs) addStep(selector string) {
	switch selector {
	case "", "*":
		n.all = true
	case ".", "..":
	default:
		if n.elements == nil {
			n.elements = map[string]bool{}
		}
		n.elements[localName(selector)] = true
	}
}

func (n *needs) addAttribute(given string) {
	if n.attributes == nil {
		n.attributes = map[string]bool{}
	}
	n.attributes[localName(given)] = true
}

func (n *needs) merge(more needs) {
	n.all = n.all || more.all
	n.declarations = n.declarations || more.declarations
	n.markup = n.markup || more.markup
	n.allTexts = n.allTexts || more.allTexts
	if n.texts == nil {
		n.texts = map[string]bool{}
	}

	maps.Copy(n.texts, more.texts)
	if n.elements == nil {
		n.elements = map[string]bool{}
	}

	if n.attributes == nil {
		n.attributes = map[string]bool{}
	}

	maps.Copy(n.elements, more.elements)
	maps.Copy(n.attributes, more.attributes)
}

func localName(given string) string { return given[strings.IndexByte(given, ':')+1:] }
