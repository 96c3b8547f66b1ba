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

// state is where an instance stands.
type state string

const (
	starting state = "starting" // invocations wait
	running  state = "running"
	zombie   state = "exited" // the handler ended with 0: nothing restarts it
	gone     state = "gone"
)

// instance is what the platform would run on one machine: one handler process and, in
// the queue listeners, those who call it.
type instance struct {
	host   *Host
	number int
	group  string
	port   int // kept over restarts
	life   context.Context
	end    context.CancelFunc // a crash: no more calls, nothing released
	ended  chan struct{}

	taking     context.Context // ends before life: the listeners take nothing more
	deafen     context.CancelFunc
	retiring   atomic.Bool // takes nothing new and ends after its invocations
	isScaledIn atomic.Bool // ended for want of work, and to be started for the next
	orphaned   atomic.Bool // its handler outlives it
	inFlight   inFlight
	listeners  []*listener // of its queue functions
	polling    sync.WaitGroup

	mu      sync.Mutex
	state   state
	process *process
	client  *http.Client // one per process: no connection outlives its process
	changed chan struct{}
	errors  errorBucket
}

var (
	errGone    = errors.New("the instance is gone")
	errTimeout = errors.New("the function timed out; its handler process is ended")
)

func (i *instance) set(s state, p *process, c *http.Client) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.state, i.process, i.client = s, p, c
	close(i.changed)
	i.changed = make(chan struct{})
}

func (i *instance) now() (state, *process, *http.Client, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.state, i.process, i.client, i.changed
}

func (i *instance) alive() bool { s, _, _, _ := i.now(); return s != gone }

func (i *instance) hostPort() string { return fmt.Sprintf("127.0.0.1:%d", i.port) }

func (i *instance) url(path string) string { return "http://" + i.hostPort() + path }

// run keeps the handler running until life ends or the host must give up.
func (i *instance) run() error {
	defer close(i.ended)
	defer i.set(gone, nil, nil)
	defer i.end()
	defer i.deafen()
	for {
		id := newGUID()
		p, err := i.startProcess(id)
		if err != nil {
			return err // the real host would first let an invocation wait in vain
		}
		client := newHandlerClient(i.host.app.forwarding)
		i.set(starting, p, client)
		problem := i.attend(p, client)
		client.CloseIdleConnections()
		if i.life.Err() != nil || i.retiring.Load() {
			return nil // a stopping host starts nothing: Ctrl-C may have ended the handler first
		}
		i.set(starting, nil, nil)
		if err := i.judge(problem); err != nil {
			return err
		}
	}
}

// noLimit lets retire wait for as long as it takes.
const noLimit time.Duration = -1

// retire ends the instance in order: it takes nothing new, queue and timer invocations get so long to
// end, HTTP requests as long as they need. Then the handler is killed; with Orphan one that is still at an
// invocation is left behind, and only the connection to it is closed.
func (i *instance) retire(wait time.Duration, awaitHTTP func()) {
	i.host.mu.Lock() // against take
	i.retiring.Store(true)
	i.host.mu.Unlock()
	i.windDown(wait, awaitHTTP)
}

func (i *instance) windDown(wait time.Duration, awaitHTTP func()) {
	i.deafen()
	i.polling.Wait()
	ctx, cancel := i.life, context.CancelFunc(func() {})
	if wait != noLimit {
		ctx, cancel = context.WithTimeout(i.life, wait)
	}
	defer cancel()
	if !i.inFlight.awaitOthers(ctx) && i.life.Err() == nil {
		i.host.console.log("Instance %d still runs invocations after %v; their messages stay hidden until their lease ends.", i.number, wait)
		i.orphaned.Store(i.host.cfg.Orphan)
	}
	awaitHTTP()
	i.end()
	<-i.ended
}

// awaitHTTP waits until no HTTP request is in flight on the instance.
func (i *instance) awaitHTTP() {
	i.inFlight.await(i.life, func(http, _ int) bool { return http == 0 })
}

func (i *instance) environment(workerID string) []string {
	port := fmt.Sprint(i.port)
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
	return i.host.app.env.pairs(more)
}

// attend watches one process to its end, and says what was wrong; nil where that is no error.
func (i *instance) attend(p *process, client *http.Client) error {
	ctx, cancel := context.WithCancel(i.life)
	defer cancel()
	ready := make(chan error, 1)
	go func() { ready <- i.awaitReady(ctx, client) }()
	exited, isReady := p.done, false
	for {
		select {
		case <-i.life.Done():
			if !i.orphaned.Load() {
				p.kill()
			}
			return nil
		case err := <-ready:
			if err != nil {
				p.kill()
				return err
			}
			isReady, ready = true, nil
			i.set(running, p, client)
			i.host.console.log("Worker process started and initialized. (instance %d, pid %d, port %d)", i.number, p.pid(), i.port)
			go i.ping(ctx, client)
		case <-exited:
			if p.code != 0 || p.ours.Load() {
				return i.exitProblem(p)
			}
			exited = nil // before it was ready, the readiness budget runs out
			if isReady {
				i.host.console.log("The handler of instance %d exited with 0. It is not restarted: every invocation fails from now on.", i.number)
				i.set(zombie, p, client)
			}
		}
	}
}

func (i *instance) exitProblem(p *process) error {
	if p.ours.Load() || p.code == 200 {
		return nil
	}
	return fmt.Errorf("handler exited with code %d: %s", p.code, strings.Join(p.stderr.tail(), "; "))
}

// judge counts an error and says when there have been too many.
func (i *instance) judge(problem error) error {
	if problem == nil {
		i.host.console.log("Restarting the handler of instance %d.", i.number)
		return nil
	}
	n := i.errors.add(i.host.console.now())
	i.host.console.log("Worker error %d of instance %d: %v", n, i.number, problem)
	if limit := i.host.cfg.GiveUpAfter; limit > 0 && n >= limit {
		i.host.console.log("Exceeded http worker restart retry count. Shutting down Functions Host")
		return fmt.Errorf("exceeded the restart limit: %d errors of the handler of instance %d, the last: %w", n, i.number, problem)
	}
	return nil
}

// errorBucket counts errors; one that comes long after the one before starts anew.
type errorBucket struct {
	count int
	last  time.Time
}

const errorGap = 30 * time.Minute

func (b *errorBucket) add(now time.Time) int {
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

// awaitReady asks GET / until anything answers. Only the pauses count towards the budget.
func (i *instance) awaitReady(ctx context.Context, client *http.Client) error {
	for spent := time.Duration(0); spent < i.host.app.initTimeout; spent += readyPause {
		err := i.get(ctx, client)
		var network *net.OpError
		if err == nil || !errors.As(err, &network) && ctx.Err() == nil {
			return nil
		}
		if !pause(ctx, readyPause) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("handler did not answer on 127.0.0.1:%d within %v", i.port, i.host.app.initTimeout)
}

// ping asks now and then for the whole life of the process, as health checks do.
func (i *instance) ping(ctx context.Context, client *http.Client) {
	for pause(ctx, pingPause) {
		_ = i.get(ctx, client) // the real host ignores the answer too
	}
}

func (i *instance) get(ctx context.Context, client *http.Client) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, i.url("/"), nil)
	if err != nil {
		return err
	}
	res, err := client.Do(r)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// pause waits, and says whether it could to the end.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
