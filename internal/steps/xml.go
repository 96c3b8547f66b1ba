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

// xmlBody is an XML document. Expressions stand only in texts and in attribute values, so that no
// value can become markup.
type xmlBody struct {
	doc *etree.Document
	// the expressions and environment variables, by the number in their mark
	expressions []*template
	isCall      bool // the document is an XML-RPC call
}

// A mark stands in the document in place of an expression or an environment variable, and has a
// number between these two characters. Without marks, the XML parser would read a character of an
// expression, such as <, as markup. When a request is built, values replace the marks.
const (
	xmlMarkBegin = "\uE010"
	xmlMarkEnd   = "\uE011"
)

var xmlMark = regexp.MustCompile(xmlMarkBegin + `(\d+)` + xmlMarkEnd)

func (f *File) compileXML(p pair, st *step, s *scope) body {
	text, ok := readText(p.value)
	if !ok || strings.TrimSpace(text) == "" {
		f.addMistake(p.placeOfValue(),
			"xml must be the text of a document, such as <a>{{ key }}</a>")
		return nil
	}

	b := &xmlBody{}

	// The value of an environment variable must not become markup.
	markVariables := func(literal string) string {
		return f.variable.ReplaceAllStringFunc(literal, func(found string) string {
			return b.addMark(templatePart{literal: f.fillVariables(found)})
		})
	}

	whole := f.compileText(p.value, p.at.path, text, s, markVariables)
	f.requireText(whole, p.placeOfValue())
	var marked strings.Builder
	for _, t := range whole.parts {
		if t.expression == nil {
			marked.WriteString(t.literal)
			continue
		}
		marked.WriteString(b.addMark(t))
	}

	// ParseTree also finds mistakes that etree accepts.
	if _, err := contract.ParseTree([]byte(strings.TrimSpace(marked.String())), "",
		contract.Limits{}); err != nil {
		f.addMistake(p.placeOfValue(),
			"xml is not well-formed (%s); an expression may stand in a text or in an attribute's "+
				"value only", describeXML(err))
		return nil
	}

	b.doc = etree.NewDocument()
	if err := b.doc.ReadFromString(strings.TrimSpace(marked.String())); err != nil {
		f.addMistake(p.placeOfValue(), "xml is not well-formed (%s)", describeXML(err))
		return nil
	}

	f.checkMarks(&b.doc.Element, p.placeOfValue())
	b.isCall = b.doc.Root().Tag == "methodCall"
	if b.isCall {
		st.needs.addPart(partXML, needStrict)
	}

	return b
}

// addMark stores an expression or an environment variable, and returns the mark that replaces it.
func (b *xmlBody) addMark(p templatePart) string {
	b.expressions = append(b.expressions, &template{parts: []templatePart{p}})
	return xmlMarkBegin + strconv.Itoa(len(b.expressions)-1) + xmlMarkEnd
}

func describeXML(err error) string {
	return xmlMark.ReplaceAllString(strings.TrimPrefix(err.Error(), "accept: "), "{{ … }}")
}

// checkMarks records a mistake if e, or an element inside e, has a mark in a name, a comment, a
// processing instruction or a document type declaration.
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
		case *etree.Directive:
			names += c.Data
		}
	}

	if strings.Contains(names, xmlMarkBegin) {
		f.addMistake(at,
			"an expression stands in a name or a comment of xml; it may stand in a text or in an attribute's "+
				"value only")
	}
}

func (b *xmlBody) renderBody(env map[string]any, _ *weir.Message) ([]byte, string, error) {
	doc := b.doc.Copy()
	if err := b.fillElement(doc.Root(), env); err != nil {
		return nil, "", err
	}

	doc.WriteSettings = etree.WriteSettings{CanonicalText: true, CanonicalAttrVal: true}
	content, err := doc.WriteToBytes()
	return content, "text/xml; charset=utf-8", err
}

// fillElement replaces the marks in an element with values. If an attribute is a single expression
// with the value nil, fillElement leaves the attribute out.
func (b *xmlBody) fillElement(e *etree.Element, env map[string]any) error {
	kept := e.Attr[:0]
	for _, a := range e.Attr {
		value, isNil, err := b.expandMarks(a.Value, env)
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
			if err := b.fillElement(c, env); err != nil {
				return err
			}

		case *etree.CharData:
			value, _, err := b.expandMarks(c.Data, env)
			if err != nil {
				return err
			}
			c.SetData(value)
		}
	}

	return nil
}

// expandMarks replaces the marks in a text with values. isNil is true if the text is a single mark
// whose value is nil.
func (b *xmlBody) expandMarks(text string, env map[string]any) (expanded string, isNil bool,
	err error) {
	expanded = xmlMark.ReplaceAllStringFunc(text, func(mark string) string {
		number, _ := strconv.Atoi(xmlMark.FindStringSubmatch(mark)[1])
		value, problem := b.expressions[number].evaluateLeaf(env)
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
			err = e.newValueError(problem)
		}

		return part
	})

	return expanded, isNil, err
}

func isForbiddenXML(r rune) bool {
	return r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF
}
