package conceal

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
)

// transliterated has the letters that programs write with two ASCII letters, as in the address of a
// page. Other accents are left out of a comparison, see folded.
var transliterated = strings.NewReplacer("ä", "ae", "Ä", "Ae", "ö", "oe", "Ö", "Oe", "ü", "ue",
	"Ü", "Ue", "å", "aa", "Å", "Aa", "ø", "oe", "Ø", "Oe", "æ", "ae", "Æ", "Ae", "œ",
	"oe", "Œ", "Oe")

// listSpellings returns other texts that programs write for a value: with its letters in ASCII, and
// with its UTF-8 taken for windows-1252 or ISO 8859-1, once or twice.
func listSpellings(value string) (spellings []string) {
	known := map[string]bool{value: true}
	add := func(text string) {
		if !known[text] {
			known[text] = true
			spellings = append(spellings, text)
		}
	}

	add(transliterated.Replace(value))

	for _, charset := range []*charmap.Charmap{charmap.Windows1252, charmap.ISO8859_1} {
		once := misread(value, charset)
		add(once)
		add(misread(once, charset))
	}

	return spellings
}

// misread returns a text as a program shows it that takes its UTF-8 for another encoding.
func misread(text string, charset *charmap.Charmap) string {
	var b strings.Builder
	for i := range len(text) {
		r := charset.DecodeByte(text[i])
		if r == utf8.RuneError { // the encoding has no such character, and programs keep the byte
			r = rune(text[i])
		}
		b.WriteRune(r)
	}

	return b.String()
}

// encodeUTF16 returns a text in UTF-16, with the lower byte first, without its last byte: that is
// zero for most texts, and a text with the higher byte first has the same bytes up to there.
func encodeUTF16(text string) string {
	var b []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		b = append(b, byte(unit), byte(unit>>8))
	}
	return string(b[:max(0, len(b)-1)])
}
