package weir

import (
	"errors"
	"regexp"
	"strings"
	"time"
)

// Kind classifies an error for the caller. Package httpio turns the kind into an HTTP status.
type Kind int

// The kinds of errors, with the HTTP statuses that package httpio answers.
const (
	Internal    Kind = iota // 500: a defect of Weir; callers do not see the error's text
	Malformed               // 400: the request cannot be parsed
	NotFound                // 404
	Conflict                // 409
	Stale                   // 412: the resource has changed since the caller read it
	TooLarge                // 413
	Unsupported             // 415: media type or encoding
	Invalid                 // 422: the request can be parsed, but breaks a rule
	// 503: storage cannot be reached, or Weir cannot do this now; a retry can succeed
	Unavailable
	// 403: the request came from another site's page, or the upstream lacks the right
	Forbidden
	Unauthenticated // 401: credentials of an upstream are missing or wrong
	Limited         // 429: the upstream has used up a limit
)

// Problem is one mistake in a request.
type Problem struct {
	Path    string `json:"path,omitempty"`
	Rule    string `json:"rule,omitempty"`
	Message string `json:"message"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
}

// predicate matches a message that says something about the value at its path, such as "is empty".
var predicate = regexp.MustCompile(`^(is|has|lies|needs|cannot|must) `)

// Sentence returns the message with its subject, the path.
func (p Problem) Sentence() string {
	switch {
	case p.Path == "" || strings.HasPrefix(p.Message, p.Path+" "):
		return p.Message
	case predicate.MatchString(p.Message):
		return p.Path + " " + p.Message
	}
	return p.Path + ": " + p.Message
}

// Error has a kind for programs, a message that is safe to show, and a cause for the log.
type Error struct {
	Kind       Kind
	Op         string // the operation that failed, such as "append"; for the log
	Message    string // text for callers
	Problems   []Problem
	Contract   string        // the contract of a refused message; "" = not known
	RetryAfter time.Duration // for Unavailable and Limited; 0 = not known
	Err        error         // the cause, for the log; never shown to callers
}

func (e *Error) Error() string {
	text := e.Op + ": " + e.Message
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// FirstRule returns the path and the rule of the first problem of a refusal, such as "./@path
// required". It leaves out the limit of a rule such as max=200. The result is "" if err names no
// rule.
func FirstRule(err error) string {
	var e *Error
	if !errors.As(err, &e) || len(e.Problems) == 0 {
		return ""
	}
	rule, _, _ := strings.Cut(e.Problems[0].Rule, "=")
	return strings.TrimSpace(e.Problems[0].Path + " " + rule)
}

// ContractOf returns the contract of a refused message, or "" if err names none.
func ContractOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Contract
	}
	return ""
}

// KindOf returns the kind of the first *Error in err's chain. If the chain has no *Error, KindOf
// returns Internal.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}
