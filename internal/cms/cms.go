// Package cms writes messages to the CMS: it makes the HTTP request of a delivery and
// tells from what comes back which outcome the attempt had.
//
// A request is sent once. It has no GetBody, so net/http cannot send it again by itself;
// only where a kept connection turned out to be closed before a byte was written is it
// tried once more, on a fresh one.
package cms

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"weir/internal/weir"
)

// Config says where and how to write.
type Config struct {
	URL          string // {key}, {contract}, {version}, {id} in path and query are filled in, escaped
	Method       string
	Headers      map[string]string
	Timeout      time.Duration                   // of one attempt
	SuccessRules map[string]*regexp.Regexp       // by contract: what the body of a 2xx must match
	Answers      map[string]map[int]weir.Outcome // by contract: what a status means, if it differs from Classify
	Now          func() time.Time
	Transport    http.RoundTripper // nil = the default of this package
}

// Client makes attempts. Safe for concurrent use.
type Client struct {
	cfg    Config
	client *http.Client
}

const (
	// maxBody is how much of an answer is read; past it the connection is given up.
	maxBody = 64 << 10
	// keptBody is how much of it an attempt's record keeps.
	keptBody = 2 << 10
)

// New checks the settings and makes a Client. Its errors do not repeat the address, which
// may hold a password or a key.
func New(cfg Config) (*Client, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, errors.New("cms: delivery.url is not an absolute http or https address, such as https://cms.example/api")
	}
	if strings.ContainsAny(u.Host, "{}") || (u.User != nil && strings.ContainsAny(u.User.String(), "{}")) {
		return nil, errors.New("cms: what comes from a message may stand in the path or the query of delivery.url only, not in its host")
	}
	if strings.ContainsAny(placeholders.ReplaceAllString(cfg.URL, ""), "{}") {
		return nil, errors.New("cms: of delivery.url, only {key}, {contract}, {version} and {id} are filled in, and no other {…}")
	}
	if err := checkHeaders(cfg.Headers); err != nil {
		return nil, err
	}
	if cfg.Transport == nil {
		cfg.Transport = &http.Transport{
			DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			Proxy:                 http.ProxyFromEnvironment,
			ForceAttemptHTTP2:     true,
			MaxIdleConnsPerHost:   64,
			IdleConnTimeout:       90 * time.Second,
			TLSHandshakeTimeout:   10 * time.Second,
			ExpectContinueTimeout: time.Second,
		}
	}
	noRedirects := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{cfg: cfg, client: &http.Client{Transport: cfg.Transport, CheckRedirect: noRedirects}}, nil
}

var (
	placeholders = regexp.MustCompile(`\{(key|contract|version|id)\}`)
	headerName   = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")
)

// checkHeaders names every header that could not be sent, or would not be as it stands in
// the settings: net/http writes some by itself, and we do others. Values may be secrets.
func checkHeaders(headers map[string]string) error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !headerName.MatchString(name):
			problems = append(problems, fmt.Errorf("cms: delivery.headers: %q is not the name of a header", name))
		case slices.Contains([]string{"Host", "Content-Length", "Transfer-Encoding", "Trailer"}, canonical):
			problems = append(problems, fmt.Errorf("cms: delivery.headers: %s cannot be set", name))
		case slices.Contains([]string{"Content-Type", "Traceparent", "Tracestate", "Idempotency-Key"}, canonical) || strings.HasPrefix(canonical, "Weir-"):
			problems = append(problems, fmt.Errorf("cms: delivery.headers: %s comes from the message", name))
		case strings.ContainsFunc(headers[name], func(r rune) bool { return (r < ' ' && r != '\t') || r == 0x7f }):
			problems = append(problems, fmt.Errorf("cms: delivery.headers: the value of %s has a line break or another control character in it", name))
		}
	}
	return errors.Join(problems...)
}

// Send makes one attempt. It ends with the answer, with the attempt's timeout, or when ctx
// ends, which is nobody's fault: the outcome is none then.
func (c *Client) Send(ctx context.Context, d weir.Delivery) weir.Result {
	started := c.cfg.Now()
	r := c.send(ctx, d)
	r.StartedAt, r.Duration = started, c.cfg.Now().Sub(started)
	return r
}

func (c *Client) send(ctx context.Context, d weir.Delivery) weir.Result {
	limited, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	for try := 0; ; try++ {
		sent := &progress{}
		req, err := c.request(httptrace.WithClientTrace(limited, sent.trace()), d)
		if err != nil {
			return weir.Result{Outcome: weir.OutcomeRejected, Reason: "the request cannot be built: " + bare(err)}
		}
		resp, err := c.client.Do(req)
		if err == nil {
			return c.answer(ctx, limited, d, resp)
		}
		if try == 0 && limited.Err() == nil && sent.stale() {
			continue
		}
		return failure(ctx, limited, err, sent.began.Load())
	}
}

// progress notes how far a request came.
type progress struct {
	reused atomic.Bool // it was to go over a kept connection
	began  atomic.Bool // bytes of it may have reached the CMS
}

// stale says that a kept connection was closed before anything of the request was written.
func (p *progress) stale() bool { return p.reused.Load() && !p.began.Load() }

func (p *progress) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotConn:          func(info httptrace.GotConnInfo) { p.reused.Store(info.Reused) },
		WroteHeaderField: func(string, []string) { p.began.Store(true) },
		WroteHeaders:     func() { p.began.Store(true) },
	}
}

// failure tells what came of a request that got no answer.
func failure(ctx, limited context.Context, err error, began bool) weir.Result {
	reason := bare(err)
	switch {
	case ctx.Err() != nil:
		return weir.Result{Outcome: weir.OutcomeNone, Reason: "cut off", Unanswered: began}
	case limited.Err() != nil && began:
		return weir.Result{Outcome: weir.OutcomeRetry, Reason: "no answer within the timeout", Unanswered: true}
	case limited.Err() != nil:
		return weir.Result{Outcome: weir.OutcomeUnavailable, Reason: "no connection within the timeout"}
	case !began:
		return weir.Result{Outcome: weir.OutcomeUnavailable, Reason: reason} // refused, DNS, TLS
	}
	return weir.Result{Outcome: weir.OutcomeRetry, Reason: "connection lost: " + reason, Unanswered: true}
}

// bare is an error on one line, without the address: its query may hold a key, and reasons
// are read by whoever may ask for a message's status.
func bare(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return line(err.Error())
}

// answer reads the response and tells its outcome.
func (c *Client) answer(ctx, limited context.Context, d weir.Delivery, resp *http.Response) weir.Result {
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil && ctx.Err() != nil {
		return weir.Result{Outcome: weir.OutcomeNone, Reason: "cut off", Unanswered: true}
	}
	if err != nil && resp.StatusCode/100 == 2 && c.cfg.SuccessRules[d.Message.Contract] != nil {
		return weir.Result{Outcome: weir.OutcomeRetry, Status: resp.StatusCode, Reason: "the answer broke off", Unanswered: errors.Is(limited.Err(), context.DeadlineExceeded)}
	}
	return Classify(Answer{resp.StatusCode, resp.Header, body},
		Rules{c.cfg.SuccessRules[d.Message.Contract], c.cfg.Answers[d.Message.Contract]}, c.cfg.Now())
}

// Answer is what the CMS said.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Rules are a contract's rules for answers.
type Rules struct {
	Success *regexp.Regexp       // what the body of a 2xx must match; nil = any
	Means   map[int]weir.Outcome // of statuses
}

// Classify tells the outcome of an answer:
//
//	2xx that satisfies the success rule                delivered
//	Weir-Retry: never                                  rejected
//	a status that the contract defines                 as defined
//	2xx that does not, 408, 409, 423, 425, 500, 5xx    retry
//	3xx, 401, 403, 407, 429, 502, 503, 504             unavailable; 403 perhaps for this message alone
//	other 4xx                                          rejected
//
// 408 and 504 say that somebody on the way gave up: the request may still be at work.
func Classify(a Answer, rules Rules, now time.Time) weir.Result {
	status := a.Status
	r := weir.Result{
		Status: status, Body: text(a.Body), Reason: reason(status, a.Header, a.Body),
		RetryAfter: retryAfter(a.Header, now), Unanswered: status == http.StatusRequestTimeout || status == http.StatusGatewayTimeout,
	}
	means, said := rules.Means[status]
	switch {
	case status/100 == 2 && rules.Success != nil && !rules.Success.Match(a.Body):
		r.Outcome, r.Reason = weir.OutcomeRetry, line(fmt.Sprintf("%d, but the answer does not say success: %s", status, a.Body))
	case status/100 == 2:
		r.Outcome = weir.OutcomeDelivered
	case strings.EqualFold(a.Header.Get("Weir-Retry"), "never"):
		r.Outcome = weir.OutcomeRejected
	case said:
		r.Outcome = means
	case status < 400:
		r.Outcome = weir.OutcomeUnavailable
	default:
		r.Outcome, r.Refused = outcomeOfError(status), status == http.StatusForbidden
	}
	return r
}

func outcomeOfError(status int) weir.Outcome {
	switch status {
	case 401, 403, 407, 429, 502, 503, 504:
		return weir.OutcomeUnavailable
	case 408, 409, 423, 425:
		return weir.OutcomeRetry
	}
	if status >= 500 {
		return weir.OutcomeRetry
	}
	return weir.OutcomeRejected
}

// maxRetryAfter is the longest a CMS can ask us to stay away.
const maxRetryAfter = time.Hour

// retryAfter reads seconds or a date; 0 when there is neither.
func retryAfter(header http.Header, now time.Time) time.Duration {
	value := header.Get("Retry-After")
	if n, err := strconv.Atoi(value); err == nil && n > 0 {
		return time.Duration(min(n, int(maxRetryAfter/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil && at.After(now) {
		return min(at.Sub(now), maxRetryAfter)
	}
	return 0
}

// reason is the CMS's words on one line.
func reason(status int, header http.Header, body []byte) string {
	words := fmt.Sprintf("%d %s", status, http.StatusText(status))
	if status/100 == 3 {
		return line(words + ": redirected, which is not followed: " + header.Get("Location"))
	}
	if len(body) > 0 {
		words += ": " + string(body[:min(len(body), keptBody)])
	}
	return line(words)
}

// maxReason is the length of a reason in bytes.
const maxReason = 300

// line makes one clean line of a text: no control characters, valid UTF-8, not too long.
func line(s string) string {
	s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "\uFFFD"), func(r rune) bool { return r < 0x20 || (r >= 0x7f && r < 0xa0) || r == ' ' }), " ")
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "") + "…"
	}
	return s
}

// text is what is kept of an answer's body.
func text(body []byte) string {
	return strings.ToValidUTF8(string(body[:min(len(body), keptBody)]), "\uFFFD")
}

// idempotencyKey is the message's id. An edited body is no repeat of what was accepted, which
// the CMS may know under the id: its number goes behind that.
func idempotencyKey(m *weir.Message) string {
	if m.Edition == 0 {
		return m.Public().String()
	}
	return m.Public().String() + "." + strconv.Itoa(m.Edition)
}

// request makes the request of a delivery.
func (c *Client) request(ctx context.Context, d weir.Delivery) (*http.Request, error) {
	m := d.Message
	id := m.Public().String()
	target, err := fill(c.cfg.URL, map[string]string{"key": m.Key, "contract": m.Contract, "version": m.Version, "id": id})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, c.cfg.Method, target, bytes.NewReader(m.Body))
	if err != nil {
		return nil, err
	}
	req.GetBody = nil
	for name, value := range c.cfg.Headers {
		req.Header.Set(name, value)
	}
	for name, value := range map[string]string{
		"Content-Type": m.ContentType, "Traceparent": m.TraceParent, "Tracestate": m.TraceState, "Idempotency-Key": idempotencyKey(m), "Weir-Key": url.PathEscape(m.Key), "Weir-Contract": url.PathEscape(m.Contract),
		"Weir-Sequence": strconv.FormatInt(m.ID.Seq, 10), "Weir-Fence": strconv.FormatInt(d.Fence, 10), "Weir-Attempt": strconv.Itoa(d.Attempt),
	} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	return req, nil
}

// fill puts a message's values into the path and the query of an address.
func fill(address string, values map[string]string) (string, error) {
	path, query, hasQuery := strings.Cut(address, "?")
	for name, value := range values {
		path = strings.ReplaceAll(path, "{"+name+"}", escapeSegment(value))
		query = strings.ReplaceAll(query, "{"+name+"}", url.QueryEscape(value))
	}
	if hasQuery {
		path += "?" + query
	}
	if _, err := url.Parse(path); err != nil {
		return "", fmt.Errorf("address: %w", err)
	}
	return path, nil
}

// escapeSegment makes a value one path segment. A segment of dots alone would climb.
func escapeSegment(value string) string {
	if strings.Trim(value, ".") == "" {
		return strings.ReplaceAll(value, ".", "%2E")
	}
	return url.PathEscape(value)
}
