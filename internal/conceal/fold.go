package conceal

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// folded is a text in the form in which it is compared: compatibility forms are decomposed (NFKD),
// all letters have one case, and accents, format characters and some of the other characters are
// left out.
type folded struct {
	text string
	// sources has, for each byte of text, the index of its character in the decoded text.
	sources []int32
	// gaps has, for each byte of text, the number of characters that stand before it in the decoded
	// text and are left out. Successive white space counts as one character.
	gaps []uint8
}

// folding determines which characters a folded text has.
type folding int

const (
	// withPunctuation leaves out white space.
	withPunctuation folding = iota
	// wordsOnly leaves out each character that is neither a letter nor a digit.
	wordsOnly
)

// foldChars folds a decoded text.
func foldChars(chars []char, how folding) folded {
	f := folded{sources: make([]int32, 0, len(chars)), gaps: make([]uint8, 0, len(chars))}
	text := make([]byte, 0, len(chars))
	var gap uint8
	wasSpace := false
	add := func(r rune, i int) {
		before := len(text)
		text = utf8.AppendRune(text, r)
		for range len(text) - before {
			f.sources, f.gaps = append(f.sources, int32(i)), append(f.gaps, gap)
			gap, wasSpace = 0, false
		}
	}

	skip := func(isSpace bool) {
		if gap < 255 && !(isSpace && wasSpace) {
			gap++
		}
		wasSpace = isSpace
	}

	for i, c := range chars {
		if r := c.r; r < utf8.RuneSelf {
			switch {
			case r == ' ' || r >= '\t' && r <= '\r':
				skip(true)
			case isASCIIWord(r), how == withPunctuation && r > ' ' && r < 0x7f:
				add(foldASCII(r), i)
			case r > ' ' && r < 0x7f:
				skip(false)
			}

			continue
		}

		for _, r := range decompose(c.r) {
			switch {
			case isIgnored(r):
			case unicode.IsSpace(r) || unicode.Is(unicode.Z, r):
				skip(true)
			case how == wordsOnly && !isWordRune(r):
				skip(false)
			default:
				add(foldCase(r), i)
			}
		}
	}

	f.text = string(text)

	return f
}

// decompose returns the characters of which a character consists, in compatibility form.
func decompose(r rune) []rune {
	switch r {
	case 'ß', 'ẞ':
		return []rune("ss")
	case 'ı':
		return []rune("i")
	}

	if norm.NFKD.IsNormalString(string(r)) {
		return []rune{r}
	}

	return []rune(norm.NFKD.String(string(r)))
}

// isIgnored reports whether a character does not count in a comparison: accents, format characters
// such as the soft hyphen, and control characters.
func isIgnored(r rune) bool {
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) ||
		unicode.IsControl(r) && !unicode.IsSpace(r)
}

func isWordRune(r rune) bool {
	if r < utf8.RuneSelf {
		return isASCIIWord(r)
	}
	return unicode.IsLetter(r) || unicode.IsNumber(r)
}

func isASCIIWord(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

func foldASCII(r rune) rune {
	if r >= 'a' && r <= 'z' {
		return r - ('a' - 'A')
	}
	return r
}

// foldCase returns the same character for all characters that differ only in case: the smallest of
// them.
func foldCase(r rune) rune {
	lowest := r
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		lowest = min(lowest, other)
	}
	return lowest
}
