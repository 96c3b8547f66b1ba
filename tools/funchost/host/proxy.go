package host

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"
)

const headerProxyID = "X-Ms-Invocation-Id"

var (
	errAborted    = errors.New("the answer broke off on its way to the client")
	errClientLeft = errors.New(
		"the client disconnected while the function was processing the request")
)

// proxyRequest passes the request to the handler, and streams the answer to the client. The real
// host does so if host.json sets enableProxyingHttpRequest.
func (c caller) proxyRequest(w http.ResponseWriter, r *http.Request, f *function,
	sent requestTarget) {
	id, start := newGUID(), c.host.console.now()
	c.reportStart(f, id)
	isAsked := false
	err := c.bufferBody(w, r)
	if err == nil {
		err = c.callWithTimeout(func(life context.Context, client *http.Client) error {
			isAsked = true
			// ends if the client disconnects or the instance ends
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(life, cancel)()
			return c.streamExchange(w, r.WithContext(ctx), sent, id, client)
		})
		if err != nil && r.Context().Err() != nil {
			err = errClientLeft
		}
	}

	c.reportProxied(f.name, id, start, err)

	switch {
	case errors.Is(err, errAborted):
		panic(http.ErrAbortHandler) // the client must notice that the answer is incomplete
	case !isAsked:
		w.WriteHeader(http.StatusInternalServerError)
	}
}

func (c caller) reportProxied(name, id string, start time.Time, err error) {
	if errors.Is(err, errClientLeft) {
		c.host.console.logDetail(
			"The client disconnected while the function was processing the request.")
		err = nil
	}
	c.reportEnd(name, id, start, err)
}

// bufferBody reads a body of known length completely before the handler is called. The real host's
// HTTP extension also does so. A chunked body is streamed.
func (c caller) bufferBody(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if r.ContentLength <= 0 {
		return nil
	}

	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	return err
}

// streamExchange sends a request to the handler and streams the answer to the client. If the
// handler gives no answer, the client gets 500. If the client got only a part of the answer,
// streamExchange returns errAborted.
func (c caller) streamExchange(
	w http.ResponseWriter, r *http.Request, sent requestTarget, id string, client *http.Client,
) (err error) {
	defer func() {
		switch v := recover(); {
		case v == http.ErrAbortHandler:
			err = errAborted
		case v != nil:
			panic(v)
		}
	}()

	proxy := &httputil.ReverseProxy{
		Rewrite:       func(p *httputil.ProxyRequest) { c.rewriteRequest(p, sent, id) },
		Transport:     repeatTransport{client.Transport, c.presentTransport},
		FlushInterval: -1, // flush after each write
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, problem error) {
			err = problem
			w.WriteHeader(http.StatusInternalServerError)
		},
	}

	proxy.ServeHTTP(w, r)
	return err
}

// rewriteRequest changes the client's request into the handler's request. ReverseProxy has removed
// the header Forwarded, but the real host passes Forwarded on, so rewriteRequest restores the
// header.
func (c caller) rewriteRequest(p *httputil.ProxyRequest, sent requestTarget, id string) {
	p.Out.URL = c.urlFor(sent.encodePath(), sent.encodeQuery())
	p.Out.Host = p.Out.URL.Host
	p.SetXForwarded()
	if forwarded, ok := p.In.Header["Forwarded"]; ok {
		p.Out.Header["Forwarded"] = forwarded
	}

	p.Out.Header.Del("X-Forwarded-Prefix")
	p.Out.Header.Set(headerID, id)
	p.Out.Header.Set(headerVersion, hostVersion)
	p.Out.Header.Set(headerProxyID, id)
	c.host.addTraceparent(p.Out.Header)
}

// urlFor returns the handler's URL for a path and a query, both already escaped.
func (c caller) urlFor(path, query string) *url.URL {
	u := &url.URL{Scheme: "http", Host: c.hostPort(), RawPath: path, RawQuery: query}
	u.Path, _ = url.PathUnescape(path) // cannot fail for an escaped path
	return u
}

// repeatTransport sends a request up to maxTries times, as the real host does: a request without a
// body if the handler dies or closes the connection before it answers, and any request if the
// handler does not listen. All tries have the same invocation id.
type repeatTransport struct {
	first http.RoundTripper
	// present returns the transport to the process that runs now, or nil if there is none. The
	// process that got the first try may have died.
	present func() http.RoundTripper
}

const (
	maxTries    = 10
	tryPause    = 50 * time.Millisecond
	tryPauseMax = 250 * time.Millisecond
)

// errNoProcess is the error of a try between two processes of the handler.
var errNoProcess = errors.New("no handler process runs")

func (t repeatTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	transport, isEmpty := t.first, r.Body == nil || r.Body == http.NoBody
	for try := 1; ; try++ {
		res, err := tryRequest(transport, r)
		if err == nil || try == maxTries || !isEmpty && !isRefused(err) ||
			!sleepFor(r.Context(), min(time.Duration(try)*tryPause, tryPauseMax)) {
			return res, err
		}

		if isEmpty {
			transport = t.present()
		}
	}
}

func tryRequest(transport http.RoundTripper, r *http.Request) (*http.Response, error) {
	if transport == nil {
		return nil, errNoProcess
	}

	attempt := *r
	if r.Body != nil {
		// the next try needs the body, so the transport must not close it
		attempt.Body = io.NopCloser(r.Body)
	}

	return transport.RoundTrip(&attempt)
}

// isRefused reports whether no process listened on the handler's port.
func isRefused(err error) bool {
	var network *net.OpError
	return errors.As(err, &network) && network.Op == "dial"
}

// presentTransport returns the transport to the process that runs now, or nil if there is none.
func (c caller) presentTransport() http.RoundTripper {
	if _, _, client, _ := c.readState(); client != nil {
		return client.Transport
	}
	return nil
}
