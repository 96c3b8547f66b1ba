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
)

// maxAnswer is how much of an answer is read.
const maxAnswer = 1 << 10

// verdict is what came of a request.
type verdict struct {
	ok         bool
	gone       bool // the receiver wants no more of it
	away       bool // the host, not this event: others need not try for now
	cut        bool // by us: it counts for nothing
	reason     string
	status     int
	retryAfter time.Duration
}

// target is where and how to send.
type target struct {
	url    string
	host   string // and port
	secret Secret
	client *http.Client
}

// newClient makes a client that follows no redirect.
func newClient(transport http.RoundTripper) *http.Client {
	return &http.Client{Transport: transport, Timeout: requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// post sends an event once.
func (t target) post(ctx context.Context, id string, body []byte, now time.Time) verdict {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(body))
	if err != nil {
		return verdict{reason: "the request cannot be built: " + err.Error()}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "Weir")
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	req.Header.Set("Webhook-Signature", t.secret.Sign(id, now, body))
	resp, err := t.client.Do(req)
	if err != nil {
		return verdict{away: !errors.Is(err, errPrivate), cut: ctx.Err() != nil, reason: short(err)}
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer)) // so that the connection can be kept
	return judge(resp, now)
}

func judge(resp *http.Response, now time.Time) verdict {
	v := verdict{status: resp.StatusCode, reason: "the receiver answered " + strconv.Itoa(resp.StatusCode), retryAfter: retryAfter(resp.Header.Get("Retry-After"), now)}
	switch {
	case resp.StatusCode/100 == 2:
		v.ok = true
	case resp.StatusCode == http.StatusGone:
		v.gone = true
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusServiceUnavailable:
		v.away = true
	case resp.StatusCode/100 == 3:
		v.reason = fmt.Sprintf("the receiver answered %d, and redirects are not followed", resp.StatusCode)
	}
	return v
}

// retryAfter reads the header: seconds, or a date.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(strings.TrimSpace(header), 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// short is an error without the address, which may be a secret.
func short(err error) string {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	return err.Error()
}
