package weir

import (
	"errors"
	"time"
)

// Kind says what an error means to whoever asked; httpio turns it into a status.
type Kind int

// The kinds of errors, with the HTTP status each becomes.
const (
	Internal    Kind = iota // 500: our defect; its text stays in the log
	Malformed               // 400: cannot be read at all
	NotFound                // 404
	Conflict                // 409
	Stale                   // 412: it has changed since the caller read it
	TooLarge                // 413
	Unsupported             // 415: media type or encoding
	Invalid                 // 422: read, and against the rules
	Busy                    // the lease is held by another
	Lost                    // the lease is lost
	Unavailable             // 503: storage cannot be reached now; try again
	Rejected                // permanent refusal by the CMS
)

// Problem is one thing wrong with a message.
type Problem struct {
	Path    string `json:"path,omitempty"`
	Rule    string `json:"rule,omitempty"`
	Message string `json:"message"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
}

// Error carries a kind for programs, a message that is safe to show, and a cause for the log.
type Error struct {
	Kind       Kind
	Op         string
	Message    string // safe for the caller to read
	Problems   []Problem
	RetryAfter time.Duration // for Unavailable; 0 = unspecified
	Err        error         // never shown
}

func (e *Error) Error() string {
	text := e.Op + ": " + e.Message
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// KindOf gives the kind of the first *Error in err's chain. A foreign error is Internal.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}
