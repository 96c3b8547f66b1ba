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

// wire sees every request as it goes out, repeats included.
type wire struct {
	service string
	counter *Counter
}

// Do implements policy.Policy.
func (w *wire) Do(req *policy.Request) (resp *http.Response, err error) {
	if s, ok := req.Raw().Context().Value(sendingKey{}).(*sending); ok {
		s.tried.Store(true)
	}
	return w.counter.watch(w.service, req)
}

type sendingKey struct{}

// sending tells how far a call got, for what an error means hangs on it.
type sending struct {
	tried  atomic.Bool // handed to the transport
	sought atomic.Bool // the transport looks for a connection
	got    atomic.Bool // and has one
}

func watch(ctx context.Context) (context.Context, *sending) {
	s := new(sending)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { s.sought.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { s.got.Store(true) },
	})
	return context.WithValue(ctx, sendingKey{}, s), s
}

// nothingSent is true when it is certain. A transport that does not report its
// connections (a test's) is believed only when it names the dialling.
func (s *sending) nothingSent(err error) bool {
	switch {
	case !s.tried.Load():
		return true
	case s.sought.Load():
		return !s.got.Load()
	}
	var o *net.OpError
	return errors.As(err, &o) && o.Op == "dial"
}

// read makes a call that changes nothing, or may be repeated unseen.
func read(ctx context.Context, op string, call func(context.Context) error) error {
	ctx, _ = watch(retrying(ctx))
	return classify(op, reading, call(ctx))
}

// rewrite makes a write that may be repeated because it sets the whole.
func rewrite(ctx context.Context, op string, call func(context.Context) error) error {
	return write(retrying(ctx), op, call)
}

// once makes a call that is sent at most once.
func once(ctx context.Context, op string, call func(context.Context) error) error {
	return write(ctx, op, call)
}

func write(ctx context.Context, op string, call func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return &storage.Error{Op: op, Kind: storage.Unavailable, Index: -1, Err: err}
	}
	ctx, s := watch(ctx)
	err := call(ctx)
	if err != nil && s.nothingSent(err) {
		return classify(op, unsent, err)
	}
	return classify(op, writing, err)
}

// retrying lets the SDK repeat a call, briefly: longer patience is the caller's.
func retrying(ctx context.Context) context.Context {
	return policy.WithRetryOptions(ctx, policy.RetryOptions{
		MaxRetries: 2, RetryDelay: 200 * time.Millisecond, MaxRetryDelay: 2 * time.Second,
	})
}
