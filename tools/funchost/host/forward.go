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

// contentHeaders has the headers that a forwarding host loses, because .NET refuses them among request headers.
var contentHeaders = []string{
	"Allow", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Location", "Content-Md5",
	"Content-Range", "Expires", "Last-Modified",
}

// hopHeaders has the headers that belong to one connection.
var hopHeaders = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

var errChunked = errors.New("a chunked request body cannot be forwarded")

// forwardRequest sends the request on, rebuilt from its parts, and relays the whole answer. The handler does
// not learn that the client has gone away.
func (c caller) forwardRequest(w http.ResponseWriter, r *http.Request, f *function, sent requestTarget) {
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

// buildForwarded builds the request for the handler.
func (c caller) buildForwarded(r *http.Request, sent requestTarget, id string) (*http.Request, error) {
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
		// Without GetBody, net/http cannot send the request with its body a second time.
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	return out, nil
}

// forwardedHeader returns the headers for the handler. It leaves out only those of the client's headers that the real
// host loses. X-Forwarded headers, Authorization, Cookie, keys and the platform's own names pass as the client sent
// them. The values of one name are joined, and the host's values come after a client's.
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

// relayAnswer writes the handler's answer with its length.
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

// hasNoBody reports whether Kestrel throws when a body, even an empty one, is written with the status.
func hasNoBody(status int) bool {
	return status == http.StatusNoContent || status == http.StatusResetContent || status == http.StatusNotModified
}

// relayAndClose writes status and headers, and closes the connection. The forwarding host writes an empty body after
// them, and Kestrel closes the connection because of that.
func (c caller) relayAndClose(w http.ResponseWriter, answer *http.Response) {
	c.host.console.logOwn("An unhandled host error has occurred. "+
		"Writing to the response body is invalid for responses with status code %d.", answer.StatusCode)
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
	head.WriteString("HTTP/1.1 " + strconv.Itoa(answer.StatusCode) + " " + http.StatusText(answer.StatusCode) + "\r\n")
	_ = header.Write(&head) // cannot fail, because head is a buffer
	head.WriteString("\r\n")
	_, _ = conn.Write(head.Bytes()) // the client may be gone
}
