package contract

import (
	"fmt"
	"math"
	"strings"

	"github.com/beevik/etree"

	"weir/internal/weir"
)

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
