package conceal

// concealedError is an error whose text has no secrets.
type concealedError struct {
	text  string
	cause error
}

// NewError returns an error with a text in place of that of its cause. If the texts are the same, it
// returns the cause.
func NewError(text string, cause error) error {
	if text == cause.Error() {
		return cause
	}
	return &concealedError{text, cause}
}

func (e *concealedError) Error() string { return e.text }

func (e *concealedError) Unwrap() error { return e.cause }
