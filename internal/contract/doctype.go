package contract

import (
	"fmt"
	"regexp"
	"strings"

	"weir/internal/weir"
)

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

// describeDoctype returns the problem of a document type declaration without its place in the
// document. The text begins with the declaration, and can go on behind it.
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

// doctypeState has the document type declaration that was read; there can be one.
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

// applyDoctype returns the body that the CMS gets of a document with a document type declaration.
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
