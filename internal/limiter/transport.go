package limiter

import (
	"net/http"

	"weir/internal/clock"
)

// Transport is an http.RoundTripper whose requests each wait for a slot. The wait does not count
// towards timeouts of clock.WithTimeout.
type Transport struct {
	next    http.RoundTripper
	limiter *Limiter
}

// NewTransport returns a Transport that sends through next.
func NewTransport(next http.RoundTripper, l *Limiter) *Transport { return &Transport{next, l} }

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resume := clock.HoldTimeouts(req.Context())
	err := t.limiter.take(req.Context())
	resume()
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}

	resp, err := t.next.RoundTrip(req)
	if err == nil {
		t.limiter.Observe(resp.StatusCode, resp.Header)
	}

	return resp, err
}
