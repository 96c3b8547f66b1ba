package azure

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"weir/internal/storage"
)

// requestPolicy counts each request, repeats included, and records that it was handed to the transport.
type requestPolicy struct {
	service string
	counter *Counter
}

// Do implements policy.Policy.
func (w *requestPolicy) Do(req *policy.Request) (resp *http.Response, err error) {
	if s, ok := req.Raw().Context().Value(sendStateKey{}).(*sendState); ok {
		s.isTried.Store(true)
	}
	return w.counter.sendCounted(w.service, req)
}

type sendStateKey struct{}

// sendState is the progress of a call; the kind of its error depends on it.
type sendState struct {
	isTried       atomic.Bool // the request was handed to the transport
	isSeekingConn atomic.Bool // the transport asked for a connection
	hasConn       atomic.Bool // the transport got a connection
}

func withSendState(ctx context.Context) (context.Context, *sendState) {
	s := new(sendState)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { s.isSeekingConn.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { s.hasConn.Store(true) },
	})
	return context.WithValue(ctx, sendStateKey{}, s), s
}

// isNothingSent reports whether it is certain that nothing was sent. A test's transport may not report its
// connections: then only an error of dialling proves that nothing was sent.
func (s *sendState) isNothingSent(err error) bool {
	switch {
	case !s.isTried.Load():
		return true
	case s.isSeekingConn.Load():
		return !s.hasConn.Load()
	}
	var o *net.OpError
	return errors.As(err, &o) && o.Op == "dial"
}

// doRead makes a call that has no effect, or whose repeat does no harm.
func doRead(ctx context.Context, op string, call func(context.Context) error) error {
	ctx, _ = withSendState(withRetries(ctx))
	return toStorageError(op, readCall, call(ctx))
}

// doIdempotent makes a write that may be repeated, because the repeat changes nothing.
func doIdempotent(ctx context.Context, op string, call func(context.Context) error) error {
	return doWrite(withRetries(ctx), op, call)
}

// doOnce makes a write that is sent at most once.
func doOnce(ctx context.Context, op string, call func(context.Context) error) error {
	return doWrite(ctx, op, call)
}

func doWrite(ctx context.Context, op string, call func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return &storage.Error{Op: op, Kind: storage.Unavailable, Index: -1, Err: err}
	}
	ctx, s := withSendState(ctx)
	err := call(ctx)
	if err != nil && s.isNothingSent(err) {
		return toStorageError(op, unsentWrite, err)
	}
	return toStorageError(op, sentWrite, err)
}

// withRetries lets the SDK repeat a call for some seconds. Callers that want a longer time repeat the call.
func withRetries(ctx context.Context) context.Context {
	return policy.WithRetryOptions(ctx, policy.RetryOptions{
		MaxRetries: 2, RetryDelay: 200 * time.Millisecond, MaxRetryDelay: 2 * time.Second,
	})
}
