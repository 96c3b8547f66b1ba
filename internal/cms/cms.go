// Package cms has the rules of one request to the CMS: its headers, how often it is sent, the
// outcome that follows from the answer, and the secrets that no text of the answer may repeat.
// Package steps makes the attempts.
//
// Requests have no GetBody, so net/http cannot repeat a request on its own. Exchange repeats a
// request at most once, and only if a reused connection was closed before a byte was written.
package cms

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"math"
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

	"weir/internal/signin"
	"weir/internal/weir"
)

const (
	// keptBody is the largest number of bytes that Weir stores of an answer.
	keptBody = 2 << 10
	// maxHidden is the largest number of bytes in which Weir looks for secrets and redacted values.
	// It is larger than keptBody, because a text becomes shorter if values in it are hidden.
	maxHidden = 16 << 10
)

// CheckTarget returns an error if the settings delivery.url or delivery.headers are wrong. The
// error does not contain the address, because an address may contain a password or a key.
func CheckTarget(address string, headers map[string]string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		return weir.NewSettingProblem("delivery.url",
			"is not an absolute http or https address, such as https://cms.example/api")
	case strings.ContainsAny(u.Host, "{}") ||
		(u.User != nil && strings.ContainsAny(u.User.String(), "{}")):
		return weir.NewSettingProblem("delivery.url",
			"what comes from a message may stand in the path or the query only, not in the host").
			OfText()

	case strings.ContainsAny(Placeholder.ReplaceAllString(address, ""), "{}"):
		return weir.NewSettingProblem("delivery.url",
			"only {key}, {contract}, {version} and {id} are filled in, and no other {…}").OfText()
	}

	return checkHeaders(headers)
}

// Placeholder matches a placeholder of delivery.url. Its first group is the name of a value of the
// message.
var Placeholder = regexp.MustCompile(`\{(key|contract|version|id)\}`)

// checkHeaders returns an error with a line for each wrong header. A header is wrong if its name or
// value is malformed, or if net/http or Weir sets the header. The error contains no values, because
// values may be secrets.
func checkHeaders(headers map[string]string) error {
	var problems []error
	addProblem := func(format string, args ...any) {
		problems = append(problems,
			weir.NewSettingProblem("delivery.headers", format, args...).OfText())
	}

	for _, name := range slices.Sorted(maps.Keys(headers)) {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !signin.IsHeaderName(name):
			addProblem("%q is not the name of a header", name)
		case slices.Contains([]string{"Host", "Content-Length", "Transfer-Encoding", "Trailer"},
			canonical):
			addProblem("%s cannot be set", name)
		case slices.Contains([]string{"Content-Type", "Traceparent", "Tracestate", "Idempotency-Key"}, canonical) ||
			strings.HasPrefix(canonical, "Weir-"):
			addProblem("%s comes from the message", name)

		case strings.ContainsFunc(headers[name],
			func(r rune) bool { return (r < ' ' && r != '\t') || r == 0x7f }):
			addProblem("the value of %s has a line break or another control character in it",
				name)
		}
	}

	return errors.Join(problems...)
}

// Rules are a contract's rules for answers.
type Rules struct {
	// the body of a 2xx answer must match; nil = any body except a page of HTML
	Success *regexp.Regexp
	Means   map[int]weir.Outcome // outcome by status, in place of the default; no effect on 2xx
	Hide    func(string) string  // hides secrets in the texts that are stored; nil = hides nothing
	// ReadsBody means that the caller reads the body of a 2xx answer as text or XML. Then a page of
	// HTML can be the answer that it expects.
	ReadsBody bool
	Reads     bool // the request changes nothing in the CMS: its answer does not judge the message
}

// Classify returns the result of an answer. The first line that applies determines the outcome:
//
//	2xx that satisfies the success rule        delivered
//	2xx with a page of HTML, without the rule  retry, see Answer.IsForeignPage
//	2xx in doubt, without the rule             retry, see IsSuccess and Answer.FindDoubt
//	other 2xx                                  retry
//	Weir-Retry: never                          rejected
//	a status that the contract defines         as defined
//	another status                             see JudgeStatus
func Classify(a Answer, rules Rules, now time.Time) weir.Result {
	status, hide, text := a.Status, rules.Hide, a.Text()
	if hide == nil {
		hide = func(text string) string { return text }
	}

	shown := hide(Shorten(text))
	words := func() string { return hide(Shorten(a.Words())) }
	r := weir.Result{Status: status, Body: KeptText(shown),
		Reason:     answerReason(status, "", shown),
		RetryAfter: ParseRetryAfter(a.Header.Get("Retry-After"), now),
		Unanswered: slices.Contains(unansweredStatuses, status)}

	if status/100 != 2 {
		r.Reason = answerReason(status, hide(redirectTarget(a.Header.Get("Location"))), words())
	}

	means, isDefined := rules.Means[status]
	switch {
	case status/100 == 2 && rules.Success != nil && !rules.Success.MatchString(text):
		r.Outcome, r.Reason = weir.OutcomeRetry,
			SingleLine(fmt.Sprintf("%d, but the answer does not match success: %s",
				status, words()))

	case status/100 == 2 && rules.Success == nil && !rules.ReadsBody && a.IsForeignPage():
		r.Outcome, r.Reason = weir.OutcomeRetry, foreignPageReason(status, words())
	case status/100 == 2 && rules.Success == nil && !rules.ReadsBody && !IsSuccess(status):
		r.Outcome, r.Reason = weir.OutcomeRetry,
			doubtReason(status, "this status alone is no success", words())
	case status/100 == 2 && rules.Success == nil && !rules.ReadsBody && a.FindDoubt() != "":
		r.Outcome, r.Reason = weir.OutcomeRetry, doubtReason(status, a.FindDoubt(), words())
	case status/100 == 2:
		r.Outcome = weir.OutcomeDelivered
	case strings.EqualFold(a.Header.Get("Weir-Retry"), "never"):
		r.Outcome = weir.OutcomeRejected
	case isDefined:
		r.Outcome = means
	default:
		r.Outcome, r.Refused = JudgeStatus(status, a.Content(), rules.Reads)
		if r.Refused && !rules.Reads && a.Content() == NoWords &&
			slices.Contains(contentStatuses, status) {
			r.Reason += fmt.Sprintf(
				", without a word; if the CMS answers so to a wrong message, write answers: "+
					"{ %d: rejected } in the contract", status)
		}
	}

	return r
}

// PageOfSuccess is the advice in a reason if a single request is answered by a page of HTML.
const PageOfSuccess = "; if the CMS answers so when it has saved, write success: '<text of the page>' in the contract"

// maxPageWords limits the bytes of a page's text in front of an advice.
const maxPageWords = 140

// foreignPageReason returns the reason for a 2xx answer to a single request that is a page of HTML.
func foreignPageReason(status int, words string) string {
	return SingleLine(fmt.Sprintf("%d, but %s: %s", status, ForeignPage, CutWords(words)) +
		PageOfSuccess)
}

// doubtReason returns the reason for a 2xx answer to a single request that is no success.
func doubtReason(status int, doubt, words string) string {
	if words != "" {
		doubt += ": " + CutWords(words)
	}
	return SingleLine(fmt.Sprintf("%d, but %s", status, doubt) + adviceOfSuccess)
}

// adviceOfSuccess is the advice in a reason if a 2xx answer to a single request is in doubt.
const adviceOfSuccess = "; if the CMS answers so when it has saved, write a success for this answer in the contract"

// CutWords cuts the text of a page to a length that leaves room for an advice in the reason.
func CutWords(words string) string {
	if len(words) <= maxPageWords {
		return words
	}
	return strings.ToValidUTF8(words[:maxPageWords], "") + "…"
}

// maxRetryAfter limits the Retry-After of the CMS.
const maxRetryAfter = time.Hour

// ParseRetryAfter parses a Retry-After header, which is a number of seconds or a date. It rounds a
// fraction of a second up. It returns at most an hour. If the value is invalid or not in the
// future, it returns 0.
func ParseRetryAfter(value string, now time.Time) time.Duration {
	if value = strings.TrimSpace(value); value == "" {
		return 0
	}

	if n, err := strconv.ParseFloat(value, 64); (err == nil || errors.Is(err, strconv.ErrRange)) &&
		n > 0 {
		return time.Duration(math.Ceil(min(n, maxRetryAfter.Seconds()))) * time.Second
	}

	if at, err := http.ParseTime(value); err == nil && at.After(now) {
		return min(at.Sub(now), maxRetryAfter)
	}

	return 0
}

// answerReason describes an answer in one line. The line of a redirect has the target instead of
// the body.
func answerReason(status int, target, body string) string {
	words := fmt.Sprintf("%d %s", status, http.StatusText(status))
	if status/100 == 3 {
		return SingleLine(words + ": redirected" + target + ", which is not followed")
	}

	if len(body) > keptBody {
		words += ": " + body[:keptBody] + "…"
	} else if body != "" {
		words += ": " + body
	}

	return SingleLine(words)
}

// maxReason limits the bytes of a reason. The "…" that SingleLine appends to a cut text is not
// counted.
const maxReason = 300

// SingleLine returns a text as one line of valid UTF-8 without control characters. It cuts a text
// of more than 300 bytes, and appends "…".
func SingleLine(s string) string {
	s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "\uFFFD"),
		func(r rune) bool { return r < 0x20 || (r >= 0x7f && r < 0xa0) || r == ' ' }), " ")
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "") + "…"
	}
	return s
}

// Shorten cuts a text to the length in which Weir looks for secrets and redacted values, and marks
// the cut by "…". Texts are hidden before they are cut to the length in which they are stored,
// because a part of a value is hard to find.
func Shorten(text string) string {
	if len(text) <= maxHidden {
		return text
	}
	return text[:maxHidden] + "…"
}

// KeptText returns the part of an answer's body that Weir stores: the first 2 KiB, as valid UTF-8.
func KeptText(body string) string {
	return strings.ToValidUTF8(body[:min(len(body), keptBody)], "\uFFFD")
}

// idempotencyKey returns the message's id, with the number of replays appended if the message was
// replayed. Each replay needs a new Idempotency-Key: the body can differ, and the CMS may have
// stored the earlier error under the old Idempotency-Key.
func idempotencyKey(m *weir.Message) string {
	if m.Replays == 0 {
		return m.Public().String()
	}
	return m.Public().String() + "." + strconv.Itoa(m.Replays)
}

// SetMessageHeaders sets the headers that describe a delivery.
func SetMessageHeaders(req *http.Request, d weir.Delivery) {
	m := d.Message
	setHeader(req, "Traceparent", m.TraceParent)
	setHeader(req, "Tracestate", m.TraceState)
	setHeader(req, "Idempotency-Key", idempotencyKey(m))
	setHeader(req, "Weir-Key", url.PathEscape(m.Key))
	setHeader(req, "Weir-Contract", url.PathEscape(m.Contract))
	setHeader(req, "Weir-Sequence", strconv.FormatInt(m.ID.Seq, 10))
	setHeader(req, "Weir-Fence", strconv.FormatInt(d.Fence, 10))
	setHeader(req, "Weir-Attempt", strconv.Itoa(d.Attempt))
}

func setHeader(req *http.Request, name, value string) {
	if value != "" {
		req.Header.Set(name, value)
	}
}

// EscapeSegment escapes a value as one path segment. If the value has only dots, EscapeSegment
// escapes the dots, because segments such as ".." would change the path.
func EscapeSegment(value string) string {
	if strings.Trim(value, ".") == "" {
		return strings.ReplaceAll(value, ".", "%2E")
	}
	return url.PathEscape(value)
}

// NewTransport returns a transport for requests to the CMS. If config is nil, TLS has its default
// settings.
func NewTransport(config *tls.Config) *http.Transport {
	return &http.Transport{
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		Proxy:                 http.ProxyFromEnvironment,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		TLSClientConfig:       config,
	}
}

// NewHTTPClient returns a client that follows no redirect.
func NewHTTPClient(transport http.RoundTripper) *http.Client {
	noRedirects := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: transport, CheckRedirect: noRedirects}
}

// Exchange sends a request and returns the answer. Without an answer it returns nil and the result
// of the attempt. limited must be a child of ctx that also ends at the timeout. If ctx ends, the
// outcome is none.
//
// Exchange sends the request a second time only if a reused connection was closed before a byte was
// written.
func Exchange(ctx, limited context.Context, client *http.Client,
	newRequest func(context.Context) (*http.Request, error)) (*http.Response, weir.Result) {
	for try := 0; ; try++ {
		sent := &sendProgress{}
		req, err := newRequest(httptrace.WithClientTrace(limited, sent.newTrace()))
		if err != nil {
			return nil, weir.Result{Outcome: weir.OutcomeRejected,
				Reason: "the request cannot be built: " + errorText(err)}
		}

		resp, err := client.Do(req)
		if err == nil {
			endSwitchedProtocol(resp)
			return resp, weir.Result{}
		}

		if try == 0 && limited.Err() == nil && sent.isStaleConn() {
			continue
		}

		return nil, failureResult(ctx, limited, err, sent)
	}
}

// endSwitchedProtocol closes the connection of an answer 101, whose body is the connection itself.
// Weir asks for no other protocol, and a read of that body would not end with the attempt.
func endSwitchedProtocol(resp *http.Response) {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body.Close()
		resp.Body = http.NoBody
	}
}

// sendProgress is how far a request has come.
type sendProgress struct {
	seeksConn atomic.Bool // the transport has accepted the request, and looks for a connection
	hasConn   atomic.Bool // the request has a connection: DNS, TLS and the proxy have succeeded
	isReused  atomic.Bool // the request uses a connection that an earlier request opened
	hasBegun  atomic.Bool // bytes of the request may have reached the CMS
}

// isStaleConn reports, after a failure, whether a reused connection was closed before a byte of the
// request was written.
func (p *sendProgress) isStaleConn() bool { return p.isReused.Load() && !p.hasBegun.Load() }

func (p *sendProgress) newTrace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { p.seeksConn.Store(true) },
		GotConn: func(info httptrace.GotConnInfo) {
			p.hasConn.Store(true)
			p.isReused.Store(info.Reused)
		},
		WroteHeaderField: func(string, []string) { p.hasBegun.Store(true) },
		WroteHeaders:     func() { p.hasBegun.Store(true) },
	}
}

// refusals are parts of the errors with which net/http refuses a request. It has no types for these
// errors.
var refusals = []string{"request header list", "invalid header", "invalid HTTP header",
	"invalid trailer", "invalid method",
	"invalid Host", "invalid request", "malformed", "unsupported protocol scheme", "no Host"}

// isRequestRefused reports whether the client itself refused the request, before it wrote a byte:
// for example because a header has a line break, or because over HTTP/2 the headers are larger than
// the CMS accepts. Another attempt would fail, too. If the sign-in or the connection failed, the
// client did not refuse the request.
func (p *sendProgress) isRequestRefused(err error) bool {
	var signIn *signin.Error
	if isConnecting := p.seeksConn.Load() && !p.hasConn.Load(); isConnecting || p.hasBegun.Load() ||
		errors.As(err, &signIn) {
		return false
	}
	return slices.ContainsFunc(refusals,
		func(part string) bool { return strings.Contains(err.Error(), part) })
}

func failureResult(ctx, limited context.Context, err error, sent *sendProgress) weir.Result {
	reason, began := errorText(err), sent.hasBegun.Load()
	switch {
	case ctx.Err() != nil:
		return weir.Result{Outcome: weir.OutcomeNone, Reason: "cut off", Unanswered: began}
	case limited.Err() != nil && began:
		return weir.Result{Outcome: weir.OutcomeRetry, Reason: "no answer within the timeout",
			Unanswered: true}
	case limited.Err() != nil:
		return weir.Result{Outcome: weir.OutcomeUnavailable,
			Reason: "no connection within the timeout"}
	case sent.isRequestRefused(err):
		return weir.Result{Outcome: weir.OutcomeRejected,
			Reason: "the request cannot be sent: " + reason}
	case !began:
		// connection refused, DNS, TLS, sign-in
		return weir.Result{Outcome: weir.OutcomeUnavailable, Reason: reason}
	}

	return weir.Result{Outcome: weir.OutcomeRetry, Reason: "connection lost: " + reason,
		Unanswered: true}
}

// errorText returns an error as one line without the address of the request. The query of the
// address may contain a key, and callers of Weir's API can read this text in a message's status.
func errorText(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return SingleLine(err.Error())
}
