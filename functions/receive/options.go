package receive

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"weir/internal/weir"
)

// requestOptions are the parts of a request beside its body.
type requestOptions struct {
	dueAt   time.Time     // zero = the message's own due time, or now
	dueFrom string        // "header", "query", or "" if the request has no due time
	wait    time.Duration // how long the client lets the answer wait for the outcome
}

// readOptions parses headers and query. A header takes precedence over the query.
func readOptions(r *http.Request, now time.Time) (requestOptions, error) {
	o := requestOptions{wait: readPreferWait(r.Header.Values("Prefer"))}
	at, after := r.Header.Values("Weir-Deliver-At"), r.Header.Values("Weir-Deliver-After")
	names := [2]string{"Weir-Deliver-At", "Weir-Deliver-After"}
	o.dueFrom = "header"
	if len(at)+len(after) == 0 {
		query := r.URL.Query()
		at, after = query["deliverAt"], query["deliverAfter"]
		names = [2]string{"deliverAt", "deliverAfter"}
		o.dueFrom = "query"
	}
	var err error
	switch {
	case len(at)+len(after) == 0:
		o.dueFrom = ""
	case len(at)+len(after) > 1:
		return o, malformedError(names[0] + " or " + names[1] + " must stand once")
	case len(at) == 1:
		if o.dueAt, err = weir.ParseMoment(at[0]); err != nil {
			return o, malformedError(names[0] + ": " + err.Error())
		}
	default:
		if o.dueAt, err = weir.ParseDelay(after[0], now); err != nil {
			return o, malformedError(names[1] + ": " + err.Error())
		}
	}
	return o, nil
}

func malformedError(message string) error {
	return &weir.Error{Kind: weir.Malformed, Op: "receive", Message: message}
}

// maxWait limits the time that an answer waits for the message's outcome.
const maxWait = 60 * time.Second

// readPreferWait returns the preference "wait" of the header Prefer (RFC 7240), at most maxWait. It ignores a
// malformed value, as the RFC requires.
func readPreferWait(headers []string) time.Duration {
	for preference := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		preference, _, _ = strings.Cut(preference, ";")
		name, value, _ := strings.Cut(preference, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "wait") {
			continue
		}
		seconds, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 31)
		if err != nil {
			return 0
		}
		return min(time.Duration(seconds)*time.Second, maxWait)
	}
	return 0
}
