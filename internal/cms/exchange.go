package cms

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"weir/internal/signin"
	"weir/internal/weir"
)

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
