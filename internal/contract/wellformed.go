package contract

import (
	"encoding/xml"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What follows refuses what encoding/xml lets pass though XML 1.0 and Namespaces in XML do
// not: a CMS with a stricter parser would reject it after we had answered 202.

// badCharacter finds the first character that XML has no place for; encoding/xml looks in
// text and attributes only, not in comments and processing instructions.
func badCharacter(text string) (at int, r rune) {
	for at, r := range text {
		allowed := r >= 0x20 && r <= 0xD7FF || r == '\t' || r == '\n' || r == '\r' ||
			r >= 0xE000 && r <= 0xFFFD || r >= 0x10000
		if !allowed {
			return at, r
		}
	}
	return -1, 0
}

// tagWords looks at a start tag as it was written. Attributes must have space between them.
func tagWords(raw string) string {
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
	return referenceWords(raw)
}

// countAttributes counts the attributes of a start tag that text may begin with, or more. The
// decoder holds all of them at once, so a tag with too many must not get that far.
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

// referenceWords refuses references to surrogates, which encoding/xml turns into U+FFFD.
func referenceWords(raw string) string {
	if !strings.Contains(raw, "&#") {
		return ""
	}
	for _, m := range reference.FindAllStringSubmatch(raw, -1) {
		base := 10
		if m[1] == "x" {
			base = 16
		}
		if n, err := strconv.ParseUint(m[2], base, 64); err == nil && n >= 0xD800 && n <= 0xDFFF {
			return fmt.Sprintf("the reference %s names no character", short(m[0]))
		}
	}
	return ""
}

// instructionWords looks at a processing instruction.
func instructionWords(target, raw string) string {
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

// The namespaces that belong to a prefix once and for all.
const (
	xmlNamespace   = "http://www.w3.org/XML/1998/namespace"
	xmlnsNamespace = "http://www.w3.org/2000/xmlns/"
)

// scope holds the namespaces bound to each prefix, the innermost last. It is one map for the
// whole document: a copy for each element would let a body of a megabyte cost minutes.
type scope map[string][]string

func newScope() scope { return scope{"xml": {xmlNamespace}, "": {""}} }

// declare takes in an element's declarations and gives the prefixes, for drop.
func (s scope) declare(attrs []xml.Attr) (declared []string, words string) {
	for _, a := range attrs {
		prefix := a.Name.Local
		switch {
		case a.Name.Space == "" && prefix == "xmlns":
			prefix = ""
		case a.Name.Space != "xmlns":
			continue
		}
		if words := bindingWords(prefix, a.Value); words != "" {
			return nil, words
		}
		s[prefix] = append(s[prefix], a.Value)
		declared = append(declared, prefix)
	}
	return declared, ""
}

func bindingWords(prefix, uri string) string {
	switch {
	case prefix != "" && uri == "":
		return fmt.Sprintf("the namespace prefix %q is bound to nothing", short(prefix))
	case prefix == "xmlns" || uri == xmlnsNamespace || (prefix == "xml") != (uri == xmlNamespace):
		return fmt.Sprintf("the namespace prefix %q must not be bound to this namespace", short(prefix))
	}
	return ""
}

func (s scope) drop(declared []string) {
	for _, prefix := range declared {
		s[prefix] = s[prefix][:len(s[prefix])-1]
	}
}

// lookUp gives the namespace of a name's prefix, and says what is wrong with the name.
func (s scope) lookUp(n xml.Name) (uri, words string) {
	if first, _ := utf8.DecodeRuneInString(n.Local); strings.Contains(n.Local, ":") || !startsName(first) {
		return "", fmt.Sprintf("%q is not a name", rawName(n))
	}
	bound := s[n.Space]
	if len(bound) == 0 {
		return "", fmt.Sprintf("the namespace prefix %q is not declared", short(n.Space))
	}
	return bound[len(bound)-1], ""
}

// startsName is for the part after a prefix; encoding/xml looks at the name as a whole.
func startsName(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.Is(unicode.Nl, r) }

// attributeWords refuses undeclared prefixes, and names that stand twice, be it under two prefixes.
func (s scope) attributeWords(attrs []xml.Attr) string {
	var seen map[name]bool
	if len(attrs) > 1 {
		seen = make(map[name]bool, len(attrs))
	}
	for _, a := range attrs {
		n := name{"", a.Name.Local}
		if a.Name.Space == "xmlns" {
			n.uri = xmlnsNamespace
		} else {
			uri, words := s.lookUp(a.Name)
			if words != "" {
				return words
			}
			if a.Name.Space != "" { // without a prefix an attribute has no namespace, whatever the default is
				n.uri = uri
			}
		}
		if seen[n] {
			return fmt.Sprintf("the attribute %q stands twice", rawName(a.Name))
		}
		if seen != nil {
			seen[n] = true
		}
	}
	return ""
}
