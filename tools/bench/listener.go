package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/azure"
)

// The queue listener is a stand-in for another usual solution on Weir's platform: a function with a
// queue trigger and the attribute [Singleton(Mode = Listener)]. An HTTP function puts the message
// into a queue. Of all instances only the one that has a blob lease, the listener, gets messages of
// this queue, one at a time, and posts each to the CMS. The stand-in has the host's rules for
// polling, leases and visibility, without the host's own requests and without .NET. So its figures
// are a lower bound of the real solution's.
//
// The settings are tuned: the shortest that host.json allows, except that the lease is renewed at
// half of its length, as by default.
const (
	listenerPoll = 100 * time.Millisecond // extensions.queues.maxPollingInterval
	listenerHide = 10 * time.Minute       // a message that was got is hidden so long, by the host
	// singleton.listenerLockPeriod, after which another instance can be the listener
	listenerLease = 15 * time.Second
	// singleton.listenerLockRecoveryPollingInterval: how often the others try to get the lease
	listenerRecovery = 15 * time.Second
	// the function's own wait before it posts a message again that the CMS did not take
	listenerRetryPause = time.Second
)

// listenerVariable is the environment variable with the settings of a process of the stand-in, as
// JSON. If the variable is set, this process runs only the stand-in.
const listenerVariable = "WEIR_BENCH_LISTENER"

type listenerSettings struct{ Storage, Prefix, CMSURL string }

// listenerProgram is one instance of the stand-in.
type listenerProgram struct {
	settings    listenerSettings
	account     *azure.Account
	counter     azure.Counter
	client      *http.Client
	isListening atomic.Bool
	// gets a value when this process has put a message into the queue: the host wakes the listener
	// of its own process
	wake chan struct{}
}

// listenerState is the answer to a GET.
type listenerState struct {
	IsListening  bool
	Transactions map[string]int64 // requests to storage, by service and operation
}

// runListenerProcess runs one instance of the stand-in if listenerVariable is set, and reports
// whether it ran. The program prints its host and port. It ends when "in" is at its end, or at an
// error.
func runListenerProcess(ctx context.Context, in io.Reader, out io.Writer) (bool, error) {
	text := os.Getenv(listenerVariable)
	if text == "" {
		return false, nil
	}

	p := &listenerProgram{client: newClient(), wake: make(chan struct{}, 1)}
	if err := json.Unmarshal([]byte(text), &p.settings); err != nil {
		return true, err
	}

	var err error
	if p.account, err = azure.Open(azure.Config{ConnectionString: p.settings.Storage,
		Prefix: p.settings.Prefix, Counter: &p.counter}); err != nil {
		return true, err
	}
	defer p.account.Close()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return true, err
	}

	failed := make(chan error, 3)
	server := &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	defer server.Close()
	go func() { failed <- server.Serve(socket) }()
	go func() { failed <- p.competeForLease(ctx) }()
	go func() {
		_, err := io.Copy(io.Discard, in)
		failed <- errors.Join(err, errInputEnded)
	}()

	fmt.Fprintln(out, socket.Addr())
	if err := <-failed; !errors.Is(err, errInputEnded) {
		return true, err
	}

	return true, nil
}

// ServeHTTP puts the message of a POST into the queue. It answers a GET with the program's state.
func (p *listenerProgram) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		// an error means that the client has gone
		_ = json.NewEncoder(w).Encode(listenerState{p.isListening.Load(), p.counter.Snapshot()})
		return
	}

	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = p.account.Tickets().Put(r.Context(), string(body), 0)
	}

	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}

	select {
	case p.wake <- struct{}{}:
	default:
	}

	w.WriteHeader(http.StatusAccepted)
}

// competeForLease tries to get the lease each listenerRecovery. While this process has the lease,
// it is the listener.
func (p *listenerProgram) competeForLease(ctx context.Context) error {
	id := newLeaseID()
	for {
		err := p.account.Leases().Acquire(ctx, "listener", id, listenerLease)
		if err == nil {
			return p.listen(ctx, id)
		}
		if !storage.Is(err, storage.Conflict) {
			return err
		}

		if !sleepFor(ctx, listenerRecovery) {
			return ctx.Err()
		}
	}
}

// listen gets messages and posts them, one at a time, until an error. It keeps the lease meanwhile.
func (p *listenerProgram) listen(ctx context.Context, id string) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	p.isListening.Store(true)
	go func() {
		for sleepFor(ctx, listenerLease/2) {
			if err := p.account.Leases().Renew(ctx, "listener", id); err != nil {
				stop(err)
				return
			}
		}
	}()

	for ctx.Err() == nil {
		got, err := p.account.Tickets().Get(ctx, 1, listenerHide)
		if err != nil && !storage.Is(err, storage.Unavailable) { // as long as there is no queue
			return errors.Join(err, context.Cause(ctx))
		}

		for _, m := range got {
			if err := p.deliverMessage(ctx, m); err != nil {
				return err
			}
		}

		if len(got) == 0 {
			p.awaitPoll(ctx)
		}
	}

	return context.Cause(ctx)
}

// awaitPoll waits until the next poll of an empty queue.
func (p *listenerProgram) awaitPoll(ctx context.Context) {
	timer := time.NewTimer(listenerPoll)
	defer timer.Stop()

	select {
	case <-timer.C:
	case <-p.wake:
	case <-ctx.Done():
	}
}

// deliverMessage posts a message until the CMS takes it, and deletes the message from the queue.
func (p *listenerProgram) deliverMessage(ctx context.Context, m storage.QueueMessage) error {
	for postBody(ctx, p.client, p.settings.CMSURL, m.Text,
		http.Header{"Idempotency-Key": {m.ID}}) != nil {
		if !sleepFor(ctx, listenerRetryPause) {
			return context.Cause(ctx)
		}
	}

	return p.account.Tickets().Delete(ctx, m)
}
