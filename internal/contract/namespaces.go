package contract

import "github.com/beevik/etree"

// namespaces looks up the namespaces of one document. etree's own look-up reads all attributes of each ancestor
// at each look-up. For a hostile body with many declarations and many elements, that cost would be the product
// of both numbers.
type namespaces map[*etree.Element]map[string]string

// ofElement returns the namespace of an element, or "" if it has none.
func (n namespaces) ofElement(e *etree.Element) string { return n.resolve(e, e.Space) }

// ofAttribute returns the namespace of an attribute of e. An attribute without a prefix has no namespace.
func (n namespaces) ofAttribute(e *etree.Element, a etree.Attr) string {
	if a.Space == "" {
		return ""
	}
	return n.resolve(e, a.Space)
}

func (n namespaces) resolve(e *etree.Element, prefix string) string {
	if prefix == "xml" {
		return "http://www.w3.org/XML/1998/namespace"
	}
	for ; e != nil; e = e.Parent() {
		if space, ok := n.declaredBy(e)[prefix]; ok {
			return space
		}
	}
	return ""
}

// declaredBy returns the declarations of one element: the namespace of each prefix. The default namespace has
// the prefix "".
func (n namespaces) declaredBy(e *etree.Element) map[string]string {
	declared, known := n[e]
	if known {
		return declared
	}
	for _, a := range e.Attr {
		prefix := a.Key
		switch {
		case a.Space == "" && a.Key == "xmlns":
			prefix = ""
		case a.Space != "xmlns":
			continue
		}
		if declared == nil {
			declared = map[string]string{}
		}
		declared[prefix] = a.Value
	}
	n[e] = declared
	return declared
}
