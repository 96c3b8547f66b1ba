package storage

import (
	"errors"
	"fmt"
	"time"
)

// Kind classifies storage errors by their meaning for the caller.
type Kind int

// The kinds of storage errors.
const (
	Other        Kind = iota // any other error, for example: malformed, a defect
	NotFound                 // the row, message or blob does not exist
	Conflict                 // the row exists already, or the caller's id does not hold the lease
	Precondition             // the row or file has another ETag than the call requires
	TooLarge                 // the request or value is over storage's limit
	Throttled                // storage asks to slow down; nothing was done
	// a read without a usable answer, or a write that was certainly not done
	Unavailable
	Ambiguous // a write that was sent, with an unknown result
	// storage refuses the caller: 401 or 403; see package denial for the read of an object
	Denied
	// the blob or file exists, but storage cannot return its content, or the content is damaged
	Unreadable
)

var kindNames = [...]string{"other", "not found", "conflict", "precondition failed", "too large",
	"throttled", "unavailable", "ambiguous", "denied", "unreadable"}

func (k Kind) String() string { return kindNames[k] }

// ErrGone is in an error's chain if the table, queue or container of the call does not exist. The
// failed call had no effect.
var ErrGone = errors.New("the table, queue or container does not exist")

// Error is the error type of all ports.
type Error struct {
	Op   string // the failed call, for example "table transact" or "lease acquire"
	Kind Kind
	// index of Transact's failed operation; -1 = unknown, or another method failed
	Index      int
	Code       string        // storage's answer, for example "409 BlobArchived"; empty = no answer
	RetryAfter time.Duration // the pause that storage asked for; 0 = none
	Err        error         // the cause, for logs
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("%s: %s", e.Op, e.Kind)
	}
	return fmt.Sprintf("%s: %s: %v", e.Op, e.Kind, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of the first *Error in err's chain, or Other if the chain has none.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Other
}

// Is reports whether the first *Error in err's chain is of kind k. If the chain has no *Error, Is
// returns false.
func Is(err error, k Kind) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == k
}

// IsObjectFault reports whether the read of a blob or file failed because of this object: the
// object is gone, or storage cannot return its content. The same read fails again, while reads of
// other objects can succeed. For any other error, storage as a whole may be the cause.
func IsObjectFault(err error) bool {
	switch KindOf(err) {
	case NotFound, Conflict, Precondition, TooLarge, Unreadable:
		return true
	}
	return false
}

// Describe returns an error of storage as a short text for users: storage's answer, or the kind of
// the error. The text has no address, because the cause of an error can name the account.
func Describe(err error) string {
	var e *Error
	switch {
	case !errors.As(err, &e):
		return "an internal error, which is in the log"
	case e.Code != "":
		return e.Code
	}

	return e.Kind.String()
}

// FailedAt returns the index of the operation at which a transaction failed, or -1 if the index is
// unknown.
func FailedAt(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Index
	}
	return -1
}
