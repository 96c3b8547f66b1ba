package contract

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"

	"weir/internal/weir"
)

// The encodings accepted, under one name each.
const (
	ascii       = "us-ascii"
	utf8Name    = "utf-8"
	utf16LE     = "utf-16le"
	utf16BE     = "utf-16be"
	utf16Name   = "utf-16" // which of the two, the byte order mark says
	latin1      = "iso-8859-1"
	windows1252 = "windows-1252"
)

var aliases = map[string]string{
	"utf-8": utf8Name, "utf8": utf8Name, "us-ascii": ascii, "ascii": ascii, "utf-16": utf16Name, "utf16": utf16Name,
	"utf-16le": utf16LE, "utf-16be": utf16BE, "iso-8859-1": latin1, "iso8859-1": latin1, "iso_8859-1": latin1, "latin1": latin1, "latin-1": latin1,
	"windows-1252": windows1252, "cp1252": windows1252, "cp-1252": windows1252,
}

var byteOrderMarks = []struct {
	mark []byte
	name string
}{{[]byte{0xEF, 0xBB, 0xBF}, utf8Name}, {[]byte{0xFF, 0xFE}, utf16LE}, {[]byte{0xFE, 0xFF}, utf16BE}}

// declaration is the XML declaration, in groups by quoting: version, then encoding. It
// matches ASCII only, so that its length is the same in every encoding we turn into UTF-8.
var declaration = regexp.MustCompile(`^<\?xml[ \t\r\n]+version[ \t\r\n]*=[ \t\r\n]*(?:"([\w.:-]*)"|'([\w.:-]*)')` +
	`(?:[ \t\r\n]+encoding[ \t\r\n]*=[ \t\r\n]*(?:"([A-Za-z][\w.-]*)"|'([A-Za-z][\w.-]*)'))?` +
	`(?:[ \t\r\n]+standalone[ \t\r\n]*=[ \t\r\n]*(?:"(?:yes|no)"|'(?:yes|no)'))?[ \t\r\n]*\?>`)

// begunDeclaration is what must go on as a declaration; <?xml-stylesheet is none.
var begunDeclaration = regexp.MustCompile(`^<\?xml[ \t\r\n?]`)

// decode settles the encoding by byte order mark, charset parameter and declaration, and
// gives the text in UTF-8, without mark and with the declaration blanked. Where two of
// them differ the body is refused: whoever guesses guesses wrong once.
func decode(body []byte, charset string) (string, error) {
	marked, rest := byteOrderMark(body)
	param, err := known(charset, "charset parameter")
	if err != nil {
		return "", err
	}
	chosen, err := agree(marked, "byte order mark", param, "charset parameter")
	if err != nil {
		return "", err
	}
	if marked == "" && (wide(chosen) || bytes.HasPrefix(rest, []byte("<\x00")) || bytes.HasPrefix(rest, []byte("\x00<"))) {
		return "", undecodable("UTF-16 needs a byte order mark")
	}
	head := rest
	if wide(chosen) { // the others write the declaration in the same bytes as ASCII
		text, _ := convert(rest, chosen)
		head = []byte(text)
	}
	declared, length, err := readDeclaration(head)
	if err != nil {
		return "", err
	}
	if chosen, err = agree(chosen, "byte order mark or charset parameter", declared, "XML declaration"); err != nil {
		return "", err
	}
	if marked == "" && wide(chosen) {
		return "", undecodable("UTF-16 needs a byte order mark")
	}
	chosen = firstOf(chosen, utf8Name)
	text, ok := convert(rest, chosen)
	if !ok {
		return "", malformedAt("encoding", fmt.Sprintf("the body is not valid %s", strings.ToUpper(chosen)), text)
	}
	return blank(text[:length]) + text[length:], nil
}

func byteOrderMark(body []byte) (name string, rest []byte) {
	for _, m := range byteOrderMarks {
		if bytes.HasPrefix(body, m.mark) {
			return m.name, body[len(m.mark):]
		}
	}
	return "", body
}

func wide(name string) bool { return name == utf16Name || name == utf16LE || name == utf16BE }

// blank wipes the declaration: the text is UTF-8 now, whatever it said. Lines and columns stay.
func blank(decl string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' {
			return r
		}
		return ' '
	}, decl)
}

// readDeclaration gives the encoding the XML declaration names, if any, and the
// declaration's length; 0 when there is none.
func readDeclaration(head []byte) (encoding string, length int, err error) {
	if !begunDeclaration.Match(head) {
		return "", 0, nil
	}
	m := declaration.FindSubmatch(head)
	if m == nil {
		return "", 0, malformedAt("xml", "the XML declaration is not well-formed", "")
	}
	if version := string(m[1]) + string(m[2]); version != "1.0" {
		return "", 0, malformedAt("xml", fmt.Sprintf("XML version %q is not accepted, 1.0 is", short(version)), "")
	}
	encoding, err = known(strings.ToLower(string(m[3])+string(m[4])), "XML declaration")
	return encoding, len(m[0]), err
}

func known(name, where string) (string, error) {
	if name == "" {
		return "", nil
	}
	if canonical, ok := aliases[name]; ok {
		return canonical, nil
	}
	return "", unsupported(fmt.Sprintf("the encoding %q of the %s is not accepted: UTF-8, UTF-16, ISO-8859-1, Windows-1252 and US-ASCII are", short(name), where))
}

// agree gives the encoding both name, or the one that one of them names. UTF-16 fits what a
// byte order mark, which always comes first, has found.
func agree(a, whereA, b, whereB string) (string, error) {
	switch {
	case a == "" || b == "" || a == b:
		return firstOf(a, b), nil
	case b == utf16Name && wide(a):
		return a, nil
	}
	return "", undecodable(fmt.Sprintf("the %s says %s and the %s says %s", whereA, a, whereB, b))
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// convert turns a body into UTF-8. Where bytes mean nothing it gives the text before them, and false.
func convert(body []byte, name string) (text string, ok bool) {
	if name == utf8Name && utf8.Valid(body) {
		return string(body), true
	}
	next := decoders[name]
	var b strings.Builder
	b.Grow(len(body))
	for len(body) > 0 {
		r, size := next(body)
		if size == 0 {
			return b.String(), false
		}
		b.WriteRune(r)
		body = body[size:]
	}
	return b.String(), true
}

// decoders give the first character of what is not empty, and its size in bytes; 0 = it is none.
var decoders = map[string]func([]byte) (rune, int){
	utf8Name: func(b []byte) (rune, int) {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 {
			return 0, 0
		}
		return r, size
	},
	ascii: func(b []byte) (rune, int) {
		if b[0] >= utf8.RuneSelf {
			return 0, 0
		}
		return rune(b[0]), 1
	},
	latin1: func(b []byte) (rune, int) { return rune(b[0]), 1 },
	windows1252: func(b []byte) (rune, int) {
		r := charmap.Windows1252.DecodeByte(b[0])
		if r == utf8.RuneError {
			return 0, 0
		}
		return r, 1
	},
	utf16LE: func(b []byte) (rune, int) { return utf16Rune(b, binary.LittleEndian) },
	utf16BE: func(b []byte) (rune, int) { return utf16Rune(b, binary.BigEndian) },
}

func utf16Rune(b []byte, order binary.ByteOrder) (rune, int) {
	if len(b) < 2 {
		return 0, 0
	}
	r := rune(order.Uint16(b))
	if !utf16.IsSurrogate(r) {
		return r, 2
	}
	if len(b) < 4 {
		return 0, 0
	}
	r = utf16.DecodeRune(r, rune(order.Uint16(b[2:])))
	if r == utf8.RuneError { // no pair of surrogates stands for this one
		return 0, 0
	}
	return r, 4
}

// undecodable refuses an encoding; its rule tells it from what is wrong with the XML.
func undecodable(message string) error {
	return malformed(message, weir.Problem{Rule: "encoding", Message: message})
}

// malformedAt names the place: where the text before it ends.
func malformedAt(rule, message, before string) error {
	line, column := place(before)
	return malformed(fmt.Sprintf("line %d, column %d: %s", line, column, message),
		weir.Problem{Rule: rule, Message: message, Line: line, Column: column})
}

// Text gives a body as UTF-8, without byte order mark and with its XML declaration blanked.
func Text(contentType string, body []byte) (string, error) {
	charset, err := mediaType(contentType)
	if err != nil {
		return "", err
	}
	return decode(body, charset)
}
