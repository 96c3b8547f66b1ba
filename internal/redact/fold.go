package redact

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"weir/internal/contract"
)

// foldedText is a text in one case and without white space. Mask searches folded texts for folded forms. A form is a
// value in one of its encodings, such as JSON. Mask does not search for such forms with a regular expression, because
// that could take seconds for values of many words.
type foldedText struct {
	text     string
	offsets  []int  // for each byte of text, the offset of its character in the original text
	hasSpace []bool // for each byte of text, whether white space stands before it in the original text
}

func foldText(text string) foldedText {
	var f foldedText
	var folded []byte
	hasSpace := false
	for at, r := range text {
		if unicode.IsSpace(r) || unicode.Is(unicode.Z, r) {
			hasSpace = true
			continue
		}
		before := len(folded)
		folded = utf8.AppendRune(folded, foldCase(r))
		for range len(folded) - before {
			f.offsets, f.hasSpace = append(f.offsets, at), append(f.hasSpace, hasSpace)
			hasSpace = false
		}
	}
	f.text = string(folded)
	return f
}

// foldCase returns the same rune for all runes that differ only in case: the smallest of these runes.
func foldCase(r rune) rune {
	lowest := r
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		lowest = min(lowest, other)
	}
	return lowest
}

// hasFormAt reports whether f has a form at byte "at". The caller has found the form's characters there. In the
// original text, white space may stand between the form's words, but not inside a word.
func (f *foldedText) hasFormAt(at int, form *foldedText) bool {
	for i := 1; i < len(form.text); i++ {
		if f.hasSpace[at+i] && !form.hasSpace[i] {
			return false
		}
	}
	return true
}

// originalRange is the part of an original text from byte offset "from" up to, but not including, byte offset "to".
type originalRange struct{ from, to int }

// findForm returns the places of a form in the parameter "original", the text that was folded into f.
func (f *foldedText) findForm(original string, form *foldedText) (found []originalRange) {
	for at := 0; form.text != ""; {
		next := strings.Index(f.text[at:], form.text)
		if next < 0 {
			break
		}
		if at += next; !f.hasFormAt(at, form) {
			at++
			continue
		}
		last := f.offsets[at+len(form.text)-1]
		_, size := utf8.DecodeRuneInString(original[last:])
		found = append(found, originalRange{f.offsets[at], last + size})
		at += len(form.text)
	}
	return found
}

// hideForms returns a text with contract.RedactedMark in place of each form. Overlapping forms get one mark.
func (m Mask) hideForms(text string) string {
	folded := foldText(text)
	var found []originalRange
	for i := range m.anywhere {
		found = append(found, folded.findForm(text, &m.anywhere[i])...)
	}
	slices.SortFunc(found, func(a, b originalRange) int { return cmp.Compare(a.from, b.from) })
	var b strings.Builder
	end := 0
	for i, r := range found {
		if i == 0 || r.from >= end {
			b.WriteString(text[end:r.from] + contract.RedactedMark)
		}
		end = max(end, r.to)
	}
	return b.String() + text[end:]
}
