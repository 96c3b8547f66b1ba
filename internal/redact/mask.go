package redact

import (
	"encoding/base64"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"weir/internal/cms"
	"weir/internal/contract"
)

// Mask hides redacted values in texts. The zero mask hides no values. A Mask is safe for concurrent use.
//
// A mask finds a value even if the case of letters or the white space is different. It also finds a value that is
// escaped for addresses, HTML, XML or JSON (see cms.EncodedForms), or encoded in base64. At the end of a text that was
// cut off, a mask also finds the beginning of a value. If a text still shares minShared successive bytes with a value,
// the mask hides the whole text.
type Mask struct {
	hidesAll bool           // hides each whole text, because the values cannot be found or are too many
	anywhere []foldedText   // forms of values that are hidden inside words, too
	words    *regexp.Regexp // forms of short values, which are hidden only as whole words; nil = none
	lower    []string       // the forms of the field "anywhere", in lower case, for hideEnd

	parts map[string]bool // see partsOf
}

const (
	// A value with at least minAnywhere characters is hidden inside words, too. A shorter value, such as a grade,
	// occurs in many words by chance.
	minAnywhere = 4
	// A text must not share minShared or more successive bytes with a value. Shorter parts of a value occur in many
	// texts by chance.
	minShared = 8
	// maxForms, maxValueBytes and maxFormBytes bound the memory and the time of a mask. If no character of a value
	// needs an escape, the value's forms together are about six times as long as the value. If its characters need
	// escapes, the forms can be thirty times as long.
	maxForms      = 400
	maxValueBytes = 16 << 10
	maxFormBytes  = 8 * maxValueBytes
)

// hiddenText replaces a text that Mask hides as a whole.
const hiddenText = contract.RedactedMark + " (this text is hidden, because it may repeat redacted values)"

// NewMask returns a mask for the fields Values and Written of a contract.Redaction. It ignores empty values. If the
// values are too many or too long, the mask hides each whole text.
func NewMask(values, written []string) Mask {
	var long, short []string
	size, isKnown := 0, map[string]bool{"": true}
	for _, value := range slices.Concat(values, written) {
		value = strings.TrimSpace(value)
		if isKnown[value] {
			continue
		}
		isKnown[value] = true
		if size += len(value); size > maxValueBytes {
			return Mask{hidesAll: true}
		}
		forms := cms.EncodedForms(value)
		if utf8.RuneCountInString(value) < minAnywhere {
			short = append(short, forms...)
		} else {
			long = slices.Concat(long, forms, encodeMore(value))
		}
		long, short = sortDistinct(long), sortDistinct(short)
		if len(long)+len(short) > maxForms || countBytes(long)+countBytes(short) > maxFormBytes {
			return Mask{hidesAll: true}
		}
	}
	m := Mask{words: compileForms(short)}
	for _, form := range long {
		m.anywhere = append(m.anywhere, foldText(form))
		m.lower = append(m.lower, strings.ToLower(form))
	}
	hasTags := func(text string) bool { return strings.Contains(text, "<") }
	m.parts = partsOf(slices.Concat(values, slices.DeleteFunc(slices.Clone(written), hasTags)))
	return m
}

func countBytes(texts []string) (sum int) {
	for _, text := range texts {
		sum += len(text)
	}
	return sum
}

// partsOf returns every sequence of minShared bytes in the texts. The texts must have no tags, because the tags in a
// redacted element are not secret.
func partsOf(texts []string) map[string]bool {
	parts := map[string]bool{}
	for _, value := range texts {
		value = joinSpaces(value)
		for end := minShared; end <= len(value); end++ {
			parts[value[end-minShared:end]] = true
		}
	}
	return parts
}

// joinSpaces returns a text in lower case, with one space in place of each sequence of white space.
func joinSpaces(text string) string { return strings.Join(strings.Fields(strings.ToLower(text)), " ") }

// encodeMore returns forms of a value that cms.EncodedForms does not return.
func encodeMore(value string) []string {
	return []string{strings.ReplaceAll(url.QueryEscape(value), "+", "%20"),
		base64.RawStdEncoding.EncodeToString([]byte(value)), base64.RawURLEncoding.EncodeToString([]byte(value))}
}

// sortDistinct sorts texts, the longest first, and removes repeated texts.
func sortDistinct(texts []string) []string {
	slices.SortFunc(texts, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	return slices.Compact(texts)
}

// compileForms returns an expression that matches any of the forms, or nil if there are none. The forms must be sorted,
// the longest first. Otherwise the expression could match a short form, and leave the rest of a longer form visible.
func compileForms(forms []string) *regexp.Regexp {
	if len(forms) == 0 {
		return nil
	}
	var alternatives []string
	for _, form := range forms {
		var words []string
		for _, word := range strings.Fields(form) {
			words = append(words, regexp.QuoteMeta(word))
		}
		alternatives = append(alternatives, strings.Join(words, `[\s\p{Z}]*`))
	}
	return regexp.MustCompile(`(?i)` + strings.Join(alternatives, "|"))
}

// Hide returns a text with contract.RedactedMark in place of each value, or hiddenText if a part of a value might
// remain.
func (m Mask) Hide(text string) string {
	if m.hidesAll && text != "" {
		return hiddenText
	}
	if len(m.anywhere) > 0 {
		text = m.hideEnd(m.hideForms(text))
	}
	if m.words != nil {
		text = m.hideWords(text)
	}
	if m.hasPart(text) {
		return hiddenText
	}
	return text
}

// hasPart reports whether a text shares minShared successive bytes with a value.
func (m Mask) hasPart(text string) bool {
	if len(m.parts) == 0 {
		return false
	}
	text = strings.ReplaceAll(joinSpaces(text), contract.RedactedMark, "\x00")
	for end := minShared; end <= len(text); end++ {
		if m.parts[text[end-minShared:end]] {
			return true
		}
	}
	return false
}

// hideWords hides short values where they are whole words.
func (m Mask) hideWords(text string) string {
	var b strings.Builder
	kept := 0
	for at := 0; at < len(text); {
		found := m.words.FindStringIndex(text[at:])
		if found == nil {
			break
		}
		from, to := at+found[0], at+found[1]
		before, _ := utf8.DecodeLastRuneInString(text[:from])
		after, size := utf8.DecodeRuneInString(text[to:])
		if isWordRune(before) || isWordRune(after) && size > 0 {
			_, size := utf8.DecodeRuneInString(text[from:])
			at = from + size
			continue
		}
		b.WriteString(text[kept:from] + contract.RedactedMark)
		kept, at = to, to
	}
	return b.String() + text[kept:]
}

func isWordRune(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r))
}

// keptAnswer is the least length in bytes of an answer that package cms has cut off. The length is 2 KiB minus one
// character, because the cut may have damaged the last character.
const keptAnswer = 2<<10 - utf8.UTFMax

// hideEnd hides the beginning of a value at the end of a text that was cut off. Such a text ends with an ellipsis, or
// has at least keptAnswer bytes. A beginning of fewer than minAnywhere bytes stays visible.
func (m Mask) hideEnd(text string) string {
	rest := strings.TrimSuffix(strings.TrimSuffix(text, "…"), "...")
	if len(rest) == len(text) && len(text) < keptAnswer {
		return text
	}
	whole := strings.TrimRight(rest, "\uFFFD")
	lower := strings.ToLower(whole)
	if len(lower) != len(whole) { // a letter has another length in lower case, so offsets would differ
		lower = whole
	}
	longest := 0
	for _, form := range m.lower {
		for n := min(len(form), len(lower)); n >= minAnywhere && n > longest; n-- {
			if strings.HasSuffix(lower, form[:n]) {
				longest = n
			}
		}
	}
	if longest == 0 {
		return text
	}
	return rest[:len(lower)-longest] + contract.RedactedMark + text[len(rest):]
}
