package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"weir/internal/conceal"
)

// maxResponseBody is the largest number of bytes that Weir reads from the body of a response.
const maxResponseBody = 1 << 10

// response is the result of a request.
type response struct {
	accepted bool // 2xx
	gone     bool // 410: the receiver wants no more events
	// the host did not answer, or the answer was 429 or 503: other events should wait
	isAway bool
	// this process cut the request off, so the request does not count as a try
	isCancelled bool
	reason      string        // for the log: why the event was not accepted
	status      int           // 0 = there was no answer
	retryAfter  time.Duration // pause that the receiver asked for; 0 = none
}

// endpoint is the address of a receiver, with the receiver's secret and the client to use.
type endpoint struct {
	url    string
	host   string // name and port of the host
	secret Secret
	client *http.Client
}

// newClient returns a client that follows no redirect.
func newClient(transport http.RoundTripper) *http.Client {
	return &http.Client{Transport: transport, Timeout: requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}
}

// trace is the W3C trace context of the message that an event is about. Both texts can be empty.
type trace struct{ parent, state string }

func (t trace) addTo(header http.Header) {
	if t.parent != "" {
		header.Set("Traceparent", t.parent)
	}
	if t.parent != "" && t.state != "" {
		header.Set("Tracestate", t.state)
	}
}

func (t endpoint) postEvent(ctx context.Context, id string, body []byte, of trace,
	now time.Time) response {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(body))
	if err != nil {
		return response{reason: "the request cannot be built: " + withoutAddress(err)}
	}

	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "Weir")
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	req.Header.Set("Webhook-Signature", t.secret.Sign(id, now, body))
	of.addTo(req.Header)
	resp, err := t.client.Do(req)
	if err != nil {
		return response{isAway: !errors.Is(err, errPrivate), isCancelled: ctx.Err() != nil,
			reason: withoutAddress(err)}
	}
	defer resp.Body.Close()

	// The client can use the connection for another request only if the body was read.
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxResponseBody))

	return classifyResponse(resp, now)
}

func classifyResponse(resp *http.Response, now time.Time) response {
	v := response{status: resp.StatusCode,
		reason:     "the receiver answered " + strconv.Itoa(resp.StatusCode),
		retryAfter: parseRetryAfter(resp.Header.Get("Retry-After"), now)}
	switch {
	case resp.StatusCode/100 == 2:
		v.accepted = true
	case resp.StatusCode == http.StatusGone:
		v.gone = true
	case resp.StatusCode == http.StatusTooManyRequests,
		resp.StatusCode == http.StatusServiceUnavailable:
		v.isAway = true
	case resp.StatusCode/100 == 3:
		v.reason = fmt.Sprintf("the receiver answered %d, and redirects are not followed",
			resp.StatusCode)
	}

	return v
}

// parseRetryAfter parses the header Retry-After, which has a number of seconds or a date. It
// returns 0 if the header has neither.
func parseRetryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(strings.TrimSpace(header), 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}

	if at, err := http.ParseTime(header); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// withoutAddress returns the error's text without the address, because the address can contain a
// secret. A wrong address of a proxy loses its user info.
func withoutAddress(err error) string {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	return conceal.HideAddressParts(err.Error())
}
