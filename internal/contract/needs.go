package contract

import (
	"encoding/xml"
	"maps"
	"strings"
)

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
