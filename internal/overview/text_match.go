package overview

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"weir/internal/lane"
)

type textMatcher struct{ lower string }

func newTextMatcher(text string) textMatcher { return textMatcher{strings.ToLower(text)} }

// matchesRow reports whether a message contains the text in its key, version, contract, last error,
// id, or one of the values that lists show.
func (n textMatcher) matchesRow(e *lane.Entry) bool {
	m, st := &e.Message, e.Status()
	public := m.Public()
	for _, s := range []string{m.Key, m.Version, m.Contract, st.LastError, public.String()} {
		if strings.Contains(strings.ToLower(s), n.lower) {
			return true
		}
	}

	for _, s := range m.Shown {
		if strings.Contains(strings.ToLower(s), n.lower) {
			return true
		}
	}

	return false
}

// matchesBody reports whether a body contains the text. XML references such as &amp; are not
// resolved.
func (n textMatcher) matchesBody(body []byte) bool {
	return strings.Contains(strings.ToLower(decodeBody(body)), n.lower)
}

// decodeBody returns a body as text. The body can be UTF-8, or UTF-16 with a byte order mark or
// with < in front. Any other body is read as ISO-8859-1, with one byte for each character.
func decodeBody(body []byte) string {
	switch {
	case bytes.HasPrefix(body, []byte{0xFF, 0xFE}), bytes.HasPrefix(body, []byte{'<', 0}):
		return decodeUTF16(body, binary.LittleEndian)
	case bytes.HasPrefix(body, []byte{0xFE, 0xFF}), bytes.HasPrefix(body, []byte{0, '<'}):
		return decodeUTF16(body, binary.BigEndian)
	case utf8.Valid(body):
		return string(body)
	}

	runes := make([]rune, len(body))
	for i, b := range body {
		runes[i] = rune(b)
	}

	return string(runes)
}

func decodeUTF16(body []byte, order binary.ByteOrder) string {
	units := make([]uint16, len(body)/2)
	for i := range units {
		units[i] = order.Uint16(body[2*i:])
	}
	return string(utf16.Decode(units))
}
