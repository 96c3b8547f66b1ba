package receive

import (
	"net/http"
	"regexp"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// parent is a W3C traceparent of version 00 (https://www.w3.org/TR/trace-context/).
var parent = regexp.MustCompile(`^00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}$`)

const (
	noTrace = "00000000000000000000000000000000"
	noSpan  = "0000000000000000"
)

// maxState is how long a tracestate may be that is kept: what everybody has to pass on
// (https://www.w3.org/TR/trace-context/#tracestate-limits).
const maxState = 512

// traceContext gives traceparent and tracestate as they came. An invalid traceparent counts
// as none, and so does a tracestate that is invalid or has no trace.
func traceContext(h http.Header) (traceParent, traceState string) {
	traceParent = h.Get("Traceparent")
	m := parent.FindStringSubmatch(traceParent)
	if m == nil || m[1] == noTrace || m[2] == noSpan {
		return "", ""
	}
	state, err := trace.ParseTraceState(strings.Join(h.Values("Tracestate"), ","))
	if err != nil {
		return traceParent, ""
	}
	return traceParent, shorten(state).String()
}

// shorten drops whole entries, the oldest first, which stand last.
func shorten(state trace.TraceState) trace.TraceState {
	for len(state.String()) > maxState {
		var oldest string
		state.Walk(func(key, _ string) bool { oldest = key; return true })
		state = state.Delete(oldest)
	}
	return state
}
