package conceal

import (
	"html"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// char is a character of a decoded text. It stands for the bytes of the original text from offset
// "from" up to, but not including, offset "to".
type char struct {
	r        rune
	from, to int32
}

// maxDecodings bounds the number of times that a text is decoded. A text that is escaped more often
// may hide a value, so callers must not show it.
const maxDecodings = 8

// readChars returns the characters of a text. A byte that is not UTF-8 becomes the character that
// it is in ISO 8859-1, because some CMSs answer in this encoding.
func readChars(text string) []char {
	chars := make([]char, 0, len(text))
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRuneInString(text[at:])
		if r == utf8.RuneError && size == 1 {
			r = rune(text[at])
		}
		chars = append(chars, char{r, int32(at), int32(at + size)})
		at += size
	}

	return chars
}

// decodeLevels returns a text as it is, decoded once, decoded twice, and so on, until decoding
// changes nothing. If the text is escaped more than maxDecodings times, isComplete is false.
//
// All levels are needed to find a value. A value that looks like an escape is found only in a text
// that is not decoded too often.
func decodeLevels(text string) (levels [][]char, isComplete bool) {
	return decodeChars(readChars(text), maxDecodings)
}

// decodeChars is decodeLevels for characters. It decodes at most "limit" times.
func decodeChars(chars []char, limit int) (levels [][]char, isComplete bool) {
	for range limit {
		levels = append(levels, chars)
		d := decoder{in: chars}
		if !d.decodeAll() {
			return levels, true
		}
		chars = d.out
	}

	return append(levels, chars), false
}

// decoder undoes one level of escapes: those of JSON, JavaScript, Python, C, HTML, XML and
// addresses.
type decoder struct {
	in      []char
	out     []char
	bytes   []char // decoded bytes that can be a part of a character in UTF-8
	changed bool
}

// decodeAll decodes d.in into d.out. It reports whether the text has an escape. Its time is linear
// in the length of the text, because each escape has a bounded length.
func (d *decoder) decodeAll() bool {
	if !d.mayHaveEscape() {
		return false
	}

	d.out = make([]char, 0, len(d.in))
	for at := 0; at < len(d.in); {
		used := 0
		switch d.in[at].r {
		case '\\':
			used = d.decodeBackslash(at)
		case '%':
			used = d.decodePercent(at)
		case '&':
			used = d.decodeReference(at)
		}

		if used > 0 {
			d.changed = true
			at += used
			continue
		}

		d.addChar(d.in[at])
		at++
	}

	d.flushBytes()

	return d.changed
}

func (d *decoder) mayHaveEscape() bool {
	for _, c := range d.in {
		if c.r == '\\' || c.r == '%' || c.r == '&' {
			return true
		}
	}
	return false
}

func (d *decoder) addChar(c char) {
	d.flushBytes()
	d.out = append(d.out, c)
}

// addDecoded adds the character r in place of the input from "at" on.
func (d *decoder) addDecoded(r rune, at, used int) int {
	d.addChar(char{r, d.in[at].from, d.in[at+used-1].to})
	return used
}

// addByte adds a byte in place of the input from "at" on. Successive bytes can form one character.
func (d *decoder) addByte(value rune, at, used int) int {
	d.bytes = append(d.bytes, char{value, d.in[at].from, d.in[at+used-1].to})
	return used
}

// flushBytes adds the characters that the bytes form in UTF-8. A byte that is not UTF-8 becomes the
// character that it is in ISO 8859-1.
func (d *decoder) flushBytes() {
	for len(d.bytes) > 0 {
		r, size := readBytes(d.bytes)
		d.out = append(d.out, char{r, d.bytes[0].from, d.bytes[size-1].to})
		d.bytes = d.bytes[size:]
	}
	d.bytes = nil
}

// readBytes returns the character with which a sequence of bytes begins, and the number of its
// bytes.
func readBytes(bytes []char) (r rune, size int) {
	var encoded [utf8.UTFMax]byte
	n := min(len(bytes), utf8.UTFMax)
	for i := range n {
		encoded[i] = byte(bytes[i].r)
	}

	if r, size = utf8.DecodeRune(encoded[:n]); r == utf8.RuneError {
		return bytes[0].r, 1
	}

	return r, size
}

// peek returns the character at an index of the input, or 0 after the end.
func (d *decoder) peek(at int) rune {
	if at < len(d.in) {
		return d.in[at].r
	}
	return 0
}

// readNumber reads exactly "count" digits of a base.
func (d *decoder) readNumber(at, count, base int) (value rune, ok bool) {
	for i := range count {
		digit := digitOf(d.peek(at + i))
		if digit >= base {
			return 0, false
		}
		value = value*rune(base) + rune(digit)
	}

	return value, true
}

// digitOf returns the value of a hexadecimal digit, or 16 for any other character.
func digitOf(r rune) int {
	switch {
	case r >= '0' && r <= '9':
		return int(r - '0')
	case r >= 'a' && r <= 'f':
		return int(r-'a') + 10
	case r >= 'A' && r <= 'F':
		return int(r-'A') + 10
	}

	return 16
}

// controls are the characters for which a letter after a backslash stands.
var controls = map[rune]rune{'n': '\n', 'r': '\r', 't': '\t', 'b': '\b', 'f': '\f',
	'v': '\v', 'a': '\a'}

// decodeBackslash decodes an escape that begins with a backslash. It returns the number of
// characters of the escape, or 0 if there is none.
func (d *decoder) decodeBackslash(at int) int {
	next := d.peek(at + 1)
	switch {
	case next == 'u' && d.peek(at+2) == '{':
		return d.decodeBraces(at)
	case next == 'u':
		return d.decodeUnit(at, 2)
	case next == 'U':
		if r, ok := d.readNumber(at+2, 8, 16); ok && r >= 0 {
			return d.addDecoded(r, at, 10)
		}

	case next == 'x' && d.peek(at+2) == '{': // Perl
		return d.decodeBraces(at)
	case next == 'x':
		if value, ok := d.readNumber(at+2, 2, 16); ok {
			return d.addByte(value, at, 4)
		}

	case next >= '0' && next <= '3':
		if value, ok := d.readNumber(at+1, 3, 8); ok {
			return d.addByte(value, at, 4)
		}

	case controls[next] != 0:
		return d.addDecoded(controls[next], at, 2)
	case next > ' ' && next < utf8.RuneSelf && !isWordRune(next):
		return d.addDecoded(next, at, 2)
	}

	return 0
}

// decodeUnit decodes a UTF-16 unit of four digits, such as \u00fc and %u00fc, or the two units of
// one character. The digits begin "skip" characters after "at".
func (d *decoder) decodeUnit(at, skip int) int {
	unit, ok := d.readNumber(at+skip, 4, 16)
	if !ok {
		return 0
	}

	used := skip + 4
	if utf16.IsSurrogate(unit) && d.peek(at+used) == d.in[at].r && d.peek(at+used+1) == 'u' {
		if second, ok := d.readNumber(at+used+skip, 4, 16); ok {
			if r := utf16.DecodeRune(unit, second); r != utf8.RuneError {
				return d.addDecoded(r, at, 2*used)
			}
		}
	}

	return d.addDecoded(unit, at, used)
}

// decodeBraces decodes \u{fc} and \x{fc}.
func (d *decoder) decodeBraces(at int) int {
	var value rune
	for i := at + 3; i <= at+9; i++ {
		if d.peek(i) == '}' && i > at+3 {
			return d.addDecoded(value, at, i+1-at)
		}

		digit := digitOf(d.peek(i))
		if digit == 16 {
			break
		}

		value = value<<4 | rune(digit)
	}

	return 0
}

// decodePercent decodes %fc and %u00fc.
func (d *decoder) decodePercent(at int) int {
	if next := d.peek(at + 1); next == 'u' || next == 'U' {
		return d.decodeUnit(at, 2)
	}

	if value, ok := d.readNumber(at+1, 2, 16); ok {
		return d.addByte(value, at, 3)
	}
	return 0
}

// maxReference is the length of the longest character reference that is decoded, in characters.
const maxReference = 34

// decodeReference decodes a character reference of HTML or XML. A numeric reference can lack its
// semicolon.
func (d *decoder) decodeReference(at int) int {
	var name strings.Builder
	end := at + 1
	for ; end < len(d.in) && end-at < maxReference; end++ {
		r := d.in[end].r
		if !isReferenceRune(r) && (r != '#' || end > at+1) {
			break
		}
		name.WriteByte(byte(r))
	}

	text, hasEnd := name.String(), d.peek(end) == ';'
	if number, isNumeric := strings.CutPrefix(text, "#"); isNumeric {
		return d.decodeNumeric(at, number)
	}

	if !hasEnd || text == "" {
		return 0
	}

	reference := "&" + text + ";"
	decoded := html.UnescapeString(reference)
	if decoded == reference || strings.HasSuffix(decoded, ";") && text != "semi" {
		return 0
	}

	used := end + 1 - at
	for _, r := range decoded {
		d.addDecoded(r, at, used)
	}

	return used
}

func isReferenceRune(r rune) bool { return r < utf8.RuneSelf && isWordRune(r) }

// decodeNumeric decodes the longest number at the beginning of the text in "number", such as 252
// and xfc.
func (d *decoder) decodeNumeric(at int, number string) int {
	base, skip := 10, 2
	if strings.HasPrefix(number, "x") || strings.HasPrefix(number, "X") {
		base, skip, number = 16, 3, number[1:]
	}

	length := 0
	for length < len(number) && digitOf(rune(number[length])) < base {
		length++
	}

	value, err := strconv.ParseUint(number[:length], base, 32)
	if err != nil || value == 0 || value > utf8.MaxRune {
		return 0
	}

	used := skip + length
	if d.peek(at+used) == ';' {
		used++
	}

	return d.addDecoded(rune(value), at, used)
}
