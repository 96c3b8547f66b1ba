package contract

import "github.com/beevik/etree"

// namespaces caches the namespace declarations of each element of a document. etree has no cache: each of its look-ups
// reads all attributes of all ancestors. For a hostile body, the cost of all look-ups would be the number of
// declarations times the number of elements.
type namespaces map[*etree.Element]map[string]string

// ofElement returns the namespace of an element, or "" if the element has no namespace.
func (n namespaces) ofElement(e *etree.Element) string { return n.resolve(e, e.Space) }

// ofAttribute returns the namespace of the attribute a of e. An attribute without a prefix has no namespace.
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

// declaredBy returns the namespaces that one element declares, by prefix. The default namespace has the prefix "".
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
