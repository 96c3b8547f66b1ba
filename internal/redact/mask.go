package redact

import (
	"slices"
	"strings"

	"weir/internal/conceal"
	"weir/internal/contract"
)

// Mask hides redacted values in texts. The zero mask hides no values. A Mask is safe for concurrent
// use.
//
// A mask finds a value in each form that a conceal.Finder knows. If eight bytes of a value in a row
// would remain in a text, the mask hides the whole text.
type Mask struct {
	hidesAll bool            // hides each whole text, because the values cannot be found
	finder   *conceal.Finder // nil = hides nothing
}

const (
	// A value with at least minAnywhere characters is hidden inside words, too. A shorter value,
	// such as a grade, occurs in many words by chance.
	minAnywhere = 4
	// maxValueBytes bounds the memory and the time of a mask.
	maxValueBytes = 16 << 10
)

// hiddenText replaces a text that Mask hides as a whole.
const hiddenText = contract.RedactedMark +
	" (this text is hidden, because it may repeat redacted values)"

// NewMask returns a mask for the fields Values and Written of a contract.Redaction. It ignores
// empty values. If the values are too many or too long, the mask hides each whole text.
func NewMask(values, written []string) Mask {
	// the tags in an element are not secret
	hasTags := func(text string) bool { return strings.Contains(text, "<") }
	parts := slices.Concat(values, slices.DeleteFunc(slices.Clone(written), hasTags))
	return Mask{finder: conceal.NewFinder(slices.Concat(values, written),
		conceal.Options{Shortest: minAnywhere,
			FindsWords: true, PartsOf: parts, MaxBytes: maxValueBytes})}
}

// Hide returns a text with contract.RedactedMark in place of each value, or hiddenText if a part of
// a value might remain.
func (m Mask) Hide(text string) string {
	switch {
	case text == "" || m.finder == nil && !m.hidesAll:
		return text
	case m.hidesAll:
		return hiddenText
	}

	hidden, isSafe := m.finder.Replace(text, contract.RedactedMark)
	if !isSafe {
		return hiddenText
	}

	return hidden
}
