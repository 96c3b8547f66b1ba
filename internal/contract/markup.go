package contract

import (
	"encoding/xml"
	"io"
	"strings"
	"unicode/utf8"
)

// markupReader reads the tokens that RawToken of encoding/xml returns, at the same offsets. It reads
// plain tokens itself: tags and texts without a reference, a carriage return, or a name beyond
// ASCII. Such tokens are most of a message, and encoding/xml reads them byte by byte, which would
// be the largest part of the cost of a post. A decoder reads all other tokens, and finds all
// errors.
type markupReader struct {
	text    string       // XML allows each of its characters (see findForbiddenCharacter)
	offset  int          // of the next token
	decoder *xml.Decoder // has read the last token, and no other; nil = markupReader has read it
	base    int          // offset at which the decoder began
	closing xml.Name     // name of the last token, if it is a start tag that ends with />
	isEmpty bool         // the next token is the end of the element "closing"
}

// plainText is a text without a reference, as the document has it. It stands for xml.CharData, which
// would be a copy.
type plainText string

// next returns the next token. Its error is that of the decoder, or io.EOF.
func (t *markupReader) next() (xml.Token, error) {
	if t.isEmpty {
		t.isEmpty = false
		return xml.EndElement{Name: t.closing}, nil
	}

	if t.offset == len(t.text) {
		return nil, io.EOF
	}

	if token, length := t.readPlain(t.text[t.offset:]); length > 0 {
		t.offset += length
		t.decoder = nil
		return token, nil
	}

	return t.decode()
}

// decode lets a decoder read the next token.
func (t *markupReader) decode() (xml.Token, error) {
	if t.decoder == nil {
		t.decoder, t.base = xml.NewDecoder(strings.NewReader(t.text[t.offset:])), t.offset
	}

	token, err := t.decoder.RawToken()
	t.offset = t.base + int(t.decoder.InputOffset())

	if tag, isTag := token.(xml.StartElement); isTag && t.text[t.offset-2] == '/' {
		// the decoder would return the end of the element, even if another one has read more
		t.closing, t.isEmpty, t.decoder = tag.Name, true, nil
	}

	return token, err
}

// readPlain returns the token at the beginning of rest, and its length; 0 = the token is not plain.
func (t *markupReader) readPlain(rest string) (xml.Token, int) {
	if rest[0] != '<' {
		if n := plainTextLength(rest); n > 0 {
			return plainText(rest[:n]), n
		}
		return nil, 0
	}

	if strings.HasPrefix(rest, "</") {
		name, n := readPlainName(rest[2:])
		end := skipSpace(rest, 2+n)
		if n == 0 || end == len(rest) || rest[end] != '>' {
			return nil, 0
		}
		return xml.EndElement{Name: name}, end + 1
	}

	return t.readPlainTag(rest)
}

// plainTextLength returns the length of the text at the beginning of rest, or 0 if it is not plain.
func plainTextLength(rest string) int {
	end := strings.IndexByte(rest, '<')
	if end < 0 {
		end = len(rest)
	}

	text := rest[:end]
	if strings.IndexByte(text, '&') >= 0 || strings.IndexByte(text, '\r') >= 0 ||
		strings.Contains(text, "]]>") || !utf8.ValidString(text) {
		return 0
	}

	return end
}

// readPlainTag returns the start tag at the beginning of rest, and its length; 0 = it is not plain.
func (t *markupReader) readPlainTag(rest string) (xml.Token, int) {
	name, n := readPlainName(rest[1:])
	if n == 0 {
		return nil, 0
	}

	tag := xml.StartElement{Name: name, Attr: []xml.Attr{}}
	for at := skipSpace(rest, 1+n); at < len(rest); at = skipSpace(rest, at) {
		switch {
		case rest[at] == '>':
			return tag, at + 1
		case strings.HasPrefix(rest[at:], "/>"):
			t.closing, t.isEmpty = name, true
			return tag, at + 2
		}

		attribute, n := readPlainAttribute(rest[at:])
		if n == 0 {
			return nil, 0
		}

		tag.Attr = append(tag.Attr, attribute)
		at += n
	}

	return nil, 0
}

// readPlainAttribute returns the attribute at the beginning of rest, and its length; 0 = it is not
// plain. The value is a copy, because a message can keep it for longer than the document.
func readPlainAttribute(rest string) (a xml.Attr, length int) {
	name, n := readPlainName(rest)
	at := skipSpace(rest, n)
	if n == 0 || at == len(rest) || rest[at] != '=' {
		return a, 0
	}

	at = skipSpace(rest, at+1)
	if at == len(rest) || rest[at] != '"' && rest[at] != '\'' {
		return a, 0
	}

	n = strings.IndexByte(rest[at+1:], rest[at])
	if n < 0 {
		return a, 0
	}

	value := rest[at+1 : at+1+n]
	if strings.ContainsAny(value, "<&\r") || !utf8.ValidString(value) {
		return a, 0
	}

	return xml.Attr{Name: name, Value: strings.Clone(value)}, at + n + 2
}

// readPlainName returns the name at the beginning of rest, and its length; 0 = it is not plain. A
// plain name is in ASCII, and has one colon at most, with a part before it and one after it.
func readPlainName(rest string) (name xml.Name, length int) {
	colon := -1
	for length < len(rest) && isPlainNameByte(rest[length], length) {
		if rest[length] == ':' {
			if colon >= 0 {
				return name, 0
			}
			colon = length
		}
		length++
	}

	switch {
	case length == 0, length < len(rest) && rest[length] >= utf8.RuneSelf:
		return name, 0
	case colon < 0:
		return xml.Name{Local: rest[:length]}, length
	case colon == length-1:
		return name, 0
	}

	return xml.Name{Space: rest[:colon], Local: rest[colon+1 : length]}, length
}

func isPlainNameByte(c byte, at int) bool {
	if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' {
		return true
	}

	return at > 0 && ('0' <= c && c <= '9' || c == '-' || c == '.' || c == ':')
}

// skipSpace returns the offset of the first byte from "at" on that is no white space.
func skipSpace(text string, at int) int {
	for at < len(text) && strings.IndexByte(" \t\r\n", text[at]) >= 0 {
		at++
	}
	return at
}
