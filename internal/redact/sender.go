package redact

import (
	"context"
	"slices"
	"strings"
	"sync"

	"weir/internal/conceal"
	"weir/internal/contract"
	"weir/internal/weir"
)

// Next makes attempts; see drain.Sender.
type Next interface {
	Send(ctx context.Context, d weir.Delivery) weir.Result
}

// Sender makes attempts through Next, and hides redacted values in the texts of the results. It
// does not change the requests to the CMS. It is safe for concurrent use.
type Sender struct {
	Next      Next
	Contracts Contracts
}

// Send implements drain.Sender. Next hides the values in each text before it cuts the text. Send
// does so again, so that a text that Next has forgotten shows no value.
func (s *Sender) Send(ctx context.Context, d weir.Delivery) weir.Result {
	mask := sync.OnceValue(func() Mask { return MaskOf(ctx, s.Contracts, d.Message) })
	d.Hide = func(text string) string {
		if text == "" {
			return ""
		}
		return mask().Hide(text)
	}

	r := s.Next.Send(ctx, d)
	r.Reason, r.Body = d.Hide(r.Reason), d.Hide(r.Body)
	r.Steps = slices.Clone(r.Steps)
	for i := range r.Steps {
		r.Steps[i].Reason = d.Hide(r.Steps[i].Reason)
	}

	return r
}

// MaskOf returns a mask for the redacted values of a message. If the values cannot be found or are
// too many, the mask hides each whole text.
func MaskOf(ctx context.Context, contracts Contracts, m *weir.Message) Mask {
	found, err := contracts.Redact(ctx, m.Contract, m.ContentType, m.Body)
	if err != nil || found.HasMore {
		return Mask{hidesAll: true}
	}
	return NewMask(found.Values, found.Written)
}

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
	if len(values)+len(written) == 0 {
		return Mask{}
	}

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
