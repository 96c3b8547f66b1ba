// Package trigger calls functions in their own process, as a Functions host calls them over HTTP:
// for each message of a queue, and at each full minute. The command weir serve has no host, and so
// it uses this package.
package trigger

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"weir/internal/clock"
	"weir/internal/invoke"
	"weir/internal/panics"
	"weir/internal/storage"
)

// The numbers of host.json and of the host itself, so that a process without a host treats a queue
// as a host does.
const (
	batchSize = 16 // messages that one poll takes at most
	maxAtOnce = 24 // calls at a time at most
	// after so many failed calls a message goes to the poison queue
	maxDequeues    = 5
	retryAfter     = 5 * time.Second // a message is hidden for this time after a failed call
	hiddenFor      = 5 * time.Minute // a message is hidden for this time during its call
	storageTimeout = 10 * time.Second
)

// The shortest and the longest pause between two polls. After each empty poll the pause doubles. A
// host waits a minute at most, to save the price of requests; Queue waits less, because other
// processes may depend on it alone.
const (
	minPause = 250 * time.Millisecond
	maxPause = 10 * time.Second
)

// Queue calls a function for each message of a queue. All fields are required, except Poison
// and MaxPause.
type Queue struct {
	Function string        // name of the function, for the log
	Binding  string        // name under which the invocation has the message
	Messages storage.Queue // the queue that is polled
	// gets a message after maxDequeues failed calls; nil = the message is dropped
	Poison   storage.Queue
	Call     func(ctx context.Context, in invoke.Invocation) error
	MaxPause time.Duration // longest pause between two polls; 0 = maxPause
	Log      *slog.Logger
}

// Run polls the queue until ctx ends. Then it waits for the calls under way, whose contexts have
// ended, too. A message whose call was interrupted becomes visible again for other processes.
func (q *Queue) Run(ctx context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
	seats := make(chan struct{}, maxAtOnce)
	longest := cmp.Or(q.MaxPause, maxPause)
	for pause := minPause; ctx.Err() == nil; {
		taken, err := q.Messages.Get(ctx, min(batchSize, maxAtOnce-len(seats)), hiddenFor)
		if err != nil && ctx.Err() == nil {
			q.Log.Warn("trigger: queue not polled", "function", q.Function, "err", err)
		}

		for _, m := range taken {
			seats <- struct{}{} // never waits, because this loop alone fills the seats
			calls.Go(func() {
				defer func() { <-seats }()
				defer panics.Log(q.Log, "trigger: call")
				q.answer(ctx, m)
			})
		}

		if pause = min(2*pause, longest); len(taken) > 0 {
			pause = minPause
		}

		if !clock.Sleep(ctx, pause) || !awaitSeat(ctx, seats) {
			return
		}
	}
}

// awaitSeat waits until a call ends, if there are maxAtOnce. It reports whether a seat is free.
func awaitSeat(ctx context.Context, seats chan struct{}) bool {
	select {
	case seats <- struct{}{}:
		<-seats
		return true
	case <-ctx.Done():
		return false
	}
}

// answer calls the function for a message. After the call it removes the message, or makes it
// visible again.
func (q *Queue) answer(ctx context.Context, m storage.QueueMessage) {
	in, err := newInvocation(q.Binding, m)
	if err == nil {
		err = panics.Catch(func() error { return q.Call(ctx, in) })
	}

	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), storageTimeout)
	defer cancel()

	switch {
	case err == nil:
		err = q.Messages.Delete(limited, m)
	case ctx.Err() != nil: // the process stops; another one shall have the message soon
		_, err = q.Messages.Update(limited, m, m.Text, 0)
	default:
		q.Log.Error("trigger: call failed", "function", q.Function, "invocation_id", in.ID,
			"dequeue_count", m.DequeueCount, "err", err)
		err = q.putBack(limited, m)
	}

	if err != nil &&
		!storage.Is(err, storage.NotFound) { // NotFound: another process has the message
		q.Log.Warn(
			"trigger: message not removed",
			"function",
			q.Function,
			"invocation_id",
			in.ID,
			"err",
			err,
		)
	}
}

// putBack makes a message visible again after retryAfter, or moves it to the poison queue.
func (q *Queue) putBack(ctx context.Context, m storage.QueueMessage) error {
	if m.DequeueCount < maxDequeues {
		_, err := q.Messages.Update(ctx, m, m.Text, retryAfter)
		return err
	}

	if q.Poison != nil {
		if err := q.Poison.Put(ctx, m.Text, 0); err != nil {
			return err
		}
	}

	return q.Messages.Delete(ctx, m)
}

func newInvocation(binding string, m storage.QueueMessage) (invoke.Invocation, error) {
	text, err := json.Marshal(m.Text)
	if err != nil {
		return invoke.Invocation{}, fmt.Errorf("encode the message of a queue: %w", err)
	}

	return invoke.Invocation{
		ID:   uuid.NewString(),
		Data: map[string]json.RawMessage{binding: text},
	}, nil
}

// EachMinute calls a function at each full minute until ctx ends. A call that takes longer than a
// minute delays the next one.
func EachMinute(ctx context.Context, now func() time.Time, call func(ctx context.Context)) {
	for {
		at := now()
		if !clock.Sleep(ctx, at.Truncate(time.Minute).Add(time.Minute).Sub(at)) {
			return
		}
		call(ctx)
	}
}
