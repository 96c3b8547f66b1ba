package contract

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"weir/internal/weir"
)

// Canonical names of the accepted encodings.
const (
	ascii       = "us-ascii"
	utf8Name    = "utf-8"
	utf16LE     = "utf-16le"
	utf16BE     = "utf-16be"
	utf16Name   = "utf-16" // the byte order mark decides between utf16LE and utf16BE
	latin1      = "iso-8859-1"
	windows1252 = "windows-1252"
)

var byteOrderMarks = []struct {
	mark []byte
	name string
}{{[]byte{0xEF, 0xBB, 0xBF}, utf8Name}, {[]byte{0xFF, 0xFE}, utf16LE},
	{[]byte{0xFE, 0xFF}, utf16BE}}

// declaration matches the XML declaration. Version and encoding have two groups each, one for each
// kind of quotes. A declaration has only ASCII characters, so its length in bytes is the same in
// UTF-8 and in each accepted encoding except UTF-16.
var declaration = regexp.MustCompile(
	`^<\?xml[ \t\r\n]+version[ \t\r\n]*=[ \t\r\n]*(?:"([\w.:-]*)"|'([\w.:-]*)')` +
		`(?:[ \t\r\n]+encoding[ \t\r\n]*=[ \t\r\n]*(?:"([A-Za-z][\w.-]*)"|'([A-Za-z][\w.-]*)'))?` +
		`(?:[ \t\r\n]+standalone[ \t\r\n]*=[ \t\r\n]*(?:"(?:yes|no)"|'(?:yes|no)'))?[ \t\r\n]*\?>`)

// declarationStart matches the start of an XML declaration, but not of an instruction such as
// <?xml-stylesheet.
var declarationStart = regexp.MustCompile(`^<\?xml[ \t\r\n?]`)

// decodeBody determines the encoding from byte order mark, charset parameter and XML declaration.
// It returns the text in UTF-8, without the byte order mark, and with spaces in place of the
// declaration. If two of the three sources differ, decodeBody refuses the body, because a wrong
// guess would garble a message without an error.
func decodeBody(body []byte, charset string) (string, error) {
	text, _, err := decodeKnown(body, charset)
	return text, err
}

// decodeKnown does what decodeBody does, and also returns the name of the encoding.
func decodeKnown(body []byte, charset string) (text, encoding string, err error) {
	start, err := findEncoding(body, charset)
	if err != nil {
		return "", "", err
	}

	encoding, length := start.encoding, start.declaration
	_, rest := cutByteOrderMark(body)
	if start.conflict != nil {
		if !isASCII(rest) {
			return "", "", start.conflict
		}
		encoding = utf8Name
	}

	text, ok := convertToUTF8(rest, encoding)
	if !ok {
		return "", "", malformedErrorAt("encoding",
			fmt.Sprintf("the body is not valid %s", strings.ToUpper(encoding)), text)
	}

	return blankDeclaration(text[:length]) + text[length:], encoding, nil
}

// StartSize is the number of bytes at the start of a document in which Weir looks for its encoding.
const StartSize = 4 << 10

// CheckText checks a document that comes as a text, and so in UTF-8 for certain, for example as a
// value in JSON. If its XML declaration or the charset parameter says otherwise, the document would
// be garbled without an error. The error is a *weir.Error of the kind Unsupported or Malformed.
func CheckText(contentType, text string) error {
	if contentType == "" {
		contentType = "application/xml"
	}

	charset, err := parseContentType(contentType)
	if err != nil {
		return err
	}

	start, err := findEncoding([]byte(text), charset)
	switch {
	case err != nil || start.encoding == utf8Name || isASCII([]byte(text)):
		return err
	case start.conflict != nil:
		return start.conflict
	}

	return encodingError("the text is in UTF-8, and its declaration or charset parameter says " +
		strings.ToUpper(start.encoding))
}

// documentStart is the result of findEncoding.
type documentStart struct {
	encoding    string
	declaration int // length of the XML declaration in UTF-8
	// conflict is the error of two labels that name different encodings. It counts only if the
	// document is not plain ASCII, which has the same bytes in both encodings. Then encoding is
	// that of the first label.
	conflict error
}

// isASCII reports whether all bytes are ASCII.
func isASCII(b []byte) bool {
	return !slices.ContainsFunc(b, func(c byte) bool { return c >= utf8.RuneSelf })
}

// isLikeASCII reports whether ASCII characters have the same bytes in an encoding, and these bytes
// no other meaning.
func isLikeASCII(encoding string) bool { return !isUTF16(encoding) && encoding != iso2022JP }

// findEncoding returns the encoding of a document that begins with the bytes head. The bytes must
// contain the whole XML declaration. Each way in calls findEncoding, so that all of them refuse the
// same documents because of their encoding, and can do so before they have the whole document.
func findEncoding(head []byte, charset string) (found documentStart, err error) {
	if packed := findPacking(head); packed != "" {
		return found, unsupportedError(fmt.Sprintf("the body is %s, and not XML: send it unpacked",
			packed))
	}

	marked, rest := cutByteOrderMark(head)
	param, err := canonicalEncoding(charset, "charset parameter")
	if err != nil {
		return found, err
	}

	chosen, err := reconcileEncodings(marked, "byte order mark", param, "charset parameter")
	if err != nil {
		return found, err
	}

	where := "byte order mark"
	if marked == "" {
		where = "charset parameter"
		if err := checkUnmarked(rest, chosen); err != nil {
			return found, err
		}
	}

	start := rest
	// In all other encodings, a declaration has the same bytes as in UTF-8. In ISO-2022-JP an
	// escape sequence can stand before it.
	if isUTF16(chosen) || chosen == iso2022JP {
		text, _ := convertToUTF8(rest[:min(len(rest), StartSize)], chosen)
		start = []byte(text)
	}

	declared, length, err := readDeclaration(start)
	if err != nil {
		return found, err
	}

	if isUTF16(declared) && !isUTF16(chosen) {
		return found, encodingError("the declaration says " + strings.ToUpper(declared) + ", and " +
			describeBytes(rest))
	}

	found.declaration = length
	found.encoding, err = reconcileEncodings(chosen, where, declared, "XML declaration")
	if err != nil && marked == "" && isLikeASCII(chosen) && isLikeASCII(declared) {
		return documentStart{chosen, length, err}, nil
	}

	found.encoding = firstNonEmpty(found.encoding, utf8Name)

	return found, err
}

// describeBytes describes the bytes of a document with the label UTF-16, for a refusal.
func describeBytes(head []byte) string {
	for len(head) > 0 {
		r, size := utf8.DecodeRune(head)
		if r == utf8.RuneError && size == 1 && len(head) >= utf8.UTFMax || r == 0 {
			return "the bytes are not"
		}
		head = head[size:]
	}

	return "the bytes are UTF-8"
}

// checkUnmarked checks the encoding of a document without a byte order mark. Without the mark,
// UTF-16 needs a name with the order of its bytes (RFC 7303, section 3.3). A document begins with <
// or with white space.
func checkUnmarked(head []byte, chosen string) error {
	const first = "< \t\r\n"
	isLE := len(head) > 1 && head[1] == 0 && strings.IndexByte(first, head[0]) >= 0
	isBE := len(head) > 1 && head[0] == 0 && strings.IndexByte(first, head[1]) >= 0
	switch {
	case (chosen == "" || chosen == utf16Name) && (isLE || isBE):
		return encodingError("UTF-16 needs a byte order mark, or the charset utf-16le or utf-16be")
	case chosen == utf16Name, chosen == utf16LE && !isLE, chosen == utf16BE && !isBE:
		return encodingError("the charset parameter says " + strings.ToUpper(chosen) + ", and " +
			describeBytes(head))
	}

	return nil
}

// packings are the first bytes of packed bodies. No XML document begins with them.
var packings = []struct{ start, name string }{
	{"\x1f\x8b", "compressed by gzip"}, {"PK\x03\x04", "a zip"},
	{"\x28\xb5\x2f\xfd", "compressed by zstd"},
}

func findPacking(head []byte) string {
	for _, p := range packings {
		if bytes.HasPrefix(head, []byte(p.start)) {
			return p.name
		}
	}
	return ""
}

func cutByteOrderMark(body []byte) (name string, rest []byte) {
	for _, m := range byteOrderMarks {
		if bytes.HasPrefix(body, m.mark) {
			return m.name, body[len(m.mark):]
		}
	}
	return "", body
}

func isUTF16(name string) bool { return name == utf16Name || name == utf16LE || name == utf16BE }

// blankDeclaration replaces the declaration by spaces, because the text is now UTF-8, and the
// declaration can name another encoding. The line breaks stay, so that the text after the
// declaration keeps its lines and columns.
func blankDeclaration(decl string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' {
			return r
		}
		return ' '
	}, decl)
}

// readDeclaration returns the encoding that the XML declaration names, if any, and the
// declaration's length in bytes. If there is no declaration, the length is 0.
func readDeclaration(head []byte) (encoding string, length int, err error) {
	if !declarationStart.Match(head) {
		return "", 0, nil
	}

	m := declaration.FindSubmatch(head)
	if m == nil {
		return "", 0, malformedErrorAt("xml", "the XML declaration is not well-formed", "")
	}

	if version := string(m[1]) + string(m[2]); version != "1.0" {
		return "", 0, malformedErrorAt("xml",
			fmt.Sprintf("XML version %q is not accepted, 1.0 is", truncate(version)), "")
	}

	encoding, err = canonicalEncoding(strings.ToLower(string(m[3])+string(m[4])), "XML declaration")

	return encoding, len(m[0]), err
}

// canonicalEncoding returns the canonical name of an encoding, or an error if Weir does not accept
// the encoding. For an empty name it returns an empty name.
func canonicalEncoding(name, where string) (string, error) {
	if name == "" {
		return "", nil
	}

	if canonical, ok := encodingName(name); ok {
		return canonical, nil
	}

	return "", unsupportedError(fmt.Sprintf("the encoding %q of the %s is not accepted: %s",
		truncate(name), where, acceptedEncodings))
}

// reconcileEncodings returns the encoding that two sources name, or an error if their names a and b
// differ. An empty name means that the source names no encoding; the result is then the other name.
// If a is utf16LE or utf16BE, and b is utf16Name, the result is a. So callers must pass the name
// from the byte order mark in the first argument.
func reconcileEncodings(a, whereA, b, whereB string) (string, error) {
	switch {
	case a == "" || b == "" || a == b:
		return firstNonEmpty(a, b), nil
	case b == utf16Name && isUTF16(a):
		return a, nil
	}
	return "", encodingError(fmt.Sprintf("the %s says %s and the %s says %s", whereA, a, whereB, b))
}

func firstNonEmpty(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// convertToUTF8 returns the body in UTF-8. If a character is invalid, convertToUTF8 returns false
// and the text before the invalid character.
func convertToUTF8(body []byte, name string) (text string, ok bool) {
	text, rest := convertValid(body, name)
	return text, len(rest) == 0
}

// convertValid returns the text before the first invalid character in UTF-8, and the rest from that
// character on.
func convertValid(body []byte, name string) (text string, rest []byte) {
	if name == utf8Name && utf8.Valid(body) {
		return string(body), nil
	}

	next := decoderOf(name)
	var b strings.Builder
	b.Grow(len(body))

	for len(body) > 0 {
		r, size := next(body)
		if size == 0 {
			break
		}
		if r != noCharacter {
			b.WriteRune(r)
		}
		body = body[size:]
	}

	return b.String(), body
}

// DecodeAs converts a text, such as an answer of the CMS, to UTF-8 by the name of its encoding. If
// a character is invalid, rest begins with it. If Weir does not read the encoding, or if it is
// UTF-16 without an order of its bytes, isKnown is false.
func DecodeAs(charset string, body []byte) (text string, rest []byte, isKnown bool) {
	name, isKnown := encodingName(charset)
	if !isKnown {
		return "", body, false
	}

	if marked, unmarked := cutByteOrderMark(body); isUTF16(marked) && isUTF16(name) {
		name, body = marked, unmarked
	}
	if name == utf16Name {
		return "", body, false
	}

	text, rest = convertValid(body, name)

	return text, rest, true
}

// CanBeUTF8 reports whether a text with this charset that is valid UTF-8 has a wrong label with near
// certainty. Text in UTF-16 and ISO-2022-JP can be valid UTF-8 by chance.
func CanBeUTF8(charset string) bool {
	name, isKnown := encodingName(charset)
	return !isKnown || isLikeASCII(name)
}

// encodingError returns the error of a body with a wrong encoding. The error's problem has the rule
// "encoding". A problem of the XML itself has the rule "xml".
func encodingError(message string) error {
	return malformedError(message, weir.Problem{Rule: "encoding", Message: message})
}

// malformedErrorAt returns an error with a problem, and the problem's line and column. The
// parameter "before" is the whole text before the problem.
func malformedErrorAt(rule, message, before string) error {
	line, column := lineColumn(before)
	return malformedError(fmt.Sprintf("line %d, column %d: %s", line, column, message),
		weir.Problem{Rule: rule, Message: message, Line: line, Column: column})
}

// utf8Reader converts a document to UTF-8 while it is read. If a character is invalid, Read returns
// a *weir.Error.
type utf8Reader struct {
	source   io.Reader
	encoding string
	raw      []byte // bytes of the source that are not converted
	text     []byte // converted bytes that are not read
	err      error  // error of the source, or of an invalid character
	// the error of a character that is not ASCII, if two labels differ; nil = they do not
	conflict error

	next         nextCharacter // nil before the first call of convert
	line, column int           // of the next character, from 0
}

// Read implements io.Reader.
func (r *utf8Reader) Read(p []byte) (int, error) {
	for len(r.text) == 0 && r.err == nil {
		chunk := make([]byte, StartSize)
		n, err := r.source.Read(chunk)
		r.raw, r.err = append(r.raw, chunk[:n]...), err
		r.convert()
	}

	if len(r.text) == 0 {
		return 0, r.err
	}

	n := copy(p, r.text)
	r.text = r.text[n:]

	return n, nil
}

// convert converts all of raw, except a character of which the source has not returned all bytes
// yet.
func (r *utf8Reader) convert() {
	if r.next == nil {
		r.next = decoderOf(r.encoding)
	}

	for len(r.raw) > 0 {
		character, size := r.next(r.raw)
		if size == 0 && len(r.raw) < MaxCharacter && r.err == nil {
			return
		}

		if size == 0 {
			if r.err == nil || errors.Is(r.err, io.EOF) {
				r.err = r.newError()
			}
			return
		}

		r.raw = r.raw[size:]
		if character == noCharacter {
			continue
		}

		if r.column++; character == '\n' {
			r.line, r.column = r.line+1, 0
		}

		r.text = utf8.AppendRune(r.text, character)
	}
}

// newError returns the error of the next character.
func (r *utf8Reader) newError() error {
	if r.conflict != nil {
		return r.conflict
	}

	problem := weir.Problem{Rule: "encoding",
		Message: "the document is not valid " + strings.ToUpper(r.encoding),
		Line:    r.line + 1, Column: r.column + 1}
	return malformedError(fmt.Sprintf("line %d, column %d: %s", problem.Line, problem.Column,
		problem.Message), problem)
}

// Text returns a body as UTF-8, without byte order mark, and with spaces in place of the XML
// declaration. The Content-Type must not be empty. The error is a *weir.Error of the kind
// Unsupported or Malformed.
func Text(contentType string, body []byte) (string, error) {
	charset, err := parseContentType(contentType)
	if err != nil {
		return "", err
	}
	return decodeBody(body, charset)
}
