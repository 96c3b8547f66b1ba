package receive

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/filing"
	"weir/internal/upstream"
)

// requestOptions are the parts of a request except its body.
type requestOptions struct {
	filing.Options
	sender  *upstream.Verification // nil = every caller may send
	dueFrom string                 // "header", "query", or "" if neither has a due time
	wait    time.Duration          // the longest time that the answer waits until the message is final; 0 = no wait
}

// readOptions parses headers and query. A due time in a header takes precedence over a due time in the query.
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
	o.DueAt, err = filing.ReadDueTime("deliverAt", query["deliverAt"], "deliverAfter", query["deliverAfter"], now)
	if !o.DueAt.IsZero() {
		o.dueFrom = "query"
	}
	return o, err
}

// knownParameters are the query parameters that a post may have. This function reads "deliverAt" and "deliverAfter".
// The platform reads "code", which is a key, and "clientId", which is the name of the key. The platform leaves both
// in the address.
var knownParameters = []string{"deliverAt", "deliverAfter", "code", "clientId"}

// readSender begins to verify who sent the request. A webhook-id becomes the idempotency key.
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

// readQuery returns the query. It refuses a parameter that neither this function nor the platform reads.
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
		if !slices.Contains(known, name) {
			return nil, filing.UnknownNameError("query parameter", name, known)
		}
	}
	return query, nil
}

// maxWait limits the time for which an answer waits until the message is final.
const maxWait = 60 * time.Second

// readPreferWait returns the preference "wait" of the header Prefer (RFC 7240), at most maxWait; 0 = none. It ignores
// a malformed value, as the RFC requires.
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
