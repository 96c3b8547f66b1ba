package receive

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"weir/internal/weir"
)

// options are what a request asks for beside its body.
type options struct {
	due  time.Time     // zero = as the message says, or now
	from string        // where due stands: header or query
	wait time.Duration // how long the answer may be held
}

// readOptions reads headers and query. A header goes before the query.
func readOptions(r *http.Request, now time.Time) (options, error) {
	o := options{wait: prefersWait(r.Header.Values("Prefer"))}
	at, after := r.Header.Values("Weir-Deliver-At"), r.Header.Values("Weir-Deliver-After")
	names := [2]string{"Weir-Deliver-At", "Weir-Deliver-After"}
	o.from = "header"
	if len(at)+len(after) == 0 {
		query := r.URL.Query()
		at, after = query["deliverAt"], query["deliverAfter"]
		names = [2]string{"deliverAt", "deliverAfter"}
		o.from = "query"
	}
	var err error
	switch {
	case len(at)+len(after) == 0:
		o.from = ""
	case len(at)+len(after) > 1:
		return o, malformed(names[0] + " or " + names[1] + " must stand once")
	case len(at) == 1:
		if o.due, err = weir.ParseMoment(at[0]); err != nil {
			return o, malformed(names[0] + ": " + err.Error())
		}
	default:
		if o.due, err = weir.ParseDelay(after[0], now); err != nil {
			return o, malformed(names[1] + ": " + err.Error())
		}
	}
	return o, nil
}

func malformed(message string) error {
	return &weir.Error{Kind: weir.Malformed, Op: "receive", Message: message}
}

// maxWait is the longest an answer is held.
const maxWait = 60 * time.Second

// prefersWait reads wait from Prefer (RFC 7240). What cannot be read is ignored, as that
// RFC wants it.
func prefersWait(headers []string) time.Duration {
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
