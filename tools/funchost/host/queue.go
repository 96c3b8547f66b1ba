package host

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
)

// emulator is the connection string for "UseDevelopmentStorage=true". The key is public.
const emulator = "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;" +
	"AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;" +
	"QueueEndpoint=http://127.0.0.1:10001/devstoreaccount1;"

// queueListener takes the messages of one queue for one function on one instance.
type queueListener struct {
	host     *Host
	instance *instance
	function *function
	options  queueOptions
	queue    *azqueue.QueueClient
	// nil if "queue" is itself a poison queue, or if the name would be too long
	poison *azqueue.QueueClient
	// its end stops the polls, but not the processing of dequeued messages
	ctx     context.Context
	stop    context.CancelFunc
	backoff pollBackoff

	mu      sync.Mutex
	running int           // number of dequeued messages whose processing has not ended
	freed   chan struct{} // gets a value when the processing of a message ends
	woken   chan struct{} // gets a value when this instance has put a message into the queue
}

// newListeners returns a listener for each enabled queue function of the instance's group.
func (i *instance) newListeners() ([]*queueListener, error) {
	var out []*queueListener
	for _, f := range i.host.app.functions {
		if !f.hasTrigger("queueTrigger") || f.isDisabled || !f.isIn(i.group) {
			continue
		}

		l, err := i.newListener(f)
		if err != nil {
			return nil, fmt.Errorf("function %q: %w", f.name, err)
		}

		out = append(out, l)
	}

	return out, nil
}

// queueService returns a client for the function's storage account, and the client's transport. The
// caller must close the transport's idle connections at the end.
func (h *Host) queueService(f *function) (*azqueue.ServiceClient, *http.Transport, error) {
	connection := f.trigger.connection
	if strings.TrimRight(connection, ";") == "UseDevelopmentStorage=true" {
		connection = emulator
	}

	transport := &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute}
	options := &azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport:        &http.Client{Transport: transport},
		PerRetryPolicies: []policy.Policy{h.storage.Policy("queue"), requestLog{h.console}},
	}}

	service, err := azqueue.NewServiceClientFromConnectionString(connection, options)
	if err != nil {
		return nil, nil, fmt.Errorf("connection: %w", err)
	}

	return service, transport, nil
}

func (i *instance) newListener(f *function) (*queueListener, error) {
	service, transport, err := i.host.queueService(f)
	if err != nil {
		return nil, err
	}

	l := &queueListener{
		host: i.host, instance: i, function: f, options: i.host.app.queues,
		queue:   service.NewQueueClient(f.trigger.queue),
		backoff: pollBackoff{maxPause: i.host.app.queues.maxPollingInterval},
		freed:   make(chan struct{}, 1),
		woken:   make(chan struct{}, 1),
	}

	if name := f.trigger.queue + "-poison"; !strings.HasSuffix(f.trigger.queue, "-poison") &&
		len(name) <= 63 {
		l.poison = service.NewQueueClient(name)
	}

	l.ctx, l.stop = context.WithCancel(i.lifetime)
	context.AfterFunc(i.listening, l.stop)
	context.AfterFunc(i.lifetime, transport.CloseIdleConnections)

	return l, nil
}

// pollUntilStopped polls the queue until the listener is stopped, or until an error makes the host
// give up. After a poll that got messages, the next poll waits until the number of running messages
// is at most newBatchThreshold.
func (l *queueListener) pollUntilStopped() {
	defer l.host.console.logOwn("Stopped the listener for function '%s'", l.function.name)
	defer l.stop()

	for l.ctx.Err() == nil {
		found, err := l.startDeliveries()
		switch {
		case l.ctx.Err() != nil:
			return
		case err != nil && !isTransient(err):
			l.host.reportFatal(fmt.Errorf("poll queue %q for function %q: %w",
				l.function.trigger.queue, l.function.name, err))
			return

		case err != nil:
			l.host.console.logDetail("Queue %q of function %q cannot be polled: %v",
				l.function.trigger.queue, l.function.name, firstLine(err))
		}

		if found > 0 {
			l.backoff.resetPause()
			l.awaitRoom()
			continue
		}

		l.awaitNextPoll(l.backoff.nextPause(rand.Float64()))
	}
}

// awaitNextPoll waits for the time d. It returns early if this instance puts a message into the
// queue, or if the listener is stopped.
func (l *queueListener) awaitNextPoll(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()

	select {
	case <-l.ctx.Done():
	case <-l.woken:
		l.backoff.resetPause()
	case <-t.C:
	}
}

// wakeListeners makes the instance's listeners of a queue poll without delay. The caller has put a
// message into the queue.
func (i *instance) wakeListeners(queue, connection string) {
	for _, l := range i.listeners {
		if t := l.function.trigger; t.queue == queue && t.connection == connection {
			select {
			case l.woken <- struct{}{}:
			default:
			}
		}
	}
}

// firstLine returns an error as one line. For an error answer of storage it returns the status and
// the code, because the text of the error contains the whole answer.
func firstLine(err error) string {
	var res *azcore.ResponseError
	if errors.As(err, &res) {
		return fmt.Sprintf("%d %s", res.StatusCode, res.ErrorCode)
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// isTransient reports whether the listener continues to poll after an error. If storage cannot be
// reached at all, the real host ends, and the platform starts a new host. This package polls again
// instead.
func isTransient(err error) bool {
	var res *azcore.ResponseError
	if !errors.As(err, &res) {
		return true
	}
	return res.StatusCode == http.StatusNotFound || res.StatusCode == http.StatusConflict ||
		res.StatusCode >= 500
}

func (l *queueListener) startDeliveries() (int, error) {
	count, hidden := int32(l.options.batchSize), int32(l.host.cfg.MessageLease/time.Second)
	res, err := l.queue.DequeueMessages(l.ctx,
		&azqueue.DequeueMessagesOptions{NumberOfMessages: &count, VisibilityTimeout: &hidden})
	if err != nil {
		return 0, err
	}

	for _, m := range res.Messages {
		l.mu.Lock()
		l.running++
		l.mu.Unlock()
		end := l.instance.inFlight.beginInvocation(l.function)
		l.host.background.Go(func() {
			defer end()
			defer l.freeSlot()
			(&delivery{queueListener: l, message: m, popReceipt: *m.PopReceipt}).processMessage()
		})
	}

	return len(res.Messages), nil
}

func (l *queueListener) freeSlot() {
	l.mu.Lock()
	l.running--
	l.mu.Unlock()

	select {
	case l.freed <- struct{}{}:
	default:
	}
}

func (l *queueListener) countRunning() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running
}

func (l *queueListener) awaitRoom() {
	for l.countRunning() > l.options.newBatchThreshold {
		select {
		case <-l.ctx.Done():
			return
		case <-l.freed:
		}
	}
}

// pollBackoff computes the pause between two polls of an empty queue: 100 ms, then about 200, 300,
// 500, 900, 1700 ms and so on up to maxPause.
type pollBackoff struct {
	maxPause time.Duration
	tries    int // number of pauses since the last reset that were shorter than maxPause
}

const minPollPause = 100 * time.Millisecond

func (b *pollBackoff) resetPause() { b.tries = 0 }

// nextPause returns the pause before the next poll. After the first pause, a pause is minPollPause
// plus a part that doubles from pause to pause. The argument "random", from 0 to 1, gives the
// factor for this part, from 0.8 to 1.2.
func (b *pollBackoff) nextPause(random float64) time.Duration {
	d := minPollPause
	if b.tries > 0 {
		growth := float64(minPollPause) * float64(int64(1)<<min(b.tries-1, 30))
		d += time.Duration((0.8 + 0.4*random) * growth)
	}

	if d >= b.maxPause {
		return b.maxPause
	}

	b.tries++

	return d
}
