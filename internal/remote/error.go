package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Kind says what an error means to whoever asked.
type Kind int

// The kinds of errors.
const (
	Broken      Kind = iota // what came back is none of Weir's answers
	NotFound                // there is no such thing
	Refused                 // asked wrongly, or it does not stand as it must for this
	Unavailable             // Weir was not reached, or cannot work now: the same may work later
)

// Error is why something was not done.
type Error struct {
	Kind       Kind
	Status     int // of the answer; 0 = there was none
	Message    string
	Problems   []Problem
	RetryAfter time.Duration // as Weir asked; 0 = it did not
	Err        error
}

// Problem is one thing wrong with what was sent.
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
		text = strings.TrimSpace(fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status))) + ": " + text
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	for _, p := range e.Problems {
		if p.Message != e.Message && !strings.Contains(e.Message, p.text()) { // one problem may be the message
			text += "; " + p.String()
		}
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// String says it in a line.
func (p Problem) String() string {
	text := p.text()
	if p.Line > 0 {
		text += fmt.Sprintf(" (line %d, column %d)", p.Line, p.Column)
	}
	return text
}

// text is the message behind the path, which stands in some messages already.
func (p Problem) text() string {
	if p.Path == "" || strings.HasPrefix(p.Message, p.Path+" ") {
		return p.Message
	}
	return p.Path + " " + p.Message
}

// KindOf gives the kind of an error; Broken of a foreign one.
func KindOf(err error) Kind {
	if e, ok := asError(err); ok {
		return e.Kind
	}
	return Broken
}

func asError(err error) (*Error, bool) {
	var e *Error
	ok := errors.As(err, &e)
	return e, ok
}

// unreachable is the error of a request without an answer. Where the caller's own context
// ended, that is the error.
func unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // the address is known, and long
	}
	return &Error{Kind: Unavailable, Message: "Weir was not reached", Err: err}
}

// refusal is the error of an answer that is not a 2xx.
func refusal(resp *http.Response, body []byte) error {
	e := &Error{Kind: kinds(resp.StatusCode), Status: resp.StatusCode}
	var p struct {
		Detail   string    `json:"detail"`
		Problems []Problem `json:"problems"`
	}
	if strings.Contains(resp.Header.Get("Content-Type"), "json") && json.Unmarshal(body, &p) == nil {
		e.Message, e.Problems = p.Detail, p.Problems
	}
	if e.Message == "" {
		e.Message = guess(resp.StatusCode)
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = min(time.Duration(seconds)*time.Second, time.Hour)
	}
	return e
}

func kinds(status int) Kind {
	switch {
	case status == http.StatusNotFound:
		return NotFound
	case status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status >= 500:
		return Unavailable
	case status >= 400:
		return Refused
	}
	return Broken
}

// guess says what an answer without words most likely means.
func guess(status int) string {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "the function key is missing or wrong: give it by WEIR_CODE or --code"
	case http.StatusNotFound:
		return "there is no Weir at this address, or an older one"
	case http.StatusRequestEntityTooLarge:
		return "this is too large"
	}
	if status >= 300 && status < 400 {
		return "the address leads elsewhere, and is not followed: is it right?"
	}
	return "no reason was given"
}
