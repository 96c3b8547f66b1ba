package overview

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"weir/internal/lane"
)

// needle is a text that is looked for in any case of letters; the zero needle is nowhere.
type needle struct{ lower string }

func newNeedle(text string) needle { return needle{strings.ToLower(text)} }

// inRow says whether the text stands in what a message's row tells without the body.
func (n needle) inRow(e *lane.Entry) bool {
	m, st := &e.Message, e.Status()
	public := m.Public()
	for _, s := range []string{m.Key, m.Version, m.Contract, st.LastError, public.String()} {
		if strings.Contains(strings.ToLower(s), n.lower) {
			return true
		}
	}
	return false
}

// inBody says whether it stands in a body, as it is written there: what XML writes as a
// reference is not looked through.
func (n needle) inBody(body []byte) bool {
	return strings.Contains(strings.ToLower(text(body)), n.lower)
}

// text reads a body in the encodings that contracts take: UTF-16 by its mark, and what is
// not UTF-8 as one byte a character.
func text(body []byte) string {
	switch {
	case bytes.HasPrefix(body, []byte{0xFF, 0xFE}):
		return wide(body, binary.LittleEndian)
	case bytes.HasPrefix(body, []byte{0xFE, 0xFF}):
		return wide(body, binary.BigEndian)
	case utf8.Valid(body):
		return string(body)
	}
	runes := make([]rune, len(body))
	for i, b := range body {
		runes[i] = rune(b)
	}
	return string(runes)
}

func wide(body []byte, order binary.ByteOrder) string {
	units := make([]uint16, len(body)/2)
	for i := range units {
		units[i] = order.Uint16(body[2*i:])
	}
	return string(utf16.Decode(units))
}
