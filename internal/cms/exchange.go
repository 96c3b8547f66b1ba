package cms

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"weir/internal/weir"
)

// NewTransport returns a transport for requests to the CMS. If config is nil, TLS has its default settings.
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

// Exchange sends a request and returns the answer. Without an answer it returns nil and the result of the attempt.
// limited must be a child of ctx that also ends at the timeout. If ctx ends, the outcome is none.
//
// Exchange sends the request a second time only if a reused connection was closed before a byte was written.
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
			return resp, weir.Result{}
		}
		if try == 0 && limited.Err() == nil && sent.isStaleConn() {
			continue
		}
		return nil, failureResult(ctx, limited, err, sent.hasBegun.Load())
	}
}

type sendProgress struct {
	isReused atomic.Bool // the request uses a connection that an earlier request opened
	hasBegun atomic.Bool // bytes of the request may have reached the CMS
}

// isStaleConn reports, after a failure, whether a reused connection was closed before a byte of the request was
// written.
func (p *sendProgress) isStaleConn() bool { return p.isReused.Load() && !p.hasBegun.Load() }

func (p *sendProgress) newTrace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotConn:          func(info httptrace.GotConnInfo) { p.isReused.Store(info.Reused) },
		WroteHeaderField: func(string, []string) { p.hasBegun.Store(true) },
		WroteHeaders:     func() { p.hasBegun.Store(true) },
	}
}

func failureResult(ctx, limited context.Context, err error, began bool) weir.Result {
	reason := errorText(err)
	switch {
	case ctx.Err() != nil:
		return weir.Result{Outcome: weir.OutcomeNone, Reason: "cut off", Unanswered: began}
	case limited.Err() != nil && began:
		return weir.Result{Outcome: weir.OutcomeRetry, Reason: "no answer within the timeout", Unanswered: true}
	case limited.Err() != nil:
		return weir.Result{Outcome: weir.OutcomeUnavailable, Reason: "no connection within the timeout"}
	case !began:
		return weir.Result{Outcome: weir.OutcomeUnavailable, Reason: reason} // connection refused, DNS or TLS error
	}
	return weir.Result{Outcome: weir.OutcomeRetry, Reason: "connection lost: " + reason, Unanswered: true}
}

// errorText returns an error as one line without the address of the request. The query of the address may contain a
// key, and callers of Weir's API can read this text in a message's status.
func errorText(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return SingleLine(err.Error())
}
