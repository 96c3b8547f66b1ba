package host

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// contentHeaders lists the headers that a forwarding host drops, because .NET does not accept them
// in a request.
var contentHeaders = []string{
	"Allow", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Location",
	"Content-Md5",
	"Content-Range", "Expires", "Last-Modified",
}

// hopHeaders lists the headers that concern only one connection.
var hopHeaders = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

var errChunked = errors.New("a chunked request body cannot be forwarded")

// forwardRequest builds a new request from the client's request, and sends the new request to the
// handler. It relays the answer when the answer is complete. The handler does not notice if the
// client disconnects.
func (c caller) forwardRequest(w http.ResponseWriter, r *http.Request, f *function,
	sent requestTarget) {
	id, start := newGUID(), c.host.console.now()
	c.reportStart(f, id)
	var answer *http.Response
	var body []byte
	out, err := c.buildForwarded(r, sent, id)
	if err == nil {
		err = c.callWithTimeout(func(ctx context.Context, client *http.Client) error {
			var err error
			if answer, err = client.Do(out.WithContext(ctx)); err != nil {
				return err
			}
			defer func() { _ = answer.Body.Close() }()
			body, err = io.ReadAll(answer.Body)
			return err
		})
	}

	c.reportEnd(f.name, id, start, err)

	switch {
	case err != nil:
		w.WriteHeader(http.StatusInternalServerError)
	case hasNoBody(answer.StatusCode):
		c.relayAndClose(w, answer)
	default:
		relayAnswer(w, r, answer, body)
	}
}

func (c caller) buildForwarded(r *http.Request, sent requestTarget,
	id string) (*http.Request, error) {
	if r.ContentLength < 0 {
		return nil, errChunked
	}

	body, err := io.ReadAll(r.Body) // the real host also reads the whole body first
	if err != nil {
		return nil, err
	}

	out := &http.Request{
		Method: r.Method, URL: c.urlFor(sent.rebuildPath(), sent.rebuildQuery()), Host: r.Host,
		Header: forwardedHeader(r.Header, len(body) > 0, id),
	}

	c.host.addTraceparent(out.Header)

	if len(body) > 0 {
		// GetBody stays nil, so that net/http cannot send a request with a body twice.
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}

	return out, nil
}

// forwardedHeader returns the headers for the handler. It drops only those headers of the client
// that the real host drops. All other headers of the client reach the handler, even headers with
// names that the platform itself uses. forwardedHeader joins the values of each name, and appends
// the host's own values.
func forwardedHeader(in http.Header, hasBody bool, id string) http.Header {
	out := http.Header{}
	for name, values := range in {
		out.Set(name, strings.Join(values, ", "))
	}

	for _, name := range slices.Concat(contentHeaders, hopHeaders, []string{"Content-Length"}) {
		out.Del(name)
	}

	if !hasBody {
		out.Del("Content-Type")
	}

	appendHeader(out, headerID, id, ", ")
	appendHeader(out, headerVersion, hostVersion, ", ")
	appendHeader(out, "User-Agent", userAgent, " ")

	return out
}

func appendHeader(h http.Header, name, value, separator string) {
	if before := h.Get(name); before != "" {
		value = before + separator + value
	}
	h.Set(name, value)
}

func relayAnswer(w http.ResponseWriter, r *http.Request, answer *http.Response, body []byte) {
	copyAnswerHeader(w.Header(), answer.Header)
	if r.Method != http.MethodHead {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	} else if length := answer.Header.Get("Content-Length"); length != "" {
		w.Header().Set("Content-Length", length)
	}

	w.WriteHeader(answer.StatusCode)
	_, _ = w.Write(body) // the client may be gone
}

func copyAnswerHeader(to, from http.Header) {
	for name, values := range from {
		if !slices.Contains(hopHeaders, name) && name != "Content-Length" {
			to[name] = values
		}
	}
}

// hasNoBody reports whether the status allows no body. Kestrel, the real host's HTTP server, throws
// if the host writes a body with such a status, even an empty body.
func hasNoBody(status int) bool {
	return status == http.StatusNoContent || status == http.StatusResetContent ||
		status == http.StatusNotModified
}

// relayAndClose writes the status and the headers, and closes the connection. The real host then
// tries to write an empty body, and Kestrel therefore closes the connection.
func (c caller) relayAndClose(w http.ResponseWriter, answer *http.Response) {
	c.host.console.logOwn("An unhandled host error has occurred. "+
		"Writing to the response body is invalid for responses with status code %d.",
		answer.StatusCode)
	header := http.Header{}
	copyAnswerHeader(header, answer.Header)
	if answer.StatusCode != http.StatusNoContent {
		header.Set("Content-Length", "0")
	}

	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer func() { _ = conn.Close() }()
	var head bytes.Buffer
	head.WriteString("HTTP/1.1 " + strconv.Itoa(answer.StatusCode) + " " +
		http.StatusText(answer.StatusCode) + "\r\n")
	_ = header.Write(&head) // cannot fail, because head is a buffer
	head.WriteString("\r\n")
	_, _ = conn.Write(head.Bytes()) // the client may be gone
}
