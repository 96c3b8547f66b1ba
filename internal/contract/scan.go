package contract

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/beevik/etree"
)

// name is an element's name with its namespace.
type name struct{ uri, local string }

func (n name) String() string {
	if n.uri == "" {
		return n.local
	}
	return "{" + n.uri + "}" + n.local
}

// scanner walks a document as a stream of tokens and refuses what must not become a
// tree, and what encoding/xml lets pass though it is not well-formed (wellformed.go). What
// has passed goes into the tree at once, as far as the root's contract needs it, so a
// document is read only once.
type scanner struct {
	text     string
	decoder  *xml.Decoder
	limits   Limits
	elements int  // allowed, less those seen
	crowded  bool // an element may have more attributes than are allowed
	open     []element
	scope    scope
	root     name
	rooted   bool
	choose   func(root name) needs
	needs    needs // known with the root
	doc      *etree.Document
}

type element struct {
	raw      xml.Name
	tree     *etree.Element // nil = not kept
	declared []string       // namespace prefixes, which end with the element
}

// scan returns the root element's name and the document, with only the parts that are needed:
// choose returns these for the root.
func scan(text string, limits Limits, choose func(root name) needs) (name, *etree.Document, error) {
	s := &scanner{text: text, decoder: xml.NewDecoder(strings.NewReader(text)), limits: limits, elements: limits.Elements,
		crowded: strings.Count(text, "=") > limits.Attributes, scope: newScope(), choose: choose, doc: &etree.Document{}}
	if at, r := badCharacter(text); at >= 0 {
		return name{}, nil, s.notXML(at, fmt.Sprintf("the character %U is not allowed in XML", r))
	}
	for {
		start := int(s.decoder.InputOffset())
		if s.crowded && countAttributes(text[start:]) > limits.Attributes {
			return name{}, nil, s.notXML(start, fmt.Sprintf("an element has more than %d attributes", limits.Attributes))
		}
		token, err := s.decoder.RawToken()
		end := int(s.decoder.InputOffset())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return name{}, nil, s.notXML(end, syntaxWords(err))
		}
		if words := s.take(token, text[start:end]); words != "" {
			return name{}, nil, s.notXML(start, words)
		}
	}
	switch {
	case len(s.open) > 0:
		return name{}, nil, s.notXML(len(text), fmt.Sprintf("element <%s> is not closed", rawName(s.open[len(s.open)-1].raw)))
	case !s.rooted:
		return name{}, nil, s.notXML(len(text), "there is no element")
	}
	return s.root, s.doc, nil
}

// take looks at one token, and at the text it was read from, and says what is wrong with it.
func (s *scanner) take(token xml.Token, raw string) string {
	switch t := token.(type) {
	case xml.StartElement:
		return firstOf(tagWords(raw), s.start(t))
	case xml.EndElement:
		return s.end(t)
	case xml.CharData:
		if words := s.data(raw); words != "" {
			return words
		}
		if parent := s.parent(); parent != nil {
			parent.AddChild(etree.NewText(string(t)))
		}
	case xml.Directive:
		return "document type and entity declarations are not accepted"
	case xml.ProcInst:
		if words := instructionWords(t.Target, raw); words != "" {
			return words
		}
		if parent := s.parent(); parent != nil && s.needs.all {
			parent.AddChild(etree.NewProcInst(t.Target, "")) // an element's text ends here for etree
		}
	}
	return ""
}

// parent returns the element whose content comes next; nil = its content is not kept.
func (s *scanner) parent() *etree.Element {
	if len(s.open) == 0 {
		return &s.doc.Element
	}
	return s.open[len(s.open)-1].tree
}

// grow adds an element to the tree, and returns nil if it is not needed.
func (s *scanner) grow(t xml.StartElement) *etree.Element {
	parent := s.parent()
	if parent == nil || len(s.open) > 0 && !s.needs.element(t.Name.Local) {
		return nil
	}
	e := &etree.Element{Space: t.Name.Space, Tag: t.Name.Local}
	for _, a := range t.Attr {
		if s.needs.attribute(a.Name) {
			e.Attr = append(e.Attr, etree.Attr{Space: a.Name.Space, Key: a.Name.Local, Value: a.Value})
		}
	}
	parent.AddChild(e)
	return e
}

// data judges text as it was written: outside the root element, a space that is written as
// CDATA or as a reference is none.
func (s *scanner) data(raw string) string {
	switch {
	case len(s.open) == 0 && strings.Trim(raw, " \t\r\n") != "":
		return "there is text outside the root element"
	case strings.HasPrefix(raw, "<![CDATA["):
		return ""
	}
	return referenceWords(raw)
}

func (s *scanner) start(t xml.StartElement) string {
	if len(s.open) == 0 && s.rooted {
		return "there is more than one root element"
	}
	if len(s.open)+1 > s.limits.Depth {
		return fmt.Sprintf("elements are nested more than %d deep", s.limits.Depth)
	}
	if s.elements--; s.elements < 0 {
		return "there are too many elements"
	}
	declared, words := s.scope.declare(t.Attr)
	if words != "" {
		return words
	}
	uri, words := s.scope.lookUp(t.Name)
	if words != "" {
		return words
	}
	if !s.rooted {
		s.root, s.rooted = name{uri, t.Name.Local}, true
		s.needs = s.choose(s.root)
	}
	s.open = append(s.open, element{t.Name, s.grow(t), declared})
	return s.scope.attributeWords(t.Attr)
}

func (s *scanner) end(t xml.EndElement) string {
	if len(s.open) == 0 {
		return fmt.Sprintf("</%s> closes nothing", rawName(t.Name))
	}
	last := s.open[len(s.open)-1]
	if last.raw != t.Name {
		return fmt.Sprintf("element <%s> is closed by </%s>", rawName(last.raw), rawName(t.Name))
	}
	s.scope.drop(last.declared)
	s.open = s.open[:len(s.open)-1]
	return ""
}

// rawName is a name as it was written, cut where it is too long to repeat.
func rawName(n xml.Name) string {
	if n.Space == "" {
		return short(n.Local)
	}
	return short(n.Space + ":" + n.Local)
}

func syntaxWords(err error) string {
	var syntax *xml.SyntaxError
	if errors.As(err, &syntax) {
		return short(syntax.Msg)
	}
	return "not well-formed"
}

// place is where a text ends: line and column, both from 1, in characters.
func place(before string) (line, column int) {
	last := before[strings.LastIndexByte(before, '\n')+1:]
	return strings.Count(before, "\n") + 1, utf8.RuneCountInString(last) + 1
}

// notXML says what is wrong and where.
func (s *scanner) notXML(offset int, words string) error {
	return malformedAt("xml", words, s.text[:min(offset, len(s.text))])
}
