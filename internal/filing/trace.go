package filing

import (
	"net/http"
	"regexp"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

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
