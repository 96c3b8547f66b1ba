package lane

import "errors"

// notAppendedError is an error of an append that certainly stored no message.
type notAppendedError struct{ error }

// Unwrap lets errors.As find the error and its causes.
func (e notAppendedError) Unwrap() error { return e.error }

// markNotAppended marks an error after which the message of the submission is certainly not in the
// log. It returns nil for nil.
func markNotAppended(err error) error {
	if err == nil {
		return nil
	}
	return notAppendedError{err}
}

// IsNotAppended reports whether an error of an Appender shows that the call stored no message.
// After every other error the message may be in the log, because the answer to the transaction was
// lost.
func IsNotAppended(err error) bool {
	var e notAppendedError
	return errors.As(err, &e)
}
