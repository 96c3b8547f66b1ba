package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/weir"
)

// Kind classifies an error for the caller.
type Kind int

// The kinds of errors.
const (
	Broken Kind = iota // the answer is not from Weir, or the request cannot be built
	// the message, job or other object does not exist, or no Weir is at the address
	NotFound
	// a key is missing or wrong, or the request is invalid or not allowed at present
	Refused
	Unavailable // Weir was not reached, or cannot work now; a retry can succeed
)

// Error is the error of a failed request.
type Error struct {
	Kind       Kind
	Status     int // status of the answer; 0 = no answer
	Message    string
	Problems   []Problem
	RetryAfter time.Duration // Retry-After of the answer, an hour at most; 0 = none
	Err        error         // the cause; nil = none
}

// Problem is one mistake in a request.
type Problem struct {
	Path    string `json:"path,omitempty"`
	Rule    string `json:"rule,omitempty"`
	Message string `json:"message"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
}

func (e *Error) Error() string {
	text := e.Message
	if e.Status != 0 {
		text = strings.TrimSpace(fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status))) +
			": " + text
	}

	if e.Err != nil {
		text += ": " + e.Err.Error()
	}

	for _, p := range e.Problems {
		// A problem that the message already contains is left out.
		if p.Message != e.Message && !strings.Contains(e.Message, p.describe()) {
			text += "; " + p.String()
		}
	}

	return text
}

func (e *Error) Unwrap() error { return e.Err }

// String returns the problem as one line.
func (p Problem) String() string {
	text := p.describe()
	if p.Line > 0 {
		text += fmt.Sprintf(" (line %d, column %d)", p.Line, p.Column)
	}
	return text
}

// describe returns the message with its subject, without the place in the document.
func (p Problem) describe() string { return weir.Problem(p).Sentence() }

// KindOf returns the kind of the first *Error in err's chain. If the chain has no *Error, KindOf
// returns Broken.
func KindOf(err error) Kind {
	if e, ok := asError(err); ok {
		return e.Kind
	}
	return Broken
}

// IsOutdated reports whether Weir refuses the parameter "continue", because the number of lanes has
// changed since the earlier answer. A call without it begins anew.
func IsOutdated(err error) bool {
	e, ok := asError(err)
	return ok && slices.ContainsFunc(e.Problems, func(p Problem) bool {
		return p.Path == "continue" && p.Rule == "outdated"
	})
}

func asError(err error) (*Error, bool) {
	var e *Error
	ok := errors.As(err, &e)
	return e, ok
}

// unreachableError returns the error of a request without an answer. If ctx has ended,
// unreachableError returns the error of ctx.
func unreachableError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}

	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // leaves out the long address
	}

	return &Error{Kind: Unavailable, Message: "Weir was not reached", Err: err}
}

// refusalError returns the error of an answer whose status is not 2xx.
func refusalError(resp *http.Response, body []byte) error {
	e := &Error{Kind: kindOfStatus(resp.StatusCode), Status: resp.StatusCode}
	var p struct {
		Detail   string    `json:"detail"`
		Problems []Problem `json:"problems"`
	}
	if strings.Contains(resp.Header.Get("Content-Type"), "json") &&
		json.Unmarshal(body, &p) == nil {
		e.Message, e.Problems = p.Detail, p.Problems
	}

	if e.Message == "" {
		e.Message = guessCause(resp.StatusCode)
	}

	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = min(time.Duration(seconds)*time.Second, time.Hour)
	}

	return e
}

func kindOfStatus(status int) Kind {
	switch {
	case status == http.StatusNotFound:
		return NotFound
	case status == http.StatusTooManyRequests || status == http.StatusRequestTimeout ||
		status >= 500:
		return Unavailable
	case status >= 400:
		return Refused
	}

	return Broken
}

// guessCause returns the most likely cause of an answer that has an error status, but no text.
func guessCause(status int) string {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "the function key is missing or wrong: give it by WEIR_CODE or --code"
	case http.StatusNotFound:
		return "there is no Weir at this address, or an older one"
	case http.StatusRequestEntityTooLarge:
		return "the request is too large"
	}

	if status >= 300 && status < 400 {
		return "the address leads elsewhere, and is not followed: is it right?"
	}

	return "no reason was given"
}
