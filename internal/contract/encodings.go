package contract

import (
	"bytes"
	"encoding/binary"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
)

// This file has the one table of the encodings that Weir reads, for all ways in. Its characters are
// those of golang.org/x/text, with two differences:
//
//   - golang.org/x/text replaces invalid bytes without an error. Here, bytes are valid only if
//     their character encodes back to the same bytes, or if they are a second code of it that all
//     decoders read alike (isSecondCode).
//   - Names have the meaning of IANA's list. For browsers, iso-8859-1 means windows-1252.

// nextCharacter returns the first character of a non-empty slice, and the character's size in
// bytes. If the bytes only change the state of the encoding, the character is noCharacter. If the
// character is invalid or cut off, the size is 0.
type nextCharacter func([]byte) (rune, int)

// noCharacter is the result of a nextCharacter for an escape sequence.
const noCharacter rune = -1

// acceptedEncodings describes the table for reasons.
const acceptedEncodings = "UTF-8, UTF-16, US-ASCII, ISO-8859-x, Windows-125x, KOI8-R, KOI8-U, " +
	"Shift_JIS, EUC-JP, ISO-2022-JP, GB2312, GBK, GB18030, Big5, EUC-KR and the code pages of DOS " +
	"and Mac OS are"

// MaxCharacter is the size of the largest character in the accepted encodings, in bytes: four bytes
// of UTF-8, UTF-16 and GB18030.
const MaxCharacter = 4

const iso2022JP = "iso-2022-jp"

// own are the encodings that need no table, or no table of golang.org/x/text.
var own = map[string]nextCharacter{
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
	latin1:  func(b []byte) (rune, int) { return rune(b[0]), 1 },
	utf16LE: func(b []byte) (rune, int) { return utf16Rune(b, binary.LittleEndian) },
	utf16BE: func(b []byte) (rune, int) { return utf16Rune(b, binary.BigEndian) },
}

// multiByte has the encodings of several bytes a character. Bytes below 0x80 are ASCII, except
// behind a byte above.
var multiByte = map[string]encoding.Encoding{"shift_jis": japanese.ShiftJIS,
	"euc-jp": japanese.EUCJP,
	"gbk":    simplifiedchinese.GBK, "gb18030": simplifiedchinese.GB18030,
	"big5":   traditionalchinese.Big5,
	"euc-kr": korean.EUCKR}

// decoderOf returns a new decoder of an encoding. Only the decoder of ISO-2022-JP has a state.
func decoderOf(name string) nextCharacter {
	if next := own[name]; next != nil {
		return next
	}

	if name == iso2022JP {
		return (&jisState{pairs: tableOf("euc-jp")}).next
	}
	return tableOf(name).next
}

// codeTable has the characters of an encoding.
type codeTable struct {
	// characters has a character by its bytes: one byte, or the first byte times 256 and the
	// second. 0 = the bytes are invalid.
	characters []rune
	// fours has the characters of four bytes in GB18030 up to U+FFFF; see indexOfFour.
	fours map[int]rune
	// threes has the characters of three bytes in EUC-JP: 0x8F, and the two bytes of the key.
	threes map[[2]byte]rune
	// isSingle is true if each character has one byte.
	isSingle bool
}

// tables has the codeTable of each encoding that was used. A table is made once.
var tables sync.Map

func tableOf(name string) *codeTable {
	if made, ok := tables.Load(name); ok {
		return made.(*codeTable)
	}

	t := &codeTable{}
	if known := multiByte[name]; known != nil {
		t.fillPairs(known)
		t.addSecondCodes(name, known)
	} else if found, err := ianaindex.MIME.Encoding(name); err == nil {
		t.fillBytes(found.(*charmap.Charmap)) // encodingName returns no other name
	}

	made, _ := tables.LoadOrStore(name, t)

	return made.(*codeTable)
}

func (t *codeTable) fillBytes(page *charmap.Charmap) {
	t.isSingle, t.characters = true, make([]rune, 256)
	for i := range t.characters {
		r := page.DecodeByte(byte(i))
		if back, ok := page.EncodeRune(r); ok && back == byte(i) && r != utf8.RuneError {
			t.characters[i] = r
		}
	}
}

// fillPairs encodes all characters, and keeps those that decode to themselves.
func (t *codeTable) fillPairs(known encoding.Encoding) {
	t.characters = make([]rune, 1<<16)
	t.fours, t.threes = map[int]rune{}, map[[2]byte]rune{}
	const first, last = 0x80, 0x2FFFF
	var all strings.Builder
	for r := rune(first); r <= last; r++ {
		all.WriteRune(r) // U+FFFD in place of surrogates
		all.WriteByte('\n')
	}

	encoded, err := encoding.ReplaceUnsupported(known.NewEncoder()).Bytes([]byte(all.String()))
	if err != nil {
		return // cannot happen, because ReplaceUnsupported replaces all others
	}

	decoded, err := known.NewDecoder().Bytes(encoded)
	if err != nil {
		return // as above
	}

	codes, texts := bytes.Split(encoded, []byte("\n")), bytes.Split(decoded, []byte("\n"))
	for i := range min(len(codes), len(texts), last-first+1) {
		code, want := codes[i], rune(first+i)
		if got, size := utf8.DecodeRune(texts[i]); got != want || size != len(texts[i]) {
			continue
		}

		switch {
		case len(code) == 1 && code[0] >= utf8.RuneSelf:
			t.characters[code[0]] = want
		case len(code) == 2:
			t.characters[int(code[0])<<8|int(code[1])] = want
		case len(code) == 3:
			t.threes[[2]byte(code[1:])] = want
		case len(code) == 4 && want <= 0xFFFF:
			t.fours[indexOfFour(code)] = want
		}
	}
}

// addSecondCodes adds the codes for which isSecondCode returns true.
func (t *codeTable) addSecondCodes(name string, known encoding.Encoding) {
	decoder, text := known.NewDecoder(), make([]byte, 16)
	decode := func(code ...byte) (r rune, ok bool) {
		decoder.Reset()
		n, _, err := decoder.Transform(text, code, true)
		r, size := utf8.DecodeRune(text[:n])
		return r, err == nil && size == n && r >= utf8.RuneSelf && r != utf8.RuneError
	}

	for code := 0x8000; code < len(t.characters); code++ {
		first, second := byte(code>>8), byte(code)
		if t.characters[code] == 0 && t.characters[first] == 0 &&
			isSecondCode(name, first, second) {
			if r, ok := decode(first, second); ok {
				t.characters[code] = r
			}
		}

		rest := [2]byte{first, second}
		if name != "euc-jp" || t.threes[rest] != 0 || rest == tildeOfX0212 {
			continue
		}
		if r, ok := decode(firstOfThree, first, second); ok {
			t.threes[rest] = r
		}
	}
}

// isSecondCode reports whether two bytes can be a second code of a character, which does not encode
// back to them, and which the decoders of Windows, Java, Python and glibc read alike:
//
//   - Shift_JIS: NEC and IBM added the same characters at different places. Windows writes the
//     codes of IBM, and golang.org/x/text those of NEC.
//   - EUC-JP: the mathematical signs of NEC. The last character of NEC's rows has several readings.
//   - Big5: golang.org/x/text writes some everyday characters by their codes in the extension of
//     Hong Kong. The codes of that extension have another meaning on Windows.
//
// GBK, GB18030 and EUC-KR have no second code that all read alike.
func isSecondCode(name string, first, second byte) bool {
	switch name {
	case "shift_jis":
		return true
	case "euc-jp":
		return first == 0xAD
	case "big5":
		return first >= 0xA1 && first <= 0xC5 || first == 0xC6 && second <= 0x7E ||
			first >= 0xC9 && first <= 0xF9
	}

	return false
}

// In EUC-JP, characters of JIS X 0212 have three bytes. Its tilde has several readings.
const firstOfThree = 0x8F

var tildeOfX0212 = [2]byte{0xA2, 0xB7}

// indexOfFour returns the position of a character of four bytes in GB18030.
func indexOfFour(b []byte) int {
	return ((int(b[0])-0x81)*10+int(b[1])-0x30)*1260 + (int(b[2])-0x81)*10 + int(b[3]) - 0x30
}

// firstSupplementary is the position of U+10000 in GB18030.
const firstSupplementary = (0x90 - 0x81) * 10 * 1260

func (t *codeTable) next(b []byte) (rune, int) {
	switch {
	case b[0] < utf8.RuneSelf && !t.isSingle:
		return rune(b[0]), 1
	case t.characters[b[0]] != 0 || b[0] == 0:
		return t.characters[b[0]], 1
	case t.isSingle || len(b) < 2:
		return 0, 0
	case len(t.fours) > 0 && b[1] >= '0' && b[1] <= '9':
		return t.nextFour(b)
	case len(t.threes) > 0 && b[0] == firstOfThree:
		return t.nextThree(b)
	}

	if r := t.characters[int(b[0])<<8|int(b[1])]; r != 0 {
		return r, 2
	}

	return 0, 0
}

func (t *codeTable) nextThree(b []byte) (rune, int) {
	if len(b) >= 3 {
		if r := t.threes[[2]byte(b[1:3])]; r != 0 {
			return r, 3
		}
	}
	return 0, 0
}

func (t *codeTable) nextFour(b []byte) (rune, int) {
	if len(b) < 4 || b[2] < 0x81 || b[2] == 0xFF || b[3] < '0' || b[3] > '9' {
		return 0, 0
	}

	at := indexOfFour(b)
	if r := rune(0x10000 + at - firstSupplementary); r >= 0x10000 && r <= utf8.MaxRune {
		return r, 4
	}

	if r := t.fours[at]; r != 0 {
		return r, 4
	}

	return 0, 0
}

// jisState decodes ISO-2022-JP (RFC 1468, and JIS X 0201). One text has many spellings, because an
// escape sequence can stand anywhere, also at the end or before another one. All decoders read them
// alike, so each spelling is valid.
type jisState struct {
	pairs *codeTable // the characters of EUC-JP, which has those of JIS X 0208
	state byte       // the last byte of the escape sequence; 0 = ASCII
}

// The states of ISO-2022-JP, and the first byte of an escape sequence.
const (
	jisEscapeStart                  = 0x1b
	jisASCII, jisRoman, jisKatakana = 'B', 'J', 'I'
	jisPairs                        = 'p'
)

var jisEscapes = map[string]byte{"\x1b(B": jisASCII, "\x1b(J": jisRoman, "\x1b(I": jisKatakana,
	"\x1b$@": jisPairs, "\x1b$B": jisPairs}

func (j *jisState) next(b []byte) (rune, int) {
	if len(b) >= escapeSize {
		if state, isEscape := jisEscapes[string(b[:escapeSize])]; isEscape {
			j.state = state
			return noCharacter, escapeSize
		}
	}
	return j.nextIn(j.state, b)
}

// escapeSize is the size of an escape sequence of ISO-2022-JP in bytes.
const escapeSize = 3

// lastEscape returns the last escape sequence in a replaced part of a text in ISO-2022-JP, if the
// characters behind it are single bytes. It must stand behind the mark: the rest of the text can
// depend on it. Behind the other sequences, the next markup brings its own.
func lastEscape(replaced []byte) []byte {
	at := bytes.LastIndexByte(replaced, jisEscapeStart)
	if at < 0 || at+escapeSize > len(replaced) {
		return nil
	}

	found := replaced[at : at+escapeSize]
	if state := jisEscapes[string(found)]; state != jisASCII && state != jisRoman {
		return nil
	}

	return found
}

// nextIn returns the next character in a state.
func (j *jisState) nextIn(state byte, b []byte) (rune, int) {
	c := b[0]
	switch {
	case c >= utf8.RuneSelf || c == jisEscapeStart:
		return 0, 0
	case state == jisPairs && len(b) > 1 && c > ' ' && b[1] > ' ' && b[1] < utf8.RuneSelf:
		if r := j.pairs.characters[int(c|0x80)<<8|int(b[1]|0x80)]; r != 0 {
			return r, 2
		}
		return 0, 0

	case state == jisPairs:
		return 0, 0
	case state == jisKatakana && c >= 0x21 && c <= 0x5F:
		return rune(c) - 0x21 + '\uFF61', 1
	case state == jisKatakana && c > ' ':
		return 0, 0
	case state == jisRoman && c == '\\':
		return '¥', 1
	case state == jisRoman && c == '~':
		return '‾', 1
	}

	return rune(c), 1
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
	if r == utf8.RuneError { // the two units are not a pair of surrogates
		return 0, 0
	}

	return r, 4
}
