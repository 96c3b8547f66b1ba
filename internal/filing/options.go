package filing

import (
	"net/http"
	"regexp"
	"slices"
	"time"

	"weir/internal/weir"
)

// knownHeaders are the headers that ReadOptions reads and that begin with Weir-.
var knownHeaders = []string{"Weir-Deliver-At", "Weir-Deliver-After", "Weir-Callback"}

// ReadOptions reads the headers of a submission: Idempotency-Key, Weir-Deliver-At or
// Weir-Deliver-After, Weir-Callback, Traceparent and Tracestate. The names in h must be canonical,
// as http.Header stores them. alsoKnown names headers that the caller reads. The kind of the error
// is one of these:
//
//   - Unsupported for a Content-Encoding.
//   - Malformed for a header that CheckNames refuses.
//   - Invalid for a callback that is not allowed.
//   - Malformed for any other value that cannot be read. But an invalid Traceparent or Tracestate
//     is ignored.
func (f *Filer) ReadOptions(h http.Header, now time.Time, alsoKnown ...string) (Options, error) {
	o := Options{Headers: h}
	var err error
	if _, err = weir.ReadContentEncoding(h["Content-Encoding"]...); err != nil {
		return o, err
	}

	if err = CheckNames("there is no header ", h,
		slices.Concat(knownHeaders, alsoKnown, []string{"Idempotency-Key"})...); err != nil {
		return o, err
	}

	o.DueAt, err = ReadDueTime("Weir-Deliver-At", h["Weir-Deliver-At"], "Weir-Deliver-After",
		h["Weir-Deliver-After"], now)
	if err != nil {
		return o, err
	}

	if o.IdempotencyKey, err = ReadIdempotencyKey(h["Idempotency-Key"]); err != nil {
		return o, err
	}

	if o.Callback, err = f.readCallback(h["Weir-Callback"]); err != nil {
		return o, err
	}

	o.TraceParent, o.TraceState = readTraceContext(h)

	return o, nil
}

// ReadDueTime returns the due time of a submission; zero if there is no value. moments has the
// values of the header or parameter atName. delays has the values of the header or parameter
// afterName, which count from now. If there is more than one value in all, or if the value cannot
// be read, the error is of kind Malformed.
func ReadDueTime(atName string, moments []string, afterName string, delays []string,
	now time.Time) (time.Time, error) {
	switch {
	case len(moments)+len(delays) == 0:
		return time.Time{}, nil
	case len(moments)+len(delays) > 1:
		return time.Time{}, MalformedError("send only one of " + atName + " and " + afterName +
			", and only once")
	case len(moments) == 1:
		dueAt, err := weir.ParseMoment(moments[0])
		if err != nil {
			return time.Time{}, MalformedError(atName + ": " + err.Error())
		}
		return dueAt, nil
	}

	dueAt, err := weir.ParseDelay(delays[0], now)
	if err != nil {
		return time.Time{}, MalformedError(afterName + ": " + err.Error())
	}

	return dueAt, nil
}

// visibleASCII matches an idempotency key: 1 to 255 of the visible characters of RFC 9110, section
// 5.6.2 (VCHAR).
var visibleASCII = regexp.MustCompile(`^[\x21-\x7e]{1,255}$`)

// IsIdempotencyKey reports whether a text can be an idempotency key: 1 to 255 visible ASCII
// characters.
func IsIdempotencyKey(text string) bool { return visibleASCII.MatchString(text) }

// ReadIdempotencyKey returns the only value of the header Idempotency-Key; "" = the header is
// absent. The error is of kind Malformed.
func ReadIdempotencyKey(values []string) (string, error) {
	if len(values) == 0 {
		return "", nil
	}

	if len(values) > 1 || !IsIdempotencyKey(values[0]) {
		return "", MalformedError(
			"Idempotency-Key must appear once, with 1 to 255 visible ASCII characters (no spaces)")
	}

	return values[0], nil
}

// readCallback checks and returns the value of the header Weir-Callback; "" = none.
func (f *Filer) readCallback(values []string) (string, error) {
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 {
		return "", MalformedError("send Weir-Callback only once")
	}
	return values[0], f.Callbacks.Check(values[0])
}

// MalformedError returns an error of kind Malformed, for a header or parameter that cannot be read.
func MalformedError(message string) error {
	return &weir.Error{Kind: weir.Malformed, Op: "filing", Message: message}
}
