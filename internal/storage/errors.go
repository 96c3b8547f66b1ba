package storage

import (
	"errors"
	"fmt"
	"time"
)

// Kind says what a storage error means to the caller.
type Kind int

// The kinds of storage errors.
const (
	Other        Kind = iota // none of those below: denied, malformed, a defect
	NotFound                 // the row, message or blob is not there
	Conflict                 // it is there already, or leased by another
	Precondition             // its ETag is another
	TooLarge                 // the request or value is over storage's limit
	Throttled                // storage asks to slow down; nothing was done
	Unavailable              // not reached, or it said it did nothing
	Ambiguous                // sent; whether it was done is unknown
)

var kindNames = [...]string{"other", "not found", "conflict", "precondition failed", "too large", "throttled", "unavailable", "ambiguous"}

func (k Kind) String() string { return kindNames[k] }

// ErrGone is in the chain of an error if the table, queue or container itself does not exist: it
// was never made, or was removed. Nothing was done.
var ErrGone = errors.New("the table, queue or container does not exist")

// Error is the one error type of every port.
type Error struct {
	Op         string // "table transact", "lease acquire"
	Kind       Kind
	Index      int           // Transact: the operation that failed; -1 = none in particular
	RetryAfter time.Duration // Throttled, when storage said so
	Err        error         // the cause, for logs
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("%s: %s", e.Op, e.Kind)
	}
	return fmt.Sprintf("%s: %s: %v", e.Op, e.Kind, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// KindOf gives the kind of the first *Error in err's chain, Other when there is none.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Other
}

// Is reports whether err is a storage error of this kind.
func Is(err error, k Kind) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == k
}

// FailedAt gives the operation at which a transaction failed, -1 when unknown.
func FailedAt(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Index
	}
	return -1
}
