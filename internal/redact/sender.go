package redact

import (
	"context"
	"slices"
	"sync"

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
