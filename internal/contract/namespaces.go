package contract

import (
	"maps"
	"slices"

	"github.com/beevik/etree"
)

// namespaces caches the namespace declarations of each element of a document. etree has no cache:
// each of its look-ups reads all attributes of all ancestors. For a hostile body, the cost of all
// look-ups would be the number of declarations times the number of elements.
type namespaces map[*etree.Element]map[string]string

// ofElement returns the namespace of an element, or "" if the element has no namespace.
func (n namespaces) ofElement(e *etree.Element) string { return n.resolve(e, e.Space) }

// ofAttribute returns the namespace of the attribute a of e. An attribute without a prefix has no
// namespace.
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

// declaredBy returns the namespaces that one element declares, by prefix. The default namespace has
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

// listInherited returns declarations of the prefixes that an element or an element inside uses, and
// that are declared around the element only. Without them, its markup alone would not be
// well-formed. The default namespace is not among them: most markup is HTML, in which an xmlns
// would be a surprise.
func (n namespaces) listInherited(e *etree.Element) (declarations []etree.Attr) {
	found := map[string]bool{}
	n.findInherited(e, map[string]int{"": 1, "xml": 1, "xmlns": 1}, found)

	for _, prefix := range slices.Sorted(maps.Keys(found)) {
		declarations = append(declarations,
			etree.Attr{Space: "xmlns", Key: prefix, Value: n.resolve(e.Parent(), prefix)})
	}
	return declarations
}

// findInherited adds prefixes to found. The map inside has the number of declarations of each
// prefix from the selected element on.
func (n namespaces) findInherited(e *etree.Element, inside map[string]int, found map[string]bool) {
	for prefix := range n.declaredBy(e) {
		inside[prefix]++
	}

	used := []string{e.Space}
	for _, a := range e.Attr {
		used = append(used, a.Space)
	}

	for _, prefix := range used {
		if inside[prefix] == 0 {
			found[prefix] = true
		}
	}

	for _, child := range e.ChildElements() {
		n.findInherited(child, inside, found)
	}

	for prefix := range n.declaredBy(e) {
		inside[prefix]--
	}
}
