package receive

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/filing"
	"weir/internal/httpio"
	"weir/internal/upstream"
)

// requestOptions is a parsed request without its body.
type requestOptions struct {
	filing.Options
	sender  *upstream.Verification // nil = every caller may send
	dueFrom string                 // "header" or "query"; "" if the due time is in neither
	// the longest wait for the final stage of the message; 0 = no wait
	wait time.Duration
}

// readOptions parses headers and query. A due time in a header takes precedence over a due time in
// the query.
func (f *Function) readOptions(r *http.Request) (requestOptions, error) {
	o := requestOptions{wait: readPreferWait(r.Header.Values("Prefer"))}
	query, err := f.readQuery(r)
	if err != nil {
		return o, err
	}

	now := f.Now()
	var senderHeaders []string
	if f.Upstreams != nil {
		senderHeaders = upstream.Headers()
	}

	if o.Options, err = f.Filer.ReadOptions(r.Header, now, senderHeaders...); err != nil {
		return o, err
	}

	if err := f.readSender(r, query, &o); err != nil {
		return o, err
	}

	if !o.DueAt.IsZero() {
		o.dueFrom = "header"
		return o, nil
	}

	o.DueAt, err = filing.ReadDueTime("deliverAt", query["deliverAt"], "deliverAfter",
		query["deliverAfter"], now)
	if !o.DueAt.IsZero() {
		o.dueFrom = "query"
	}

	return o, err
}

// knownParameters are the query parameters of a post. The function reads "deliverAt" and
// "deliverAfter". The platform reads "code" (a key of the Functions host) and "clientId" (the name
// of this key).
var knownParameters = []string{"deliverAt", "deliverAfter", "code", "clientId"}

// readSender begins the verification of the sender, which fileMessage finishes. If the request has
// the header webhook-id, its value becomes the idempotency key.
func (f *Function) readSender(r *http.Request, query url.Values, o *requestOptions) error {
	if f.Upstreams == nil {
		return nil
	}

	c, err := upstream.ReadCredentials(r.Header, query[upstream.Parameter])
	if err != nil {
		return err
	}

	if o.IdempotencyKey, err = c.IdempotencyKey(o.IdempotencyKey); err != nil {
		return err
	}

	o.sender, err = f.Upstreams.Verify(c)

	return err
}

// readQuery returns the query. It refuses unknown parameters.
func (f *Function) readQuery(r *http.Request) (url.Values, error) {
	if r.URL.RawQuery == "" {
		return nil, nil
	}

	known := knownParameters
	if f.Upstreams != nil {
		known = append(slices.Clip(known), upstream.Parameter)
	}

	query := r.URL.Query()
	for name := range query {
		if !slices.Contains(known, name) && !httpio.IsHostParameter(name) {
			return nil, filing.UnknownNameError("query parameter", name, known)
		}
	}

	return query, nil
}

// maxWait is the longest wait for which a client can ask; see readPreferWait.
const maxWait = 60 * time.Second

// readPreferWait returns the preference "wait" of the header Prefer (RFC 7240), at most maxWait. If
// there is none, the result is 0. readPreferWait ignores a malformed value, as the RFC requires.
func readPreferWait(headers []string) time.Duration {
	for preference := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		preference, _, _ = strings.Cut(preference, ";")
		name, value, _ := strings.Cut(preference, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "wait") {
			continue
		}

		seconds, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 31)

		// with ErrRange, seconds is the largest number
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return 0
		}

		return min(time.Duration(seconds)*time.Second, maxWait)
	}

	return 0
}
