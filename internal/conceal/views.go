package conceal

import (
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// maxTag is the number of characters of the longest tag that is left out of a text.
const maxTag = 200

// maxViewed is the number of levels of a text whose views are searched, and of the levels of a
// view.
const maxViewed = 3

// views are ways to read a text that are not escapes. They are apart from the levels, because
// "size=1280" would lose its text if it was taken for quoted-printable, and "C:\fax" if it was
// taken for CSS. A view that changes nothing is nil.
var views = []func([]char) []char{
	removeTags,          // a search marks the words that it has found
	undoQuotedPrintable, // of mail
	undoCSS,
	undoUTF7,
	undoPunycode, // of hosts' names
}

// listViews returns the levels of a text, and the levels of its views.
func listViews(levels [][]char) (all [][]char) {
	all = levels
	for _, chars := range levels[:min(len(levels), maxViewed)] {
		for _, read := range views {
			if view := read(chars); view != nil {
				decoded, _ := decodeChars(view, maxViewed)
				all = append(all, decoded...)
			}
		}
	}

	return all
}

// removeTags returns the text without tags, or nil if it has none.
func removeTags(chars []char) (bare []char) {
	for at := 0; at < len(chars); {
		if length := tagLength(chars[at:]); length > 0 {
			if bare == nil {
				bare = append(make([]char, 0, len(chars)), chars[:at]...)
			}
			at += length
			continue
		}

		if bare != nil {
			bare = append(bare, chars[at])
		}

		at++
	}

	return bare
}

// tagLength returns the length of the tag at the beginning of a text, or 0 if there is none.
func tagLength(chars []char) int {
	if len(chars) < 3 || chars[0].r != '<' || chars[1].r != '/' && !isASCIILetter(chars[1].r) {
		return 0
	}

	for i := 2; i < min(len(chars), maxTag); i++ {
		switch chars[i].r {
		case '<':
			return 0
		case '>':
			return i + 1
		}
	}

	return 0
}

func isASCIILetter(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }

// undoQuotedPrintable returns the text with quoted-printable undone, or nil if it has none. It
// undoes two hexadecimal digits behind an equals sign, and removes an equals sign at the end of a
// line.
func undoQuotedPrintable(chars []char) []char {
	return undoEach(chars, "=", (*decoder).decodeEquals)
}

// undoEach returns the text in which "decode" has decoded each escape that begins with one of some
// characters, or nil if there is none. The function "decode" returns the number of characters that
// it has decoded.
func undoEach(chars []char, begins string, decode func(*decoder, int) int) []char {
	d := decoder{in: chars}
	for at := 0; at < len(chars); {
		used := 0
		if strings.ContainsRune(begins, chars[at].r) {
			used = decode(&d, at)
		}

		switch {
		case used == 0 && d.changed:
			d.addChar(chars[at])
		case used > 0 && !d.changed:
			d.changed = true
			d.out = append(append(make([]char, 0, len(chars)), chars[:at]...), d.out...)
		}

		at += max(used, 1)
	}

	d.flushBytes()
	return d.out
}

// decodeEquals decodes =FC, and the end of a line that quoted-printable has broken.
func (d *decoder) decodeEquals(at int) int {
	switch next := d.peek(at + 1); {
	case next == '\n':
		return 2
	case next == '\r' && d.peek(at+2) == '\n':
		return 3
	}

	if value, ok := d.readNumber(at+1, 2, 16); ok {
		return d.addByte(value, at, 3)
	}

	return 0
}

// undoCSS returns the text with the escapes of CSS undone, such as \fc, or nil if it has none.
func undoCSS(chars []char) []char { return undoEach(chars, `\`, (*decoder).decodeCSS) }

// decodeCSS decodes one to six hexadecimal digits behind a backslash, and the white space that ends
// them.
func (d *decoder) decodeCSS(at int) int {
	var value rune
	end := at + 1
	for ; end < at+7 && digitOf(d.peek(end)) < 16; end++ {
		value = value<<4 | rune(digitOf(d.peek(end)))
	}

	if end == at+1 || value > unicode.MaxRune {
		return 0
	}

	if next := d.peek(end); next == ' ' || next >= '\t' && next <= '\r' {
		end++
	}

	return d.addDecoded(value, at, end-at)
}

// utf7Alphabet is the alphabet of UTF-7, also in the form in which it has a comma in place of the
// slash.
var utf7Alphabet = newAlphabet(6, 4,
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/").add(',', 63)

// undoUTF7 returns the text with UTF-7 undone, or nil if it has none. In the form for the names of
// mailboxes, an ampersand stands in place of the plus sign.
func undoUTF7(chars []char) []char { return undoEach(chars, "+&", (*decoder).decodeUTF7) }

// decodeUTF7 decodes the letters behind a plus sign, which stand for UTF-16, and the hyphen that
// ends them.
func (d *decoder) decodeUTF7(at int) int {
	end := at + 1
	for end < len(d.in) && utf7Alphabet.valueOf(d.in[end].r) >= 0 {
		end++
	}

	bytes := utf7Alphabet.unpack(d.in[at+1 : end])
	if len(bytes) < 2 {
		return 0
	}

	if d.peek(end) == '-' {
		end++
	}

	bytes[0].from, bytes[len(bytes)-1].to = d.in[at].from, d.in[end-1].to
	for len(bytes) >= 2 {
		r, used := readUnit(bytes), 2
		if utf16.IsSurrogate(r) && len(bytes) >= 4 {
			if pair := utf16.DecodeRune(r, readUnit(bytes[2:])); pair != utf8.RuneError {
				r, used = pair, 4
			}
		}

		d.addChar(char{r, bytes[0].from, bytes[used-1].to})
		bytes = bytes[used:]
	}

	return end - at
}

// readUnit returns the UTF-16 unit with which a sequence of bytes begins.
func readUnit(bytes []char) rune { return bytes[0].r<<8 | bytes[1].r }

// maxLabel is the number of characters of the longest part of a host's name.
const maxLabel = 63

// undoPunycode returns the text with Punycode undone, such as xn--mller-kva, or nil if it has none.
func undoPunycode(chars []char) []char { return undoEach(chars, "xX", (*decoder).decodePunycode) }

// decodePunycode decodes a part of a host's name.
func (d *decoder) decodePunycode(at int) int {
	if foldASCII(d.peek(at+1)) != 'N' || d.peek(at+2) != '-' || d.peek(at+3) != '-' {
		return 0
	}

	var label strings.Builder
	end := at
	for ; end < len(d.in) && end < at+maxLabel &&
		(d.in[end].r == '-' || isReferenceRune(d.in[end].r)); end++ {
		label.WriteRune(d.in[end].r)
	}

	decoded, err := idna.Punycode.ToUnicode(strings.ToLower(label.String()))
	if err != nil || decoded == label.String() {
		return 0
	}

	for _, r := range decoded {
		d.addDecoded(r, at, end-at)
	}

	return end - at
}
