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

// requestPolicy counts each request, repeats included. It also records in the call's sendState that
// the transport gets a request.
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

// sendState is the progress of a call. If the call fails, isNothingSent reads it.
type sendState struct {
	isTried       atomic.Bool // the transport got a request
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

// isNothingSent reports whether the failed call certainly sent nothing. If the transport does not
// report its connections, as in some tests, only a dial error proves that nothing was sent.
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

// doRead makes a read, and enables retries. It also makes other calls whose repeat does no harm,
// such as the creation of a queue.
func doRead(ctx context.Context, op string, call func(context.Context) error) error {
	ctx, _ = withSendState(withRetries(ctx))
	return toStorageError(op, readCall, call(ctx))
}

// doObjectRead reads the content of a blob or file, and enables retries.
func doObjectRead(ctx context.Context, op string, call func(context.Context) error) error {
	ctx, _ = withSendState(withRetries(ctx))
	return toObjectError(op, call(ctx))
}

// encodingPolicy asks storage for the stored bytes of a blob. Without this header, net/http would
// decompress a blob that was uploaded with Content-Encoding gzip. Its bytes would then not have the
// length in the listing.
type encodingPolicy struct{}

// Do implements policy.Policy.
func (encodingPolicy) Do(req *policy.Request) (*http.Response, error) {
	req.Raw().Header.Set("Accept-Encoding", "identity")
	return req.Next()
}

// doIdempotent makes a write, and enables retries. A repeat of the write must change nothing.
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

// withRetries lets the SDK repeat a failed request, twice at most.
func withRetries(ctx context.Context) context.Context {
	return policy.WithRetryOptions(ctx, policy.RetryOptions{
		MaxRetries: 2, RetryDelay: 200 * time.Millisecond, MaxRetryDelay: 2 * time.Second,
	})
}
