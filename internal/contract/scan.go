package contract

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"weir/internal/weir"
)

// name is an element's name with its namespace.
type name struct{ uri, local string }

func (n name) String() string {
	if n.uri == "" {
		return n.local
	}
	return "{" + n.uri + "}" + n.local
}

// xmlNamespace is bound to the prefix xml in every document.
const xmlNamespace = "http://www.w3.org/XML/1998/namespace"

// scanner walks a document as a stream of tokens and refuses what must not become a
// tree, and what encoding/xml lets pass though it is not well-formed.
type scanner struct {
	text     string
	decoder  *xml.Decoder
	depth    int // allowed
	elements int // allowed, less those seen
	open     []element
	root     name
	rooted   bool
}

type element struct {
	raw      xml.Name
	bindings map[string]string // of namespace prefixes, as this element sees them
}

// scan gives the root element's name.
func scan(text string, depth, elements int) (name, error) {
	s := &scanner{text: text, decoder: xml.NewDecoder(strings.NewReader(text)), depth: depth, elements: elements}
	for {
		start := s.decoder.InputOffset()
		token, err := s.decoder.RawToken()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return name{}, s.notXML(s.decoder.InputOffset(), syntaxWords(err))
		}
		if words := s.take(token); words != "" {
			return name{}, s.notXML(start, words)
		}
	}
	switch {
	case len(s.open) > 0:
		return name{}, s.notXML(int64(len(text)), fmt.Sprintf("element <%s> is not closed", rawName(s.open[len(s.open)-1].raw)))
	case !s.rooted:
		return name{}, s.notXML(int64(len(text)), "there is no element")
	}
	return s.root, nil
}

// take looks at one token and says what is wrong with it.
func (s *scanner) take(token xml.Token) string {
	switch t := token.(type) {
	case xml.StartElement:
		return s.start(t)
	case xml.EndElement:
		return s.end(t)
	case xml.CharData:
		if len(s.open) == 0 && strings.TrimLeft(string(t), " \t\r\n") != "" {
			return "there is text outside the root element"
		}
	case xml.Directive:
		return "document type and entity declarations are not accepted"
	case xml.ProcInst:
		if strings.EqualFold(t.Target, "xml") {
			return "the XML declaration must stand at the very beginning, once"
		}
	}
	return ""
}

func (s *scanner) start(t xml.StartElement) string {
	if len(s.open) == 0 && s.rooted {
		return "there is more than one root element"
	}
	if len(s.open)+1 > s.depth {
		return fmt.Sprintf("elements are nested more than %d deep", s.depth)
	}
	if s.elements--; s.elements < 0 {
		return "there are too many elements"
	}
	bindings, words := s.bind(t)
	if words != "" {
		return words
	}
	uri, ok := bindings[t.Name.Space]
	if !ok && t.Name.Space != "" {
		return fmt.Sprintf("the namespace prefix %q is not declared", t.Name.Space)
	}
	if !s.rooted {
		s.root, s.rooted = name{uri, t.Name.Local}, true
	}
	s.open = append(s.open, element{t.Name, bindings})
	return attributes(t, bindings)
}

// bind adds an element's namespace declarations to those in force.
func (s *scanner) bind(t xml.StartElement) (map[string]string, string) {
	bindings := map[string]string{"xml": xmlNamespace}
	if len(s.open) > 0 {
		bindings = s.open[len(s.open)-1].bindings
	}
	copied := false
	for _, a := range t.Attr {
		prefix, isDecl := "", a.Name.Space == "" && a.Name.Local == "xmlns"
		if a.Name.Space == "xmlns" {
			prefix, isDecl = a.Name.Local, true
			if a.Value == "" {
				return nil, fmt.Sprintf("the namespace prefix %q is bound to nothing", prefix)
			}
		}
		if !isDecl {
			continue
		}
		if !copied {
			own := make(map[string]string, len(bindings)+1)
			for k, v := range bindings {
				own[k] = v
			}
			bindings, copied = own, true
		}
		bindings[prefix] = a.Value
	}
	return bindings, ""
}

// attributes refuses undeclared prefixes and names that stand twice.
func attributes(t xml.StartElement, bindings map[string]string) string {
	if len(t.Attr) == 0 {
		return ""
	}
	seen := make(map[name]bool, len(t.Attr))
	for _, a := range t.Attr {
		n := name{a.Name.Space, a.Name.Local}
		if a.Name.Space != "" && a.Name.Space != "xmlns" {
			uri, ok := bindings[a.Name.Space]
			if !ok {
				return fmt.Sprintf("the namespace prefix %q is not declared", a.Name.Space)
			}
			n.uri = "{" + uri + "}"
		}
		if seen[n] {
			return fmt.Sprintf("the attribute %q stands twice", rawName(a.Name))
		}
		seen[n] = true
	}
	return ""
}

func (s *scanner) end(t xml.EndElement) string {
	if len(s.open) == 0 {
		return fmt.Sprintf("</%s> closes nothing", rawName(t.Name))
	}
	if last := s.open[len(s.open)-1].raw; last != t.Name {
		return fmt.Sprintf("element <%s> is closed by </%s>", rawName(last), rawName(t.Name))
	}
	s.open = s.open[:len(s.open)-1]
	return ""
}

func rawName(n xml.Name) string {
	if n.Space == "" {
		return n.Local
	}
	return n.Space + ":" + n.Local
}

func syntaxWords(err error) string {
	var syntax *xml.SyntaxError
	if errors.As(err, &syntax) {
		return syntax.Msg
	}
	return "not well-formed"
}

// notXML says what is wrong and where: line and column, both from 1, in characters.
func (s *scanner) notXML(offset int64, words string) error {
	before := s.text[:min(int(offset), len(s.text))]
	line := strings.Count(before, "\n") + 1
	column := utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
	return malformed(fmt.Sprintf("not accepted as XML: line %d, column %d: %s", line, column, words),
		weir.Problem{Rule: "xml", Message: words, Line: line, Column: column})
}
