package contract

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"
)

// The encodings accepted, under one name each.
const (
	utf8Name   = "utf-8"
	utf16LE    = "utf-16le"
	utf16BE    = "utf-16be"
	utf16Name  = "utf-16" // which of the two, the byte order mark says
	latin1     = "iso-8859-1"
	windows125 = "windows-1252"
)

var aliases = map[string]string{
	"utf-8": utf8Name, "utf8": utf8Name, "us-ascii": utf8Name, "ascii": utf8Name, "utf-16": utf16Name, "utf16": utf16Name,
	"utf-16le": utf16LE, "utf-16be": utf16BE, "iso-8859-1": latin1, "iso8859-1": latin1, "iso_8859-1": latin1, "latin1": latin1, "latin-1": latin1,
	"windows-1252": windows125, "cp1252": windows125, "cp-1252": windows125,
}

var byteOrderMarks = []struct {
	mark []byte
	name string
}{{[]byte{0xEF, 0xBB, 0xBF}, utf8Name}, {[]byte{0xFF, 0xFE}, utf16LE}, {[]byte{0xFE, 0xFF}, utf16BE}}

// declaration is the XML declaration; its encoding is the second group of either quoting.
var declaration = regexp.MustCompile(`^<\?xml\s+version\s*=\s*(?:"([^"]*)"|'([^']*)')(?:\s+encoding\s*=\s*(?:"([^"]*)"|'([^']*)'))?(?:\s+standalone\s*=\s*(?:"(?:yes|no)"|'(?:yes|no)'))?\s*\?>`)

// decode settles the encoding by byte order mark, charset parameter and declaration, and
// gives the text in UTF-8, without mark and declaration's encoding honoured. Where two of
// them differ the body is refused: whoever guesses guesses wrong once.
func decode(body []byte, charset string) (string, error) {
	marked := ""
	for _, m := range byteOrderMarks {
		if bytes.HasPrefix(body, m.mark) {
			marked, body = m.name, body[len(m.mark):]
			break
		}
	}
	param, err := known(charset, "charset parameter")
	if err != nil {
		return "", err
	}
	chosen, err := agree(marked, "byte order mark", param, "charset parameter")
	if err != nil {
		return "", err
	}
	if chosen == utf16Name {
		return "", malformed("UTF-16 needs a byte order mark")
	}
	head, err := convert(body[:min(len(body), 1024)&^1], firstOf(chosen, latin1))
	if err != nil {
		head = string(body[:min(len(body), 1024)])
	}
	declared, err := declaredEncoding(head)
	if err != nil {
		return "", err
	}
	if chosen, err = agree(chosen, "byte order mark or charset parameter", declared, "XML declaration"); err != nil {
		return "", err
	}
	if chosen == utf16Name || (marked == "" && (chosen == utf16LE || chosen == utf16BE)) {
		return "", malformed("UTF-16 needs a byte order mark")
	}
	text, err := convert(body, firstOf(chosen, utf8Name))
	if err != nil {
		return "", malformed(fmt.Sprintf("the body is not valid %s", strings.ToUpper(firstOf(chosen, utf8Name))))
	}
	return withoutEncoding(text), nil
}

// withoutEncoding blanks the declaration: the text is UTF-8 now, whatever it said. The
// blanks keep lines and columns.
func withoutEncoding(text string) string {
	loc := declaration.FindStringIndex(text)
	if loc == nil {
		return text
	}
	blank := strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' {
			return r
		}
		return ' '
	}, text[:loc[1]])
	return blank + text[loc[1]:]
}

// declaredEncoding reads the encoding of the XML declaration; empty when there is none.
func declaredEncoding(head string) (string, error) {
	if !strings.HasPrefix(head, "<?xml") || (len(head) > 5 && !strings.ContainsRune(" \t\r\n", rune(head[5]))) {
		return "", nil
	}
	m := declaration.FindStringSubmatch(head)
	if m == nil {
		return "", malformed("the XML declaration is not well-formed")
	}
	if version := m[1] + m[2]; version != "1.0" {
		return "", malformed(fmt.Sprintf("XML version %q is not accepted, 1.0 is", version))
	}
	return known(strings.ToLower(m[3]+m[4]), "XML declaration")
}

func known(name, where string) (string, error) {
	if name == "" {
		return "", nil
	}
	if canonical, ok := aliases[name]; ok {
		return canonical, nil
	}
	return "", unsupported(fmt.Sprintf("the encoding %q of the %s is not accepted: UTF-8, UTF-16, ISO-8859-1 and Windows-1252 are", name, where))
}

// agree gives the encoding both name, or the one that names one.
func agree(a, whereA, b, whereB string) (string, error) {
	switch {
	case a == "" || b == "" || a == b:
		return firstOf(a, b), nil
	case b == utf16Name && (a == utf16LE || a == utf16BE):
		return a, nil
	case a == utf16Name && (b == utf16LE || b == utf16BE):
		return b, nil
	}
	return "", malformed(fmt.Sprintf("the %s says %s and the %s says %s", whereA, a, whereB, b))
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func convert(body []byte, name string) (string, error) {
	var enc encoding.Encoding
	switch name {
	case utf8Name:
		if !utf8.Valid(body) {
			return "", fmt.Errorf("invalid UTF-8")
		}
		return string(body), nil
	case utf16LE:
		enc = unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM)
	case utf16BE:
		enc = unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM)
	case latin1:
		enc = charmap.ISO8859_1
	case windows125:
		enc = charmap.Windows1252
	}
	if len(body)%2 != 0 && (name == utf16LE || name == utf16BE) {
		return "", fmt.Errorf("odd number of bytes")
	}
	out, err := enc.NewDecoder().Bytes(body)
	if err != nil {
		return "", err
	}
	if bytes.ContainsRune(out, utf8.RuneError) {
		return "", fmt.Errorf("bytes without meaning")
	}
	return string(out), nil
}
