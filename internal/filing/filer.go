// Package filing validates the messages of upstreams and appends them to their lanes. It reads the headers beside the
// body, checks the body against its contract, and appends the message. Posts, deliveries of a broker, files of the
// inbox and parts of a batch all pass through it, so a header or a rule has the same meaning for each of them.
package filing

import (
	"context"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// Contracts parses a body into a message; see contract.Set. Its error has every problem of the body.
type Contracts interface {
	Accept(ctx context.Context, contentType string, body []byte) (weir.Message, error)
}

// Callbacks checks the address of a callback. It returns Invalid with the reason if the address is not allowed.
type Callbacks interface{ Check(address string) error }

// Appender appends a message to its lane, and wakes no drainer; see lane.Appender.
type Appender interface {
	AppendWithoutWake(ctx context.Context, m weir.Message, idempotencyKey string) (lane.Receipt, error)
}

// Limits enforces the contracts, rates and quotas of upstreams; see upstream.Set.
type Limits interface {
	// CheckContract returns Forbidden if the upstream may not send messages of the contract.
	CheckContract(upstream, contract string) error
	// Admit counts a message against the rate and the quota of the upstream. It returns Limited if one of the two is
	// used up, Forbidden if no upstream has the name, and Unavailable if storage fails. The function giveBack is
	// never nil. When it is called, the message no longer counts against the quota, but still counts against the
	// rate.
	Admit(ctx context.Context, upstream string) (giveBack func(), err error)
}

// Submission is a message as an upstream sends it.
type Submission struct {
	ContentType string
	Body        []byte // the message keeps this slice, so the caller must not change the slice any more
	Options     Options
}

// Options are the parts of a submission that are not its body.
type Options struct {
	IdempotencyKey          string    // "" = none
	DueAt                   time.Time // zero = the due time in the body, or none
	Callback                string    // "" = none
	Upstream                string    // the verified name of the upstream; "" = none, and no limits
	TraceParent, TraceState string    // "" = none
}

// Filer validates and files submissions. All fields except Limits are required. It is safe for concurrent use.
type Filer struct {
	Contracts Contracts
	Callbacks Callbacks
	Log       Appender
	Limits    Limits // nil = the settings name no upstream, so no message is limited
}

// Validate returns the message of a submission. The error is a *weir.Error. Its kind is Malformed, TooLarge,
// Unsupported, or Invalid with all problems found. It is Forbidden if the upstream may not send messages of the
// contract, and Unavailable if ctx ends while the call waits for memory.
func (f *Filer) Validate(ctx context.Context, s Submission) (weir.Message, error) {
	m, err := f.Contracts.Accept(ctx, s.ContentType, s.Body)
	if err != nil {
		return weir.Message{}, err
	}
	m.Upstream = s.Options.Upstream
	if f.isLimited(&m) {
		if err := f.Limits.CheckContract(m.Upstream, m.Contract); err != nil {
			return weir.Message{}, err
		}
	}
	if !s.Options.DueAt.IsZero() {
		m.DueAt = s.Options.DueAt
	}
	m.Callback = s.Options.Callback
	m.TraceParent, m.TraceState = s.Options.TraceParent, s.Options.TraceState
	return m, nil
}

// File validates a submission and appends its message to a lane. The message is durable when File returns without an
// error; the caller wakes the lane. After an Unavailable error the message may or may not be filed: the caller
// submits it again with the same idempotency key. After a Limited error the message is not filed, nor after an error
// that IsRefusal reports. Submissions of one key that are filed one after the other keep their order.
func (f *Filer) File(ctx context.Context, s Submission) (lane.Receipt, error) {
	m, err := f.Validate(ctx, s)
	if err != nil {
		return lane.Receipt{}, err
	}
	return f.FileValid(ctx, m, s.Options.IdempotencyKey)
}

// IsRefusal reports whether an error of a Filer refuses the submission for good: a repeat would fail, too.
func IsRefusal(err error) bool {
	switch weir.KindOf(err) {
	case weir.Malformed, weir.TooLarge, weir.Unsupported, weir.Invalid, weir.Forbidden:
		return true
	}
	return false
}

// FileValid is File for a message that Validate has returned.
func (f *Filer) FileValid(ctx context.Context, m weir.Message, idempotencyKey string) (lane.Receipt, error) {
	if !f.isLimited(&m) {
		return f.FileAdmitted(ctx, m, idempotencyKey)
	}
	giveBack, err := f.Limits.Admit(ctx, m.Upstream)
	if err != nil {
		return lane.Receipt{}, err
	}
	filed, err := f.FileAdmitted(ctx, m, idempotencyKey)
	if err == nil && filed.Duplicate || IsRefusal(err) {
		giveBack() // this call filed no message; after any other error the message may be filed
	}
	return filed, err
}

// isLimited reports whether the limits of an upstream apply to a message. The settings may no longer have upstreams:
// then a batch that was accepted under earlier settings can still name one.
func (f *Filer) isLimited(m *weir.Message) bool { return m.Upstream != "" && f.Limits != nil }

// FileAdmitted is FileValid without the limits of the upstream. It is for the parts of a batch, because they were
// counted against the quota when the batch was checked.
func (f *Filer) FileAdmitted(ctx context.Context, m weir.Message, idempotencyKey string) (lane.Receipt, error) {
	return f.Log.AppendWithoutWake(ctx, m, idempotencyKey)
}
