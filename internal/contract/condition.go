package contract

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/beevik/etree"
)

// condition is a filter in brackets that selects elements by a value: of an attribute [@type='x'],
// of a child [name='x'], or of the element itself [text()='x']. Without ='x' it selects the elements
// that have the attribute or child, or a value that is not empty.
//
// The values are the same as those of paths: without surrounding white space, the text of an element
// with the text of all elements inside, and an attribute without a prefix in no namespace. In etree's
// filters, the text of an element ends at its first inner element.
type condition struct {
	attribute, child *xmlName             // one is not nil if an attribute or a child is compared
	ofElement        func(element) string // nil, or the value of the element itself
	isOfText         bool                 // the text of the element itself is compared
	value            *string              // nil = no ='x'
}

// xmlName is a name with its prefix in the document. A child without a prefix can have any prefix.
type xmlName struct{ prefix, local string }

// element is an element with the namespaces that were looked up.
type element struct {
	*etree.Element
	spaces namespaces
}

var conditionFunctions = map[string]func(element) string{
	"local-name":       func(e element) string { return e.Tag },
	"name":             func(e element) string { return e.FullTag() },
	"namespace-prefix": func(e element) string { return e.Space },
	"namespace-uri":    func(e element) string { return e.spaces.ofElement(e.Element) },
}

// conditionText has the groups @, prefix, name or point, (), and the value in its quotes.
var conditionText = regexp.MustCompile(`^\s*(@)?(?:([\pL_][\pL\pM\pN._-]*):)?` +
	`([\pL_][\pL\pM\pN._-]*|\.)(\(\))?\s*(?:=\s*('[^']*'|"[^"]*"))?\s*$`)

func compileCondition(given string) (*condition, error) {
	if strings.TrimSpace(given) == "" {
		return nil, errors.New("the filter in brackets is empty")
	}

	m := conditionText.FindStringSubmatch(given)
	if m == nil {
		return nil, fmt.Errorf("[%s] is none of the conditions [2], [name], [name='x'], [@name], "+
			"[@name='x'] and [text()='x']", given)
	}

	c, name := &condition{}, &xmlName{prefix: m[2], local: m[3]}
	if m[5] != "" {
		value := trimSpace(m[5][1 : len(m[5])-1])
		c.value = &value
	}

	isCall, isAttribute, isPlain := m[4] != "", m[1] != "", m[1]+m[2] == ""
	switch {
	case isCall && isPlain && name.local == "text":
		c.isOfText = true
	case isCall && isPlain && conditionFunctions[name.local] != nil:
		c.ofElement = conditionFunctions[name.local]
	case isCall:
		return nil, fmt.Errorf("[%s] has an unknown function: text(), local-name(), name(), "+
			"namespace-prefix() and namespace-uri() are known", given)
	case name.local == "." && isPlain && c.value != nil:
		c.isOfText = true
	case name.local == ".":
		return nil, fmt.Errorf("[%s] is no condition: write [.='x']", given)
	case isAttribute:
		c.attribute = name
	default:
		c.child = name
	}

	return c, nil
}

// addNeeds adds the parts of a document that the condition reads. The condition on a child or on a
// text needs every element, because the text of an element is also in the elements inside.
func (c *condition) addNeeds(n *needs) {
	if c.attribute != nil {
		n.addAttribute(c.attribute.local)
		return
	}
	n.all, n.declarations, n.allTexts = true, true, true
}

// holds reports whether the condition holds for an element.
func (c *condition) holds(e element) bool {
	switch {
	case c.attribute != nil:
		for _, a := range e.Attr {
			if a.Key == c.attribute.local && a.Space == c.attribute.prefix &&
				(c.value == nil || trimSpace(a.Value) == *c.value) {
				return true
			}
		}

	case c.child != nil:
		for _, token := range e.Child {
			inner, isElement := token.(*etree.Element)
			if isElement && inner.Tag == c.child.local &&
				(c.child.prefix == "" || c.child.prefix == inner.Space) &&
				(c.value == nil || hasText(inner, *c.value)) {
				return true
			}
		}

	case c.isOfText && c.value == nil:
		return !hasText(e.Element, "")
	case c.isOfText:
		return hasText(e.Element, *c.value)
	case c.value == nil:
		return c.ofElement(e) != ""
	default:
		return c.ofElement(e) == *c.value
	}

	return false
}

// hasText reports whether the trimmed text of an element is wanted, which is trimmed, too. It copies
// no text, and stops at the first difference: a document can nest elements deeply, and a condition
// can look at each of them.
func hasText(e *etree.Element, wanted string) bool {
	rest, hasBegun := wanted, false
	isSame := walkText(e, func(text string) bool {
		if !hasBegun {
			text = strings.TrimLeft(text, xmlSpace)
			hasBegun = text != ""
		}

		n := min(len(text), len(rest))
		if text[:n] != rest[:n] {
			return false
		}

		rest = rest[n:]
		return strings.TrimLeft(text[n:], xmlSpace) == ""
	})

	return isSame && rest == ""
}

// walkText calls visit with each text in an element and in all elements inside, in the order of the
// document. It returns false as soon as visit does.
func walkText(e *etree.Element, visit func(text string) bool) bool {
	for _, child := range e.Child {
		switch c := child.(type) {
		case *etree.CharData:
			if !visit(c.Data) {
				return false
			}
		case *etree.Element:
			if !walkText(c, visit) {
				return false
			}
		}
	}

	return true
}
