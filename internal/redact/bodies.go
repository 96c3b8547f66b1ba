package redact

import (
	"context"
	"regexp"

	"weir/internal/contract"
	"weir/internal/weir"
)

// Contracts find the redacted values of a body; see contract.Set.
type Contracts interface {
	// HasRedaction reports whether any contract redacts values.
	HasRedaction() bool
	Redact(ctx context.Context, contract, contentType string, body []byte) (contract.Redaction,
		error)
}

// Loader reads messages with their bodies; see lane.Messages.
type Loader interface {
	LoadMessage(ctx context.Context, id weir.ID) (weir.Message, error)
	LoadEditedMessage(ctx context.Context, id weir.ID) (weir.Message, error)
}

// Bodies reads messages, and hides the redacted values in their bodies. It is safe for concurrent
// use. Errors come from the Loader and from Contracts.
type Bodies struct {
	Loader    Loader
	Contracts Contracts
}

// LoadMessage returns a message with its accepted body.
func (b *Bodies) LoadMessage(ctx context.Context, id weir.ID) (weir.Message, error) {
	return b.hideValues(ctx, id, b.Loader.LoadMessage)
}

// LoadEditedMessage returns a message with its edited body.
func (b *Bodies) LoadEditedMessage(ctx context.Context, id weir.ID) (weir.Message, error) {
	return b.hideValues(ctx, id, b.Loader.LoadEditedMessage)
}

func (b *Bodies) hideValues(ctx context.Context, id weir.ID,
	load func(context.Context, weir.ID) (weir.Message, error)) (weir.Message, error) {
	m, err := load(ctx, id)
	if err != nil {
		return weir.Message{}, err
	}

	if _, err := b.HideValues(ctx, &m); err != nil {
		return weir.Message{}, err
	}

	return m, nil
}

// HideValues replaces the redacted values in the body of a message. It reports whether the body has
// redacted values. After an error the message has no body.
func (b *Bodies) HideValues(ctx context.Context, m *weir.Message) (hasValues bool, err error) {
	body := m.Body
	m.Body = nil
	found, err := b.Contracts.Redact(ctx, m.Contract, m.ContentType, body)
	if err != nil {
		return false, err
	}

	m.Body = found.Body

	return len(found.Written) > 0, nil
}

// quotedText matches the beginning of a quoted text in the braces of a template.
var quotedText = regexp.MustCompile("\\{\\{-?[ \\t\\r\\n]*[\"`]")

// HideTemplate returns a schedule's message text with its redacted values hidden, or nil if
// Contracts.Redact fails. If any contract redacts values, HideTemplate also returns nil for a
// message text that has a quoted text in braces, such as {{"<!--"}}. Contracts.Redact would take
// the quoted text for markup, but in the schedule's messages the quoted text is escaped.
func HideTemplate(ctx context.Context, contracts Contracts, contentType string,
	message []byte) []byte {
	if !contracts.HasRedaction() {
		return message
	}

	found, err := contracts.Redact(ctx, "", contentType, message)
	if err != nil || quotedText.Match(message) {
		return nil
	}

	return found.Body
}
