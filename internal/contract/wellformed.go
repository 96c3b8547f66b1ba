package contract

import (
	"encoding/xml"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"weir/internal/weir"
)

// This file checks rules of XML 1.0 and of Namespaces in XML that encoding/xml does not check.
// Without these checks, the receiver would accept an invalid document with 202, and a CMS with a
// stricter parser would reject the document later. A check returns a problem as a text; "" = there
// is none.

// findForbiddenCharacter returns the offset of the first character that XML does not allow, and
// this character. If XML allows all characters, the offset is -1. The check is needed because
// encoding/xml does not check the characters in comments and processing instructions.
func findForbiddenCharacter(text string) (at int, r rune) {
	for at, r := range text {
		allowed := r >= 0x20 && r <= 0xD7FF || r == '\t' || r == '\n' || r == '\r' ||
			r >= 0xE000 && r <= 0xFFFD || r >= 0x10000
		if !allowed {
			return at, r
		}
	}

	return -1, 0
}

// checkStartTag refuses a tag with two attributes that have no space between them, or with a
// reference to a surrogate.
func checkStartTag(raw string) string {
	quote := byte(0)
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote != 0 && c == quote:
			quote = 0
			if i+1 < len(raw) && !strings.ContainsRune(" \t\r\n/>", rune(raw[i+1])) {
				return "there is no space between two attributes"
			}
		}
	}

	return checkReferences(raw)
}

// blanks replaces each white space by one blank. A line break of two characters counts as one (XML
// 1.0, section 2.11).
var blanks = strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ", "\t", " ")

// normalizeAttributes returns the attributes of a start tag with their values as XML 1.0, section
// 3.3.3, defines them: a line break or tab is a blank, except if it is written as a reference. The
// decoder does not normalize, so a key whose attribute is wrapped would differ from the key that
// the CMS reads. The parameter raw is the whole tag as the document has it.
func normalizeAttributes(attrs []xml.Attr, raw string) []xml.Attr {
	hasBreak := func(a xml.Attr) bool { return strings.ContainsAny(a.Value, "\n\t") }
	if !slices.ContainsFunc(attrs, hasBreak) {
		return attrs
	}

	token, err := xml.NewDecoder(strings.NewReader(blanks.Replace(raw))).RawToken()
	if tag, isTag := token.(xml.StartElement); err == nil && isTag {
		return tag.Attr
	}

	return attrs // cannot happen, because the decoder has read the same tag with other white space
}

// countAttributes returns an upper bound for the number of attributes in the start tag at the
// beginning of text. A tag with too many attributes must not reach the decoder, because the decoder
// has all attributes of a tag in memory at once.
func countAttributes(text string) (count int) {
	if len(text) < 2 || text[0] != '<' || text[1] == '!' || text[1] == '?' {
		return 0
	}

	quote := byte(0)
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
		case c == '"' || c == '\'':
			quote = c
		case c == '=':
			count++
		case c == '>':
			return count
		}
	}

	return count
}

var reference = regexp.MustCompile(`&#(x?)([0-9a-fA-F]+);`)

// checkReferences refuses numeric references to surrogates. encoding/xml would replace such a
// reference with U+FFFD.
func checkReferences(raw string) string {
	if !strings.Contains(raw, "&#") {
		return ""
	}

	for _, m := range reference.FindAllStringSubmatch(raw, -1) {
		base := 10
		if m[1] == "x" {
			base = 16
		}

		if n, err := strconv.ParseUint(m[2], base, 64); err == nil && n >= 0xD800 && n <= 0xDFFF {
			return fmt.Sprintf("the reference %s names no character", quoted(truncate(m[0])))
		}
	}

	return ""
}

func checkInstruction(target, raw string) string {
	after := strings.TrimPrefix(raw, "<?"+target)
	switch {
	case strings.EqualFold(target, "xml"):
		return "the XML declaration must stand at the very beginning, once"
	case strings.Contains(target, ":"):
		return "the target of a processing instruction has a colon"
	case !strings.HasPrefix(after, "?>") && !strings.ContainsRune(" \t\r\n", rune(after[0])):
		return "there is no space after the target of a processing instruction"
	}

	return ""
}

// Namespaces with a fixed prefix.
const (
	xmlNamespace   = "http://www.w3.org/XML/1998/namespace"
	xmlnsNamespace = "http://www.w3.org/2000/xmlns/"
)

// namespaceScope has, for each prefix, the namespaces that the open elements declare for the
// prefix. The innermost declaration is last. All elements share one map: with a copy for each
// element, the check of a body of a megabyte could take minutes.
type namespaceScope map[string][]string

func newNamespaceScope() namespaceScope { return namespaceScope{"xml": {xmlNamespace}, "": {""}} }

// declarePrefixes adds the namespace declarations of an element. It returns the declared prefixes,
// which dropPrefixes needs at the end of the element.
func (s namespaceScope) declarePrefixes(attrs []xml.Attr) (declared []string, problem string) {
	for _, a := range attrs {
		prefix := a.Name.Local
		switch {
		case a.Name.Space == "" && prefix == "xmlns":
			prefix = ""
		case a.Name.Space != "xmlns":
			continue
		}

		if problem := checkBinding(prefix, a.Value); problem != "" {
			return nil, problem
		}

		s[prefix] = append(s[prefix], a.Value)
		declared = append(declared, prefix)
	}

	return declared, ""
}

func checkBinding(prefix, uri string) string {
	switch {
	case prefix != "" && uri == "":
		return fmt.Sprintf("the namespace prefix %s is bound to nothing",
			quoted(strconv.Quote(truncate(prefix))))
	case prefix == "xmlns" || uri == xmlnsNamespace || (prefix == "xml") != (uri == xmlNamespace):
		return fmt.Sprintf("the namespace prefix %s must not be bound to this namespace",
			quoted(strconv.Quote(truncate(prefix))))
	}

	return ""
}

// dropPrefixes removes the innermost declaration of each prefix. It also deletes entries that
// become empty, because a document with many different prefixes would otherwise fill the map.
func (s namespaceScope) dropPrefixes(declared []string) {
	for _, prefix := range declared {
		if outer := s[prefix][:len(s[prefix])-1]; len(outer) > 0 {
			s[prefix] = outer
		} else {
			delete(s, prefix)
		}
	}
}

// lookUpNamespace returns the namespace to which a name's prefix is bound. If the name is not
// valid, or the prefix is not declared, lookUpNamespace returns the problem.
func (s namespaceScope) lookUpNamespace(n xml.Name) (uri, problem string) {
	if first, _ := utf8.DecodeRuneInString(n.Local); strings.Contains(n.Local, ":") ||
		!isNameStart(first) {
		return "", fmt.Sprintf("%s is not a name", quoted(strconv.Quote(formatRawName(n))))
	}

	bound := s[n.Space]
	if len(bound) == 0 {
		return "", fmt.Sprintf("the namespace prefix %s is not declared",
			quoted(strconv.Quote(truncate(n.Space))))
	}

	return bound[len(bound)-1], ""
}

// isNameStart reports whether a local name can begin with r. If the name has a prefix, encoding/xml
// does not check the first character of the local name.
func isNameStart(r rune) bool {
	return r == '_' || unicode.IsLetter(r) || unicode.Is(unicode.Nl, r)
}

// checkAttributes refuses an undeclared prefix, and two attributes with the same local name and
// namespace. The prefixes of the two attributes can differ.
func (s namespaceScope) checkAttributes(attrs []xml.Attr) string {
	var seen map[qualifiedName]bool
	if len(attrs) > 1 {
		seen = make(map[qualifiedName]bool, len(attrs))
	}

	for _, a := range attrs {
		n := qualifiedName{"", a.Name.Local}
		if a.Name.Space == "xmlns" {
			n.uri = xmlnsNamespace
		} else {
			uri, problem := s.lookUpNamespace(a.Name)
			if problem != "" {
				return problem
			}

			if a.Name.Space != "" { // the default namespace does not apply to attributes
				n.uri = uri
			}
		}

		if seen[n] {
			return fmt.Sprintf("the attribute %s appears twice",
				quoted(strconv.Quote(formatRawName(a.Name))))
		}

		if seen != nil {
			seen[n] = true
		}
	}

	return ""
}

// The values of Definition.Doctype: the CMS gets the document type declaration, the declaration is
// cut out of the body, or the message is refused.
const (
	doctypePass   = "pass"
	doctypeDrop   = "drop"
	doctypeRefuse = "refuse"
)

// doctypeDeclaration matches a document type declaration (XML 1.0, section 2.8) up to its end, or
// up to its internal subset. The group is the > or the [ there. A quoted identifier can have both
// characters.
var doctypeDeclaration = regexp.MustCompile(`^<!DOCTYPE[ \t\r\n]+` +
	`[\pL_][\pL\pM\pN._-]*(?::[\pL_][\pL\pM\pN._-]*)?` +
	`(?:[ \t\r\n]+(?:SYSTEM|PUBLIC[ \t\r\n]+` +
	`(?:"[-'()+,./:=?;!*#@$_%a-zA-Z0-9 \r\n]*"|'[-()+,./:=?;!*#@$_%a-zA-Z0-9 \r\n]*'))` +
	`[ \t\r\n]+(?:"[^"]*"|'[^']*'))?[ \t\r\n]*([>\[])`)

// doctypeStart is the beginning of each document type declaration. XML knows capitals only.
const doctypeStart = "<!DOCTYPE"

// describeDoctype returns the problem of a document type declaration, wherever the declaration
// stands in its document. The text begins with the declaration, and can go on behind it.
func describeDoctype(text string) string {
	m := doctypeDeclaration.FindStringSubmatch(text)
	switch {
	case !strings.HasPrefix(text, doctypeStart):
		return "a declaration other than <!DOCTYPE stands outside of a document type declaration"
	case m == nil:
		return "the document type declaration is not well-formed"
	case m[1] == "[":
		return "the document type declaration has an internal subset, which is not accepted; " +
			"send the document without the part from [ to ]"
	}

	return ""
}

// doctypeState records whether a document type declaration was read. A document has one at most.
type doctypeState struct{ found bool }

// readDirective returns the problem of a directive, of which raw is the whole text. Weir reads past
// a document type declaration without an internal subset: it loads nothing, and knows no entity but
// the five of XML.
func (s *doctypeState) readDirective(raw string, hasRoot bool) string {
	if problem := describeDoctype(raw); problem != "" {
		return problem
	}

	switch {
	case len(doctypeDeclaration.FindString(raw)) != len(raw):
		return "the document type declaration is not well-formed"
	case hasRoot:
		return "the document type declaration must stand before the root element"
	case s.found:
		return "there is more than one document type declaration"
	}

	s.found = true
	return ""
}

// checkDoctype returns the problem of a value of Definition.Doctype.
func checkDoctype(given string) string {
	switch given {
	case "", doctypePass, doctypeDrop, doctypeRefuse:
		return ""
	}
	return fmt.Sprintf("doctype is %q and must be pass, drop or refuse", given)
}

// PassesDoctype reports whether the CMS gets the document type declaration of a message.
func (d *Definition) PassesDoctype() bool { return d.Doctype == "" || d.Doctype == doctypePass }

// applyDoctype applies Definition.Doctype to a document. It returns the body that the CMS gets, and
// the problem of a declaration that the contract refuses.
func (c *compiledContract) applyDoctype(body []byte, one *scanned, encoding string,
	places *places) ([]byte, []weir.Problem) {
	if one.doctype.to == 0 {
		return body, nil
	}

	switch c.def.Doctype {
	case "", doctypePass:
		places.noteDoctype()
	case doctypeDrop:
		_, rest := cutByteOrderMark(body)
		kept := replaceRanges(rest, []textRange{one.doctype}, nil, encoding)
		return append(body[:len(body)-len(rest):len(body)-len(rest)], kept...), nil

	case doctypeRefuse:
		problem := weir.Problem{Path: "/", Rule: "doctype",
			Message: "the document has a document type " +
				"declaration, which its contract refuses"}
		problem.Line, problem.Column = lineColumn(one.text[:one.doctype.from])
		return body, []weir.Problem{problem}
	}

	return body, nil
}
