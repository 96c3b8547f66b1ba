package contract

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// maxInherited limits the bytes of the declarations that are added to a part. Without the limit, a
// document with one large declaration and many small parts would grow to a multiple of its size.
const maxInherited = 4 << 10

// xmlAttributes has the attributes of the prefix xml that hold for an element and for all elements
// in it: the address that relative addresses begin at, the language, and the rule for white space.
type xmlAttributes struct{ base, lang, space string }

// inherit returns the attributes that hold for an element with the attributes attrs, if those of x
// hold for its parent.
func (x xmlAttributes) inherit(attrs []xml.Attr) (xmlAttributes, string) {
	for _, a := range attrs {
		switch {
		case a.Name.Space != "xml":
		case a.Name.Local == "base":
			x.base = resolveBase(x.base, a.Value)
		case a.Name.Local == "lang":
			x.lang = a.Value
		case a.Name.Local == "space":
			x.space = a.Value
		}
	}

	if len(x.base) > maxInherited { // an address grows with each level
		return x, fmt.Sprintf("an element's xml:base has more than %d bytes", maxInherited)
	}

	return x, ""
}

// resolveBase returns the address that inner is, if it stands in an element for which outer holds
// (XML Base, section 4; RFC 3986, section 5). Both may be relative. An address that cannot be
// resolved stays as it is.
func resolveBase(outer, inner string) string {
	base, err := url.Parse(outer)
	if err != nil || outer == "" {
		return inner
	}

	reference, err := url.Parse(inner)
	if err != nil || reference.IsAbs() || base.Opaque != "" {
		return inner
	}

	if base.IsAbs() || base.Host != "" || strings.HasPrefix(base.Path, "/") {
		return base.ResolveReference(reference).String()
	}

	switch { // net/url makes a relative base absolute
	case inner == "":
		return outer
	case reference.Host != "" || strings.HasPrefix(inner, "/"):
		return inner
	}

	if i := strings.IndexAny(outer, "?#"); i >= 0 {
		outer = outer[:i]
	}

	if reference.Path == "" {
		return outer + inner
	}

	return outer[:strings.LastIndexByte(outer, '/')+1] + inner
}

// completeStartTag returns the start tag of a part as it is to stand alone: with the namespaces and
// the attributes of the prefix xml that the element inherits. The parameter raw is the tag t as the
// document has it; parent has the attributes that hold for the parent, own those of the element.
func (p *Splitter) completeStartTag(t xml.StartElement, raw string, parent, own xmlAttributes) (
	tag []byte, problem string) {
	added := p.inheritedBy(t)
	for _, a := range []struct{ name, inherited, own string }{{"base", parent.base, own.base},
		{"lang", parent.lang, own.lang}, {"space", parent.space, own.space}} {
		i := slices.IndexFunc(t.Attr, func(x xml.Attr) bool {
			return x.Name.Space == "xml" && x.Name.Local == a.name
		})
		switch {
		case i < 0 && a.inherited != "":
			added = appendAttribute(added, "xml:"+a.name, a.inherited)
		case i >= 0 && t.Attr[i].Value != a.own: // a relative address, which is resolved now
			raw = removeAttribute(raw, "xml:"+a.name)
			added = appendAttribute(added, "xml:"+a.name, a.own)
		}
	}

	if len(added) > maxInherited {
		return nil, fmt.Sprintf("a part inherits more than %d bytes of declarations", maxInherited)
	}

	name := 1 + len(joinRawName(t.Name))
	tag = make([]byte, 0, len(raw)+len(added))
	tag = append(tag, raw[:name]...)
	tag = append(tag, added...)

	return append(tag, raw[name:]...), ""
}

// inheritedBy returns a declaration for each namespace in scope, sorted by prefix. It leaves out
// the prefixes that the start tag t declares itself.
func (p *Splitter) inheritedBy(t xml.StartElement) (declarations []byte) {
	own := map[string]bool{"xml": true}
	for _, a := range t.Attr {
		switch {
		case a.Name.Space == "xmlns":
			own[a.Name.Local] = true
		case a.Name.Space == "" && a.Name.Local == "xmlns":
			own[""] = true
		}
	}

	for _, prefix := range slices.Sorted(maps.Keys(p.namespaces)) {
		bound := p.namespaces[prefix]
		if own[prefix] || len(bound) == 0 || bound[len(bound)-1] == "" {
			continue
		}
		declarations = appendAttribute(declarations, joinRawName(rawDeclaration(prefix)),
			bound[len(bound)-1])
	}

	return declarations
}

// rawDeclaration returns the name of the attribute that declares a prefix, or the default
// namespace.
func rawDeclaration(prefix string) xml.Name {
	if prefix == "" {
		return xml.Name{Local: "xmlns"}
	}
	return xml.Name{Space: "xmlns", Local: prefix}
}

func appendAttribute(tag []byte, name, value string) []byte {
	b := bytes.NewBuffer(tag)
	b.WriteString(" " + name + `="`)
	_ = xml.EscapeText(b, []byte(value)) // a Buffer returns no error
	b.WriteByte('"')
	return b.Bytes()
}

// removeAttribute returns a start tag without an attribute. The decoder has read the tag, so each
// attribute has a value in quotes.
func removeAttribute(raw, name string) string {
	const blank = " \t\r\n"
	for at := strings.IndexAny(raw, blank); at >= 0 && at < len(raw); {
		begin := at
		at += len(raw[at:]) - len(strings.TrimLeft(raw[at:], blank))
		equals := strings.IndexByte(raw[at:], '=')
		if equals < 0 {
			return raw
		}

		found := strings.TrimRight(raw[at:at+equals], blank)
		value := strings.TrimLeft(raw[at+equals+1:], blank)
		if value == "" {
			return raw
		}

		length := strings.IndexByte(value[1:], value[0])
		if length < 0 {
			return raw
		}

		at = len(raw) - len(value) + 1 + length + 1
		if found == name {
			return raw[:begin] + raw[at:]
		}
	}

	return raw
}
