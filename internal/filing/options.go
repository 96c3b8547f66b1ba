package filing

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/agnivade/levenshtein"
	"go.opentelemetry.io/otel/trace"

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

// traceParentPattern matches a W3C traceparent of version 00
// (https://www.w3.org/TR/trace-context/).
var traceParentPattern = regexp.MustCompile(`^00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}$`)

const (
	noTrace = "00000000000000000000000000000000"
	noSpan  = "0000000000000000"
)

// maxTraceState is the largest number of bytes of a stored tracestate. The W3C asks each system to
// propagate at least that many (https://www.w3.org/TR/trace-context/#tracestate-limits).
const maxTraceState = 512

// readTraceContext returns the values of Traceparent and Tracestate; "" for an invalid value. If
// Traceparent is invalid, both results are "".
func readTraceContext(h http.Header) (traceParent, traceState string) {
	traceParent = h.Get("Traceparent")
	m := traceParentPattern.FindStringSubmatch(traceParent)
	if m == nil || m[1] == noTrace || m[2] == noSpan {
		return "", ""
	}

	state, err := trace.ParseTraceState(strings.Join(h.Values("Tracestate"), ","))
	if err != nil {
		return traceParent, ""
	}

	return traceParent, truncateTraceState(state).String()
}

// truncateTraceState drops entries until the remaining entries have at most maxTraceState bytes. It
// drops the last entry first, because the last entry is the oldest.
func truncateTraceState(state trace.TraceState) trace.TraceState {
	for len(state.String()) > maxTraceState {
		var oldest string
		state.Walk(func(key, _ string) bool { oldest = key; return true })
		state = state.Delete(oldest)
	}
	return state
}

// optionHeader is a header that changes how a submission is filed. If a way in ignored a misspelt
// one, an embargoed message would be delivered at once, and a repeat would become a second message.
type optionHeader struct {
	name        string
	full, short string // the name as foldName returns it, with and without Weir-
	allowed     int    // letters by which a misspelt short name can differ
}

var optionHeaders = []optionHeader{
	// A quarter of the letters: Idempotency-Id and Idempotence-Key are mistakes, too.
	{"Idempotency-Key", "idempotencykey", "idempotencykey", 3},
	// One letter: other software has no header so near to these. It has some near to Callback, so
	// there no letter differs.
	{"Weir-Deliver-At", "weirdeliverat", "deliverat", 1},
	{"Weir-Deliver-After", "weirdeliverafter", "deliverafter", 1},
	{"Weir-Callback", "weircallback", "callback", 0},
}

// CheckNames refuses a header that is meant for Weir, but is not in known: a header that begins
// with Weir- or Weir_, or one that resembles a header of optionHeaders, such as Idempotency_Key or
// Deliver-At. The names in h must be canonical. The argument begin begins the sentence about such a
// name, for example "a batch has no header ". The error is of kind Malformed.
func CheckNames(begin string, h http.Header, known ...string) error {
	for name := range h {
		isOurs := strings.HasPrefix(name, "Weir-") || strings.HasPrefix(name, "Weir_")
		if slices.Contains(known, name) || !isOurs && findMeant(name) == "" {
			continue
		}
		return unknownNameError(begin, name, findMeant(name), known)
	}

	return nil
}

// findMeant returns the header of optionHeaders for which a name is probably a mistake; "" = for
// none. A name of other software resembles none: the only allowed differences are case, hyphens,
// underscores, X- in front, a missing Weir-, and few letters.
func findMeant(name string) string {
	given := foldName(name)
	if strings.HasPrefix(name, "X-") || strings.HasPrefix(name, "X_") {
		given = given[1:]
	}

	for _, h := range optionHeaders {
		if isNear(given, h.full, max(h.allowed, 1)) || isNear(given, h.short, h.allowed) {
			return h.name
		}
	}

	return ""
}

// isNear reports whether at most "allowed" letters differ. Each post passes here with all its
// headers, so isNear first compares how often each letter occurs: one change of a letter changes at
// most two of these counts.
func isNear(a, b string, allowed int) bool {
	if max(len(a)-len(b), len(b)-len(a)) > allowed {
		return false
	}

	var counts [256]int8
	for i := range len(a) {
		counts[a[i]]++
	}

	for i := range len(b) {
		counts[b[i]]--
	}

	differences := 0
	for _, c := range counts['a' : 'z'+1] {
		differences += int(max(c, -c))
	}

	return differences <= 2*allowed && levenshtein.ComputeDistance(a, b) <= allowed
}

// UnknownNameError returns an error of kind Malformed for a name that is not in known. The argument
// kind says where the name was used, for example "header". The message of the error suggests the
// most similar known name. If no known name is similar, the message lists all known names.
func UnknownNameError(kind, name string, known []string) error {
	return unknownNameError("there is no "+kind+" ", name, "", known)
}

// unknownNameError is UnknownNameError with the beginning of the message. If the name meant is
// known, the message suggests it.
func unknownNameError(begin, name, meant string, known []string) error {
	nearest, distance := "", len(name)
	for _, k := range known {
		// If more than a third of the letters differ, the name is not taken for a misspelt k.
		if d := levenshtein.ComputeDistance(foldName(name), foldName(k)); d < distance &&
			d <= len(k)/3 {
			nearest, distance = k, d
		}
	}

	if meant != "" && slices.Contains(known, meant) {
		nearest = meant
	}

	message := begin + truncateName(name)
	switch {
	case nearest != "":
		message += "; did you mean " + nearest + "?"
	case len(known) > 0:
		message += "; possible are " + strings.Join(known, ", ")
	}

	return MalformedError(message)
}

// foldName removes case, hyphens and underscores from a name, so that Weir-DeliverAt and
// weir_deliver_at equal Weir-Deliver-At.
func foldName(name string) string {
	folded := make([]byte, 0, 64) // usually on the stack
	for i := range len(name) {
		if name[i] != '-' && name[i] != '_' {
			folded = append(folded, name[i])
		}
	}
	return strings.ToLower(string(folded))
}

// truncateName shortens a long name, because the error's message repeats the name.
func truncateName(name string) string {
	const most = 60
	if len(name) > most {
		return strings.ToValidUTF8(name[:most], "") + "…"
	}
	return name
}
