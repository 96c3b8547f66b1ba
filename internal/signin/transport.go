package signin

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
)

// Transport is an http.RoundTripper that adds a Keeper's credential to each request. It is safe for
// concurrent use.
type Transport struct {
	next   http.RoundTripper
	keeper *Keeper
}

// NewTransport returns a Transport that sends through next.
func NewTransport(next http.RoundTripper, keeper *Keeper) *Transport {
	return &Transport{next, keeper}
}

// forbidden has the statuses by which a CMS refuses a credential that lacks a right, and by which
// some CMSs report the end of a session: 403, and the numbers of Laravel (419), IIS (440) and
// ArcGIS (498).
var forbidden = []int{http.StatusForbidden, 419, 440, 498}

// RoundTrip implements http.RoundTripper. If the CMS answers 401 and the Keeper's source is not
// Fixed, RoundTrip signs in again, and repeats the request once with the new credential. After an
// answer such as 403 it does so, too, but not more often than once in five minutes, or in half a
// minute if the session seems to have ended (see endedAfter). If that sign-in fails, RoundTrip
// returns the answer.
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

	resp, used, err := t.sendSigned(req, content)
	if err != nil {
		return resp, err
	}

	renewed := t.renewCredential(req.Context(), resp.StatusCode, used)
	if renewed == nil {
		return resp, nil
	}

	again := cloneRequest(req, content)
	if err := renewed.signRequest(again); err != nil {
		return resp, nil
	}

	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	resp.Body.Close()
	resp, err = t.next.RoundTrip(again)
	t.recordCredential(resp, req, renewed)
	t.recordAnswer(resp, req, renewed)

	return resp, err
}

// renewCredential returns the credential with which to repeat a request that the CMS answered with
// this status, or nil if the request is not repeated.
func (t *Transport) renewCredential(ctx context.Context, status int, used *kept) *kept {
	switch {
	case !t.keeper.isRenewable():
	case status == http.StatusUnauthorized:
		t.keeper.dropCredential(used)
		if renewed, err := t.keeper.getCredential(ctx); err == nil {
			return renewed
		}

	case slices.Contains(forbidden, status):
		if renewed, ok := t.keeper.renewRefused(ctx, used); ok {
			return renewed
		}
	}

	return nil
}

// credentialKey is the context key under which recordCredential stores a usedCredential.
type credentialKey struct{}

// usedCredential is the credential of one request, and its keeper.
type usedCredential struct {
	keeper *Keeper
	used   *kept
}

// recordCredential sets resp.Request to a copy of req, which does not have the credential's
// headers. It stores the used credential in the context of that copy, where DropCredential finds
// the credential.
func (t *Transport) recordCredential(resp *http.Response, req *http.Request, used *kept) {
	if resp != nil {
		resp.Request = req.WithContext(context.WithValue(req.Context(), credentialKey{},
			usedCredential{t.keeper, used}))
	}
}

// recordAnswer passes the status of the answer to the keeper, if there is an answer.
func (t *Transport) recordAnswer(resp *http.Response, req *http.Request, used *kept) {
	if resp != nil {
		t.keeper.recordAnswer(used, req.Method, resp.StatusCode)
	}
}

// DropCredential drops the credential that the request of resp used, so that the next request signs
// in again. Callers need DropCredential if the CMS refuses a credential by another answer than the
// status 401.
//
// DropCredential does nothing if a newer credential has replaced the used credential, or if resp
// did not come through a Transport. It is safe for concurrent use.
func DropCredential(resp *http.Response) {
	if resp.Request == nil {
		return
	}
	if c, ok := resp.Request.Context().Value(credentialKey{}).(usedCredential); ok {
		c.keeper.dropCredential(c.used)
	}
}

// RenewCredential signs in anew because the request of resp was refused in the answer's body, as by
// a status 403, and reports whether the next request has another credential. It does so at most
// once in five minutes. It returns false if the credential is fixed, if the sign-in fails, or if
// resp did not come through a Transport.
func RenewCredential(ctx context.Context, resp *http.Response) bool {
	if resp.Request == nil {
		return false
	}

	c, ok := resp.Request.Context().Value(credentialKey{}).(usedCredential)
	if !ok || !c.keeper.isRenewable() {
		return false
	}

	_, isRenewed := c.keeper.renewRefused(ctx, c.used)

	return isRenewed
}

func (t *Transport) sendSigned(req *http.Request, content []byte) (*http.Response, *kept, error) {
	c, err := t.keeper.getCredential(req.Context())
	if err != nil {
		return nil, nil, err
	}

	signed := cloneRequest(req, content)
	if err := c.signRequest(signed); err != nil {
		return nil, nil, err
	}

	resp, err := t.next.RoundTrip(signed)
	t.recordCredential(resp, req, c)
	t.recordAnswer(resp, req, c)

	return resp, c, err
}

// cloneRequest returns a copy of req with content as its body. The body can be sent once.
func cloneRequest(req *http.Request, content []byte) *http.Request {
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

// isHeaderValue reports whether a value is valid in a header.
func isHeaderValue(value string) bool {
	return !strings.ContainsFunc(value,
		func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}
