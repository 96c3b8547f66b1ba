package steps

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/beevik/etree"

	"weir/internal/contract"
	"weir/internal/weir"
)

// xmlBody is an XML document. Expressions stand in texts and attributes alone, so that no value can
// become markup.
type xmlBody struct {
	doc         *etree.Document
	expressions []*template // by number of the mark
	isCall      bool        // of XML-RPC
}

// Marks stand for expressions while the document is parsed: an expression may have characters that mean
// something in XML.
const (
	xmlMarkBegin = "\uE010"
	xmlMarkEnd   = "\uE011"
)

var xmlMark = regexp.MustCompile(xmlMarkBegin + `(\d+)` + xmlMarkEnd)

// compileXML compiles an XML body.
func (f *File) compileXML(p pair, st *step, s *scope) body {
	text, ok := readText(p.value)
	if !ok || strings.TrimSpace(text) == "" {
		f.refuse(p.place(), "xml must be the text of a document, such as <a>{{ key }}</a>")
		return nil
	}
	b := &xmlBody{}
	// A variable's value is text, too: it must not become markup.
	markVariables := func(literal string) string {
		return f.variable.ReplaceAllStringFunc(literal, func(found string) string {
			return b.mark(templatePart{literal: f.fillVariables(found)})
		})
	}
	whole := f.compileText(p.value, p.at.path, text, s, markVariables)
	f.requireText(whole, p.place())
	var marked strings.Builder
	for _, t := range whole.parts {
		if t.expression == nil {
			marked.WriteString(t.literal)
			continue
		}
		marked.WriteString(b.mark(t))
	}
	// The stream of tokens finds what etree lets pass.
	if _, err := contract.ParseTree([]byte(strings.TrimSpace(marked.String())), contract.Limits{}); err != nil {
		f.refuse(p.place(), "xml is not well-formed (%s); an expression may stand in a text or in an attribute's "+
			"value only", describeXML(err))
		return nil
	}
	b.doc = etree.NewDocument()
	if err := b.doc.ReadFromString(strings.TrimSpace(marked.String())); err != nil {
		f.refuse(p.place(), "xml is not well-formed (%s)", describeXML(err))
		return nil
	}
	f.checkMarks(b.doc.Root(), p.place())
	b.isCall = b.doc.Root().Tag == "methodCall"
	if b.isCall {
		st.needs.add(partXML, needStrict)
	}
	return b
}

// mark returns the mark that stands for a part.
func (b *xmlBody) mark(p templatePart) string {
	b.expressions = append(b.expressions, &template{parts: []templatePart{p}})
	return xmlMarkBegin + strconv.Itoa(len(b.expressions)-1) + xmlMarkEnd
}

func describeXML(err error) string {
	return xmlMark.ReplaceAllString(strings.TrimPrefix(err.Error(), "accept: "), "{{ … }}")
}

// checkMarks records expressions in names and comments.
func (f *File) checkMarks(e *etree.Element, at place) {
	names := e.FullTag()
	for _, a := range e.Attr {
		names += a.FullKey()
	}
	for _, child := range e.Child {
		switch c := child.(type) {
		case *etree.Element:
			f.checkMarks(c, at)
		case *etree.Comment:
			names += c.Data
		case *etree.ProcInst:
			names += c.Inst
		}
	}
	if strings.Contains(names, xmlMarkBegin) {
		f.refuse(at, "an expression stands in a name or a comment of xml; it may stand in a text or in an attribute's "+
			"value only")
	}
}

func (b *xmlBody) render(env map[string]any, _ *weir.Message) ([]byte, string, error) {
	doc := b.doc.Copy()
	if err := b.fill(doc.Root(), env); err != nil {
		return nil, "", err
	}
	doc.WriteSettings = etree.WriteSettings{CanonicalText: true, CanonicalAttrVal: true}
	content, err := doc.WriteToBytes()
	return content, "text/xml; charset=utf-8", err
}

// fill puts values into an element. An attribute whose only expression is nil is left out.
func (b *xmlBody) fill(e *etree.Element, env map[string]any) error {
	kept := e.Attr[:0]
	for _, a := range e.Attr {
		value, isNil, err := b.expand(a.Value, env)
		if err != nil {
			return err
		}
		if !isNil {
			a.Value = value
			kept = append(kept, a)
		}
	}
	e.Attr = kept
	for _, child := range e.Child {
		switch c := child.(type) {
		case *etree.Element:
			if err := b.fill(c, env); err != nil {
				return err
			}
		case *etree.CharData:
			value, _, err := b.expand(c.Data, env)
			if err != nil {
				return err
			}
			c.SetData(value)
		}
	}
	return nil
}

// expand replaces the marks in a text.
func (b *xmlBody) expand(text string, env map[string]any) (expanded string, isNil bool, err error) {
	expanded = xmlMark.ReplaceAllStringFunc(text, func(mark string) string {
		number, _ := strconv.Atoi(xmlMark.FindStringSubmatch(mark)[1])
		value, problem := b.expressions[number].value(env)
		if problem != nil {
			err = problem
			return ""
		}
		isNil = value == nil && mark == text
		part, problem := toText(value)
		if problem == nil && strings.ContainsFunc(part, isForbiddenXML) {
			problem = errors.New("the value has a control character, which XML cannot have")
		}
		if e := b.expressions[number].parts[0].expression; problem != nil && e != nil {
			err = e.fail(problem)
		}
		return part
	})
	return expanded, isNil, err
}

func isForbiddenXML(r rune) bool {
	return r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF
}
