// Package filing checks messages of upstreams and files them: it appends each message to the log of
// the message's lane. Messages come as posts, from a message broker, as files of the inbox, or as
// parts of a batch. All of them pass through this package, so that a header or a rule means the
// same everywhere.
package filing

import (
	"context"
	"net/http"
	"time"

	"weir/internal/fold"
	"weir/internal/lane"
	"weir/internal/weir"
)

// Contracts parses a body into a message; see contract.Set. The error of Accept lists all problems
// of the body.
type Contracts interface {
	Accept(ctx context.Context, contentType string, body []byte) (weir.Message, error)
}

// Callbacks checks the addresses of callbacks. If an address is not allowed, Check returns an error
// of kind Invalid with the reason.
type Callbacks interface{ Check(address string) error }

// Appender appends a message to its lane without waking the drainer of this process; see
// lane.Appender.
type Appender interface {
	Append(ctx context.Context, m weir.Message, idempotencyKey string) (lane.Receipt, error)
}

// Limits enforces the contracts, rates and quotas of upstreams; see upstream.Set.
type Limits interface {
	// CheckContract returns an error of kind Forbidden if the upstream may not send messages of the
	// contract.
	CheckContract(upstream, contract string) error
	// Admit counts a message against the rate and the quota of the upstream. The error's kind is
	// Limited if the rate or the quota is used up, Forbidden if no upstream has the name, and
	// Unavailable if storage fails. The quota counts messages that were stored: settle, which is
	// never nil, must be called with the result of the append. The parameter submission names the
	// submission, so that a repeat after a lost answer is not counted again; empty = the submission
	// cannot be recognized.
	Admit(ctx context.Context, upstream, submission string) (settle func(weir.AppendResult),
		err error)
}

// Submission is a message as an upstream sends it.
type Submission struct {
	ContentType string
	Body        []byte // must not be changed after the call, because the message keeps the slice
	Options     Options
}

// Options are the parts of a submission that are not its body.
type Options struct {
	IdempotencyKey string    // "" = none
	DueAt          time.Time // zero = the due time in the body, if any
	Callback       string    // "" = none
	// the verified name of the upstream; "" = none, so no limits apply
	Upstream                string
	TraceParent, TraceState string // "" = none
	// of the submission, for the contracts' conditions; nil = none
	Headers http.Header
}

// Filer validates submissions and appends their messages. All fields except Limits and Fold are
// required. A Filer is safe for concurrent use.
type Filer struct {
	Contracts Contracts
	Callbacks Callbacks
	Log       Appender
	Limits    Limits     // nil = the settings name no upstream, so no message is limited
	Fold      fold.Rules // as lane.Store.Fold
}

// OrderOf returns a text that is equal for messages with the same order. A way in that files
// several messages at a time files these one after the other, so that their order stays.
func (f *Filer) OrderOf(m *weir.Message) string { return f.Fold.Fold(m.Key) }

// Validate returns the message of a submission. The error is a *weir.Error of one of these kinds:
//
//   - Malformed, TooLarge, Unsupported or Invalid: the body is refused. An Invalid error lists all
//     problems.
//   - Forbidden: the upstream may not send messages of the contract.
//   - Unavailable: ctx ended before enough memory was free to parse the body.
func (f *Filer) Validate(ctx context.Context, s Submission) (weir.Message, error) {
	m, err := f.Contracts.Accept(weir.WithHeaders(ctx, s.Options.Headers), s.ContentType, s.Body)
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

// File validates a submission and appends its message to a lane. If File returns no error, the
// message is durable, and the caller has to wake the lane. A caller that waits for each call to
// return keeps the order of the messages of a key.
//
//   - After an error of kind Unavailable, the message may have been appended. The caller submits it
//     again with the same idempotency key.
//   - After an error of kind Limited, or an error that IsRefusal reports, the message was not
//     appended.
func (f *Filer) File(ctx context.Context, s Submission) (lane.Receipt, error) {
	m, err := f.Validate(ctx, s)
	if err != nil {
		return lane.Receipt{}, err
	}
	return f.FileValid(ctx, m, s.Options.IdempotencyKey)
}

// IsRefusal reports whether an error of a Filer refuses a submission for good, so that a repeat
// would fail, too.
func IsRefusal(err error) bool {
	switch weir.KindOf(err) {
	case weir.Malformed, weir.TooLarge, weir.Unsupported, weir.Invalid, weir.Forbidden:
		return true
	}
	return false
}

// FileValid is File for a message that Validate has returned.
func (f *Filer) FileValid(ctx context.Context, m weir.Message,
	idempotencyKey string) (lane.Receipt, error) {
	if !f.isLimited(&m) {
		return f.Log.Append(ctx, m, idempotencyKey)
	}

	settle, err := f.Limits.Admit(ctx, m.Upstream, nameSubmission(&m, idempotencyKey))
	if err != nil {
		return lane.Receipt{}, err
	}

	filed, err := f.Log.Append(ctx, m, idempotencyKey)
	settle(appendResult(filed, err))

	return filed, err
}

// nameSubmission returns the name by which a repeat of a submission is recognized: at most one
// message is stored for an ordering key and an idempotency key. Without an idempotency key the name
// is empty.
func nameSubmission(m *weir.Message, idempotencyKey string) string {
	if idempotencyKey == "" {
		return ""
	}
	return m.Key + "\x00" + idempotencyKey // a key has no NUL, because XML has none
}

func appendResult(filed lane.Receipt, err error) weir.AppendResult {
	switch {
	case err == nil && filed.Duplicate:
		return weir.AppendRepeated
	case err == nil:
		return weir.Appended
	case lane.IsNotAppended(err), IsRefusal(err):
		return weir.NotAppended
	}

	return weir.AppendUnknown
}

// isLimited reports whether the limits of an upstream apply to a message. Even if Limits is nil, a
// part of a batch can name an upstream: the batch can have been accepted under earlier settings.
func (f *Filer) isLimited(m *weir.Message) bool { return m.Upstream != "" && f.Limits != nil }
