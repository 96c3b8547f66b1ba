package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// state is the state of an instance's handler.
type state string

const (
	starting state = "starting" // invocations wait until the handler is ready
	running  state = "running"
	exited   state = "exited" // the handler exited with code 0 and is not restarted
	gone     state = "gone"
)

// instance stands for one machine of the platform: it has a handler process, and the queue
// listeners that call the handler.
type instance struct {
	host        *Host
	number      int
	group       string
	handlerPort int // a restarted handler gets the same port
	lifetime    context.Context
	// ends lifetime: the handler is killed, all calls fail, and messages stay hidden
	crash context.CancelFunc
	ended chan struct{} // closed when the instance is gone

	listening     context.Context // its end stops the listeners, but not the handler
	stopListening context.CancelFunc
	// the instance gets no new invocation, and ends after its invocations in flight
	isRetiring atomic.Bool
	isScaledIn atomic.Bool // the instance was idle; the next invocation starts a successor
	isOrphaned atomic.Bool // the handler lives on after the instance
	inFlight   inFlightCounts
	listeners  []*queueListener
	polling    sync.WaitGroup

	mu      sync.Mutex
	state   state
	process *handlerProcess
	client  *http.Client  // can connect only to the process in the field "process"
	changed chan struct{} // closed and replaced at each change of state
	errors  errorBucket
}

var (
	errGone    = errors.New("the instance is gone")
	errTimeout = errors.New("the function timed out")
)

func (i *instance) setState(s state, p *handlerProcess, c *http.Client) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.state, i.process, i.client = s, p, c
	close(i.changed)
	i.changed = make(chan struct{})
}

func (i *instance) readState() (state, *handlerProcess, *http.Client, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.state, i.process, i.client, i.changed
}

func (i *instance) isAlive() bool { s, _, _, _ := i.readState(); return s != gone }

func (i *instance) hostPort() string { return fmt.Sprintf("127.0.0.1:%d", i.handlerPort) }

func (i *instance) handlerURL(path string) string { return "http://" + i.hostPort() + path }

// superviseHandler keeps the handler running until the instance ends or the host must give up. It
// returns the reason for giving up, or nil.
func (i *instance) superviseHandler() error {
	defer close(i.ended)
	defer i.setState(gone, nil, nil)
	defer i.crash()
	defer i.stopListening()

	for {
		id := newGUID()
		p, err := i.startProcess(id)
		if err != nil {
			return err // the real host would give up only after an invocation has timed out
		}

		client := newHandlerClient(p, i.host.app.isForwarding)
		i.setState(starting, p, client)
		problem := i.watchProcess(p, client)
		client.CloseIdleConnections()
		if i.lifetime.Err() != nil || i.isRetiring.Load() {
			return nil // the instance ends, so it needs no new handler
		}

		i.setState(starting, nil, nil)
		if err := i.countError(problem); err != nil {
			return err
		}
	}
}

// noLimit lets endInOrder wait until all invocations have ended.
const noLimit time.Duration = -1

// endInOrder ends the instance after its invocations in flight; new invocations go to other
// instances. It waits until the queue and timer invocations have ended, or until the time "wait"
// has passed. Then it calls awaitHTTP, which must wait for the HTTP requests. At the end it kills
// the handler. If Config.Orphan is set and a queue or timer invocation outlasted "wait", the
// handler lives on instead.
func (i *instance) endInOrder(wait time.Duration, awaitHTTP func()) {
	i.host.mu.Lock() // pickInstance must not choose the instance any more
	i.isRetiring.Store(true)
	i.host.mu.Unlock()
	i.windDown(wait, awaitHTTP)
}

func (i *instance) windDown(wait time.Duration, awaitHTTP func()) {
	i.stopListening()
	i.polling.Wait()
	ctx, cancel := i.lifetime, context.CancelFunc(func() {})
	if wait != noLimit {
		ctx, cancel = context.WithTimeout(i.lifetime, wait)
	}
	defer cancel()

	if !i.inFlight.awaitOthers(ctx) && i.lifetime.Err() == nil {
		i.host.console.logOwn(
			"Instance %d still runs invocations after %v; their messages stay hidden until their "+
				"lease ends.", i.number, wait)
		i.isOrphaned.Store(i.host.cfg.Orphan)
	}

	awaitHTTP()
	i.crash()
	<-i.ended
}

func (i *instance) awaitHTTP() {
	i.inFlight.awaitCounts(i.lifetime, func(http, _ int) bool { return http == 0 })
}

func (i *instance) handlerEnvironment(workerID string) []string {
	port := fmt.Sprint(i.handlerPort)
	more := map[string]string{
		"FUNCTIONS_CUSTOMHANDLER_PORT":      port,
		"FUNCTIONS_HTTPWORKER_PORT":         port,
		"FUNCTIONS_CUSTOMHANDLER_WORKER_ID": workerID,
		"FUNCTIONS_HTTPWORKER_ID":           workerID,
		"FUNCTIONS_APP_ROOT_PATH":           i.host.app.root,
	}

	if i.group != "" {
		more["WEBSITE_SKU"], more["FUNCTIONS_TARGET_GROUP"] = flexSKU, i.group
	}

	return i.host.app.env.childEnv(more)
}

// watchProcess returns when the instance ends, or when the host must start a new handler process.
// It returns the error that counts as an error of the handler, or nil.
func (i *instance) watchProcess(p *handlerProcess, client *http.Client) error {
	ctx, cancel := context.WithCancel(i.lifetime)
	defer cancel()
	ready := make(chan error, 1)
	go func() { ready <- i.awaitReady(ctx, client) }()
	ended, isReady := p.ended, false
	for {
		select {
		case <-i.lifetime.Done():
			if !i.isOrphaned.Load() {
				p.killHandler()
			}
			return nil

		case err := <-ready:
			if err != nil {
				p.killHandler()
				return err
			}

			isReady, ready = true, nil
			i.setState(running, p, client)
			i.host.console.logOwn(
				"Worker process started and initialized. (instance %d, pid %d, port %d)", i.number,
				p.processID(), i.handlerPort)
			go i.pingHandler(ctx, client)

		case <-ended:
			if p.exitCode != 0 || p.isKilledByHost.Load() {
				return i.exitProblem(p)
			}

			// stop selecting this case; if the handler was never ready, awaitReady will time out
			ended = nil

			if isReady {
				i.host.console.logOwn(
					"The handler of instance %d exited with 0. It is not restarted: every "+
						"invocation fails from now on.", i.number)
				i.setState(exited, p, client)
			}
		}
	}
}

func (i *instance) exitProblem(p *handlerProcess) error {
	if p.isKilledByHost.Load() || p.exitCode == 200 {
		return nil
	}
	return fmt.Errorf("handler exited with code %d: %s", p.exitCode,
		strings.Join(p.stderr.lastLines(), "; "))
}

// countError counts "problem" as an error of the handler. If "problem" is nil, it only logs the
// restart. It returns an error if the count has reached Config.GiveUpAfter.
func (i *instance) countError(problem error) error {
	if problem == nil {
		i.host.console.logOwn("Restarting the handler of instance %d.", i.number)
		return nil
	}

	n := i.errors.addError(i.host.console.now())
	i.host.console.logOwn("Worker error %d of instance %d: %v", n, i.number, problem)

	if limit := i.host.cfg.GiveUpAfter; limit > 0 && n >= limit {
		i.host.console.logOwn(
			"Exceeded http worker restart retry count. Shutting down Functions Host")
		return fmt.Errorf("exceeded the restart limit: %d errors of the handler of instance %d, the last: %w", n,
			i.number, problem)
	}

	return nil
}

// errorBucket counts errors. An error that comes more than errorGap after the previous error sets
// the count to 1.
type errorBucket struct {
	count int
	last  time.Time
}

const errorGap = 30 * time.Minute

func (b *errorBucket) addError(now time.Time) int {
	if now.Sub(b.last) > errorGap {
		b.count = 0
	}
	b.count++
	b.last = now
	return b.count
}

const (
	readyPause = 25 * time.Millisecond
	pingPause  = 10 * time.Second
)

// awaitReady sends GET / repeatedly until the handler answers, with any status. An error that is
// not a network error also counts as an answer. Only the pauses between the requests count towards
// initTimeout.
func (i *instance) awaitReady(ctx context.Context, client *http.Client) error {
	for spent := time.Duration(0); spent < i.host.app.initTimeout; spent += readyPause {
		err := i.getRoot(ctx, client)
		var network *net.OpError
		if err == nil || !errors.As(err, &network) && ctx.Err() == nil {
			return nil
		}
		if !sleepFor(ctx, readyPause) {
			return ctx.Err()
		}
	}

	return fmt.Errorf("handler did not answer on 127.0.0.1:%d within %v", i.handlerPort,
		i.host.app.initTimeout)
}

// pingHandler sends GET / every pingPause until ctx ends, as the real host's health checks do.
func (i *instance) pingHandler(ctx context.Context, client *http.Client) {
	for sleepFor(ctx, pingPause) {
		_ = i.getRoot(ctx, client) // the real host ignores the answer too
	}
}

func (i *instance) getRoot(ctx context.Context, client *http.Client) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, i.handlerURL("/"), nil)
	if err != nil {
		return err
	}

	res, err := client.Do(r)
	if err != nil {
		return err
	}

	return res.Body.Close()
}

// sleepFor waits for the time d. It returns false if ctx ends first.
func sleepFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()

	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
