package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/storage/azure"
	"weir/tools/freeport"
)

// Config is the configuration of a host.
type Config struct {
	ScriptRoot string // folder of host.json
	Port       int    // 0 = a free one
	Instances  int    // number of instances; 0 = 1
	// groups of functions with their numbers of instances; if set, Instances is ignored
	Groups     []Group
	Out        io.Writer // gets the lines of the host and the handlers; nil = the host writes none
	Quiet      bool      // the host writes no lines about single invocations that succeed
	Env        []string  // environment; nil = the environment of this process
	EnableAuth bool      // check keys; false = every caller can do everything, as under func start
	Key        string    // key for all functions whose authLevel is "function"
	MasterKey  string    // key for all functions and /admin
	// FunctionKeys has keys of single functions, by the functions' names.
	FunctionKeys map[string]string
	// folder for the timers' status; empty = a folder in os.TempDir for each script root
	StateDir string
	// errors of a handler until the host gives up; 0 = 3, as in the real host; negative = no limit
	GiveUpAfter int
	// Now returns the time; nil = time.Now.
	Now func() time.Time
	// MessageLease is the time for which the host hides a dequeued message. The host renews the
	// lease when half of this time has passed. 0 = 10 minutes, as in the real host.
	MessageLease time.Duration
	HTTP         Mode // how the host passes HTTP requests on; empty = Proxying
	// add a Traceparent header to calls without one, as the real host does with Application
	// Insights
	Traceparent bool
	// StopWait is the longest time for which a stopping host waits for queue and timer invocations.
	// 0 = 10 s, as in the real host.
	StopWait time.Duration
	// StopTakes is the shortest time between the close of the host's socket and the kill of the
	// handlers. In the real host this time is about 0.3 s. 0 = no minimum.
	StopTakes time.Duration
	// Orphan lets a handler outlive its parent process in two cases, as the real host was seen to
	// do:
	//
	//   - A queue or timer invocation outlasts StopWait.
	//   - The host itself is killed.
	//
	// Use Orphan only if the host has a process of its own, which ends after Stop. Without Orphan
	// no handler outlives the host on Linux. On other systems a handler still outlives a host that
	// is killed.
	Orphan bool
	// ListenAfter is the time between the start of the handlers and the moment at which the host
	// listens. In the real host this time is about a second.
	ListenAfter time.Duration
	// IdleKill is the time without an invocation after which the host ends an instance by SIGKILL.
	// A request, a message or a timer of the instance's group starts the instance again. 0 = the
	// host never ends an idle instance.
	IdleKill time.Duration
	// Development sets AZURE_FUNCTIONS_ENVIRONMENT=Development, as func start does. If false, the
	// variable keeps its value. The setting maxPollingInterval of host.json is the longest pause
	// between two polls of an idle queue; its default is one minute. In development, a
	// maxPollingInterval of one minute counts as two seconds. In development the host answers 421
	// to requests whose Host does not name this machine.
	Development bool
}

// Host is a running stand-in for the Azure Functions host.
type Host struct {
	cfg     Config
	app     *app
	groups  []Group
	console *console
	server  *http.Server
	address string
	failed  chan error
	storage azure.Counter // counts the requests that the host itself sends

	listening     context.Context // its end stops the listeners; the handlers live on
	stopListening context.CancelFunc
	// listeners, their invocations, watches of instances; Stop waits for them
	background sync.WaitGroup
	serving    errgroup.Group

	mu         sync.Mutex
	instances  []*instance
	replaced   []*instance // instances that have a successor and have not ended yet
	isStopping bool
	isDraining bool
	nextTurn   uint64
}

// Run starts a host, and stops it when ctx ends or the host gives up. It returns the error of the
// start, or the reason for giving up.
func Run(ctx context.Context, cfg Config) error {
	h, err := Start(cfg)
	if err != nil {
		return err
	}

	select {
	case <-ctx.Done():
	case err = <-h.failed:
		h.console.logOwn("The host is stopping: %v", err)
	}

	h.Stop()

	return err
}

// Start reads the script root, starts the handlers, and then listens. It does not wait until the
// handlers are ready: the first requests wait, as with the real host.
func Start(cfg Config) (*Host, error) {
	h, err := newHost(cfg)
	if err != nil {
		return nil, err
	}

	bound, err := takePort(cfg.Port)
	if err != nil {
		return nil, err
	}

	h.address = bound.address
	printFunctions(h)
	h.listening, h.stopListening = context.WithCancel(context.Background())
	if err := h.addGroups(); err != nil {
		bound.closeSocket()
		h.Stop()
		return nil, err
	}

	sleepFor(h.listening, cfg.ListenAfter)
	socket, err := bound.startListening()
	if err != nil {
		h.Stop()
		return nil, fmt.Errorf("listen: %w", err)
	}

	h.console.logOwn("Now listening on: %s", h.URL())
	h.mu.Lock()
	h.startTimers()
	err = startScaling(h)
	h.mu.Unlock()
	h.serving.Go(func() error { return h.server.Serve(lenientListener{socket}) })

	if err != nil {
		h.Stop()
		return nil, err
	}

	return h, nil
}

func newHost(cfg Config) (*Host, error) {
	if cfg.Out == nil {
		cfg.Out = io.Discard
	}

	if cfg.Now == nil {
		cfg.Now = time.Now
	}

	if cfg.Env == nil {
		cfg.Env = os.Environ()
	}

	if cfg.GiveUpAfter == 0 {
		cfg.GiveUpAfter = 3
	}

	cfg.MessageLease = cmp.Or(cfg.MessageLease, 10*time.Minute)
	cfg.StopWait = cmp.Or(cfg.StopWait, 10*time.Second)
	root, err := filepath.Abs(cfg.ScriptRoot)
	if err != nil {
		return nil, fmt.Errorf("script root: %w", err)
	}

	h := &Host{cfg: cfg, failed: make(chan error, 1),
		console: &console{out: cfg.Out, now: cfg.Now, quiet: cfg.Quiet}}
	env := newEnviron(cfg.Env)
	warnings, err := env.addLocalSettings(root)
	for _, w := range warnings {
		h.console.logOwn("%s", w)
	}

	if err != nil {
		return nil, err
	}

	if cfg.Development {
		env.setVar("AZURE_FUNCTIONS_ENVIRONMENT", "Development")
	}

	if h.app, err = readApp(root, env); err != nil {
		return nil, err
	}

	h.console.filter = h.app.filter
	for _, problem := range h.app.indexingErrors {
		h.console.logOwn("%v", problem)
	}

	h.groups = configuredGroups(cfg, env)
	if err := h.app.checkGroups(h.groups); err != nil {
		return nil, err
	}

	h.server = httpFront{h}.newServer()

	return h, nil
}

// takePort binds the port. Start calls takePort before it starts the handlers, and so fails early
// if another program uses the port.
func takePort(port int) (*boundSocket, error) {
	bound, err := bindPort(port)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf(
			"port %d is unavailable: close the process using that port, or specify another port "+
				"using --port: %w", port, err)
	}

	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}

	return bound, nil
}

// printFunctions prints the functions as func start does.
func printFunctions(h *Host) {
	h.console.writeLine("\nFunctions:\n")
	for _, f := range h.app.functions {
		line := f.name + ": " + f.trigger.Type
		if f.isHTTP() {
			methods := ""
			if len(f.trigger.Methods) > 0 {
				methods = "[" + strings.ToUpper(strings.Join(f.trigger.Methods, ",")) + "] "
			}
			line = f.name + ": " + methods + h.URL() + "/" + f.route.text
		}

		if f.isDisabled {
			line += " (disabled)"
		}

		h.console.writeLine("\t" + line + "\n")
	}
}

// URL returns the address of the host, without a trailing slash.
func (h *Host) URL() string { return "http://" + h.address }

// Transactions returns the numbers of requests that the host itself has sent to storage, by
// operation, such as "queue get". The numbers are sums over all instances. Requests of the handlers
// are not counted.
func (h *Host) Transactions() map[string]int64 { return h.storage.Snapshot() }

// Failed returns a channel that gets the reason when the host gives up. The caller must then call
// Stop.
func (h *Host) Failed() <-chan error { return h.failed }

func (h *Host) reportFatal(err error) {
	select {
	case h.failed <- err:
	default: // only the first reason is reported
	}
}

func (h *Host) addGroups() error {
	for _, g := range h.groups {
		for range g.Instances {
			if _, err := h.addInstance(g.Name); err != nil {
				return err
			}
		}
	}

	return nil
}

func (h *Host) addInstance(group string) (*instance, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isStopping {
		return nil, errStopping
	}

	i, err := h.launchInstance(len(h.instances)+1, group)
	if err != nil {
		return nil, err
	}

	h.instances = append(h.instances, i)

	return i, nil
}

// launchInstance starts a handler with its queue listeners. The caller has locked h.mu, and must
// put the instance into h.instances.
func (h *Host) launchInstance(number int, group string) (*instance, error) {
	port, err := freeport.Pick()
	if err != nil {
		return nil, err
	}

	i := &instance{
		host: h, number: number, group: group, handlerPort: port,
		state: starting, changed: make(chan struct{}), ended: make(chan struct{}),
	}

	i.lifetime, i.crash = context.WithCancel(context.Background())
	i.listening, i.stopListening = context.WithCancel(h.listening)
	if i.listeners, err = i.newListeners(); err != nil {
		i.stopListening()
		i.crash()
		return nil, err
	}

	go func() {
		if err := i.superviseHandler(); err != nil {
			h.reportFatal(err)
		}
	}()

	if h.cfg.IdleKill > 0 {
		h.background.Go(func() { i.scaleInWhenIdle(h.cfg.IdleKill) })
	}

	for _, l := range i.listeners {
		i.polling.Add(1)
		h.background.Go(func() { defer i.polling.Done(); l.pollUntilStopped() })
	}

	return i, nil
}

// allInstances returns the latest instance of each number, even if that instance has ended.
func (h *Host) allInstances() []*instance {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]*instance(nil), h.instances...)
}

func (h *Host) allReplaced() []*instance {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]*instance(nil), h.replaced...)
}

// pickInstance returns an instance for an invocation, and takes the available instances of the
// function in turn. If no instance is available, it starts a scaled-in instance again. If it can
// start none, i is nil. The invocation counts as in flight until the caller calls leave.
func (h *Host) pickInstance(f *function) (i *instance, leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()

	if available := h.availableFor(f); len(available) > 0 {
		h.nextTurn++
		i = available[h.nextTurn%uint64(len(available))]
	} else if i = h.scaleOut(h.instancesFor(f)); i == nil {
		return nil, func() {}
	}

	return i, i.inFlight.beginInvocation(f)
}

// Stop ends the host as SIGTERM ends the real host. The listening socket closes at once, and the
// listeners stop. The host waits until all HTTP requests have ended, and at most StopWait for queue
// and timer invocations. Then the handlers get SIGKILL, and no other signal. The first call returns
// when all handlers have ended, except handlers that live on because of Config.Orphan. A further
// call returns at once.
func (h *Host) Stop() {
	h.mu.Lock()
	first := !h.isStopping
	h.isStopping = true
	h.mu.Unlock()
	if !first {
		return
	}

	closed := make(chan struct{})
	go func() {
		// without a deadline, only the close of the socket can fail
		_ = h.server.Shutdown(context.Background())
		close(closed)
	}()

	h.stopTaking()
	earliest, cancel := context.WithTimeout(context.Background(), h.cfg.StopTakes)
	defer cancel()
	var retiring sync.WaitGroup
	for _, i := range append(h.allInstances(), h.allReplaced()...) {
		retiring.Go(func() { i.endInOrder(h.cfg.StopWait, func() { <-closed; <-earliest.Done() }) })
	}

	retiring.Wait()
	h.background.Wait()
	<-closed
	_ = h.serving.Wait() // the error is ErrServerClosed
	h.console.logOwn("The host has stopped.")
}
