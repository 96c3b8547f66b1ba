package signin

import (
	"bytes"
	"io"
	"net/http"
	"strings"
)

// Transport signs requests.
type Transport struct {
	next   http.RoundTripper
	keeper *Keeper
}

// NewTransport returns a Transport in front of another.
func NewTransport(next http.RoundTripper, keeper *Keeper) *Transport { return &Transport{next, keeper} }

// RoundTrip implements http.RoundTripper. It repeats a request once that was answered 401, with a new
// credential.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	var content []byte
	if req.Body != nil {
		var err error
		content, err = io.ReadAll(req.Body)
		req.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	resp, used, err := t.send(req, content)
	if err != nil || resp.StatusCode != http.StatusUnauthorized || !t.isRenewable() {
		return resp, err
	}
	t.keeper.drop(used)
	renewed, err := t.keeper.get(req.Context())
	if err != nil {
		return resp, nil // the CMS's answer stands: 401
	}
	again := clone(req, content)
	if err := renewed.sign(again); err != nil {
		return resp, nil
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	resp.Body.Close()
	return t.next.RoundTrip(again)
}

func (t *Transport) send(req *http.Request, content []byte) (*http.Response, *kept, error) {
	c, err := t.keeper.get(req.Context())
	if err != nil {
		return nil, nil, err
	}
	signed := clone(req, content)
	if err := c.sign(signed); err != nil {
		return nil, nil, err
	}
	resp, err := t.next.RoundTrip(signed)
	return resp, c, err
}

// isRenewable reports whether another sign-in may give another credential.
func (t *Transport) isRenewable() bool {
	_, isFixed := t.keeper.source.(Fixed)
	return !isFixed
}

// clone returns a copy of a request, with a body that can be sent once.
func clone(req *http.Request, content []byte) *http.Request {
	c := req.Clone(req.Context())
	c.GetBody = nil
	if content != nil {
		c.Body, c.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
	}
	if len(content) == 0 {
		c.Body = http.NoBody
	}
	return c
}

// isHeaderValue reports whether a value can be sent.
func isHeaderValue(value string) bool {
	return !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// afterScheme returns the credential behind a scheme such as Bearer.
func afterScheme(value string) string {
	_, credential, _ := strings.Cut(value, " ")
	return credential
}
