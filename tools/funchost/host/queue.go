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

// emulator is what "UseDevelopmentStorage=true" stands for; the key is public and guards nothing.
const emulator = "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;" +
	"AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;" +
	"QueueEndpoint=http://127.0.0.1:10001/devstoreaccount1;"

// listener takes the messages of one queue for one function on one instance.
type listener struct {
	host     *Host
	instance *instance
	function *function
	options  queueOptions
	queue    *azqueue.QueueClient
	poison   *azqueue.QueueClient // nil: the queue can have none
	ctx      context.Context      // ends the taking; messages in hand go on
	stop     context.CancelFunc
	backoff  backoff

	mu      sync.Mutex
	running int
	freed   chan struct{} // one message has been dealt with
	woken   chan struct{} // this instance has put a message there itself
}

// newListeners makes the listeners of one instance; they share one transport.
func (h *Host) newListeners(i *instance) ([]*listener, error) {
	var out []*listener
	for _, f := range h.app.functions {
		if !f.is("queueTrigger") || f.disabled || !f.isIn(i.group) {
			continue
		}
		l, err := h.newListener(i, f)
		if err != nil {
			return nil, fmt.Errorf("function %q: %w", f.name, err)
		}
		out = append(out, l)
	}
	return out, nil
}

// queueService makes a client of the function's storage account. Its connections are to be closed in the end.
func (h *Host) queueService(f *function) (*azqueue.ServiceClient, *http.Transport, error) {
	connection := f.trigger.connection
	if strings.TrimRight(connection, ";") == "UseDevelopmentStorage=true" {
		connection = emulator
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute}
	options := &azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: &http.Client{Transport: transport}, PerRetryPolicies: []policy.Policy{h.storage.Policy("queue"), requestLog{h.console}},
	}}
	service, err := azqueue.NewServiceClientFromConnectionString(connection, options)
	if err != nil {
		return nil, nil, fmt.Errorf("connection: %w", err)
	}
	return service, transport, nil
}

func (h *Host) newListener(i *instance, f *function) (*listener, error) {
	service, transport, err := h.queueService(f)
	if err != nil {
		return nil, err
	}
	l := &listener{
		host: h, instance: i, function: f, options: h.app.queues,
		queue:   service.NewQueueClient(f.trigger.queue),
		backoff: backoff{longest: h.app.queues.maxPollingInterval},
		freed:   make(chan struct{}, 1),
		woken:   make(chan struct{}, 1),
	}
	if name := f.trigger.queue + "-poison"; !strings.HasSuffix(f.trigger.queue, "-poison") && len(name) <= 63 {
		l.poison = service.NewQueueClient(name)
	}
	l.ctx, l.stop = context.WithCancel(i.life)
	context.AfterFunc(i.taking, l.stop)
	context.AfterFunc(i.life, transport.CloseIdleConnections)
	return l, nil
}

// run polls until the listener is stopped. A poll that found something is followed by the
// next as soon as few enough messages are in hand.
func (l *listener) run() {
	defer l.host.console.log("Stopped the listener for function '%s'", l.function.name)
	defer l.stop()
	for l.ctx.Err() == nil {
		found, err := l.poll()
		switch {
		case l.ctx.Err() != nil:
			return
		case err != nil && !passing(err):
			l.host.fail(fmt.Errorf("poll queue %q for function %q: %w", l.function.trigger.queue, l.function.name, err))
			return
		case err != nil:
			l.host.console.detail("Queue %q of function %q cannot be polled: %v", l.function.trigger.queue, l.function.name, firstLine(err))
		}
		if found > 0 {
			l.backoff.reset()
			l.awaitRoom()
			continue
		}
		l.rest(l.backoff.next(rand.Float64()))
	}
}

// rest waits for the next poll. A message this very instance has put is polled for at once.
func (l *listener) rest(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-l.ctx.Done():
	case <-l.woken:
		l.backoff.reset()
	case <-t.C:
	}
}

// wake tells the instance's listeners of a queue that a message was put there.
func (i *instance) wake(queue, connection string) {
	for _, l := range i.listeners {
		if t := l.function.trigger; t.queue == queue && t.connection == connection {
			select {
			case l.woken <- struct{}{}:
			default:
			}
		}
	}
}

// firstLine shortens the SDK's errors, which show a whole response.
func firstLine(err error) string {
	var res *azcore.ResponseError
	if errors.As(err, &res) {
		return fmt.Sprintf("%d %s", res.StatusCode, res.ErrorCode)
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// passing says whether polling goes on after an error. The real host ends where storage
// cannot be reached at all and the platform starts it anew; here it tries again.
func passing(err error) bool {
	var res *azcore.ResponseError
	if !errors.As(err, &res) {
		return true
	}
	return res.StatusCode == http.StatusNotFound || res.StatusCode == http.StatusConflict || res.StatusCode >= 500
}

func (l *listener) poll() (int, error) {
	count, hidden := int32(l.options.batchSize), int32(l.host.cfg.MessageLease/time.Second)
	res, err := l.queue.DequeueMessages(l.ctx, &azqueue.DequeueMessagesOptions{NumberOfMessages: &count, VisibilityTimeout: &hidden})
	if err != nil {
		return 0, err
	}
	for _, m := range res.Messages {
		l.mu.Lock()
		l.running++
		l.mu.Unlock()
		end := l.instance.inFlight.begin(l.function)
		l.host.work.Go(func() {
			defer end()
			defer l.free()
			(&delivery{listener: l, message: m, receipt: *m.PopReceipt}).run()
		})
	}
	return len(res.Messages), nil
}

func (l *listener) free() {
	l.mu.Lock()
	l.running--
	l.mu.Unlock()
	select {
	case l.freed <- struct{}{}:
	default:
	}
}

func (l *listener) inHand() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running
}

func (l *listener) awaitRoom() {
	for l.inHand() > l.options.newBatchThreshold {
		select {
		case <-l.ctx.Done():
			return
		case <-l.freed:
		}
	}
}

// backoff spaces the polls of an empty queue: 100 ms, then about 200, 300, 500, 900, 1700 ms
// and so on to the longest.
type backoff struct {
	longest time.Duration
	tries   int
}

const shortestPoll = 100 * time.Millisecond

func (b *backoff) reset() { b.tries = 0 }

// next gives the pause; random is from 0 to 1 and becomes a factor from 0.8 to 1.2.
func (b *backoff) next(random float64) time.Duration {
	d := shortestPoll
	if b.tries > 0 {
		growth := float64(shortestPoll) * float64(int64(1)<<min(b.tries-1, 30))
		d += time.Duration((0.8 + 0.4*random) * growth)
	}
	if d >= b.longest {
		return b.longest
	}
	b.tries++
	return d
}
