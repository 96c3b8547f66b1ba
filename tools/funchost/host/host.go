package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/storage/azure"
	"weir/tools/freeport"
)

// Config says what to run and how.
type Config struct {
	ScriptRoot  string    // folder of host.json
	Port        int       // 0 = a free one
	Instances   int       // 0 = one
	Out         io.Writer // the host's lines and the handlers'; nil = nowhere
	Quiet       bool      // no lines about single invocations that succeed
	Env         []string  // nil = this process's
	EnableAuth  bool      // keys are checked; otherwise everyone is admin, as under func start
	Key         string    // host function key
	MasterKey   string    // satisfies every level
	StateDir    string    // where timers' status is kept; empty = a folder of the script root's own in the system's temporary folder
	GiveUpAfter int       // errors of a handler after which the host ends: 0 = 3 as the real one, negative = never
	Now         func() time.Time
	// MessageLease is how long a dequeued message is hidden; renewed at half of it. 0 = 10 minutes as the real host.
	MessageLease time.Duration
	HTTP         Mode // how old the host is in its way with HTTP; empty = Proxying
	Traceparent  bool // Application Insights is connected: calls without a trace get one
}

// stopTimeout is what in-flight work gets when the host stops.
const stopTimeout = 10 * time.Second

// Host is a running stand-in.
type Host struct {
	cfg     Config
	app     *app
	console *console
	server  *http.Server
	address string
	failed  chan error
	storage azure.Counter // of the host's own requests

	listening context.Context // ends first: nothing new is taken
	deafen    context.CancelFunc
	work      sync.WaitGroup // in-flight messages and timer runs, and their listeners
	serving   errgroup.Group

	mu        sync.Mutex
	instances []*instance
	stopping  bool
	turn      atomic.Uint64
}

// Run starts a host and runs it until ctx ends or it must give up.
func Run(ctx context.Context, cfg Config) error {
	h, err := Start(cfg)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case err = <-h.failed:
		h.console.log("The host is stopping: %v", err)
	}
	h.Stop()
	return err
}

// Start reads the script root, listens, and starts the handlers. It does not wait until they are
// ready: as with the real host, requests do.
func Start(cfg Config) (*Host, error) {
	h, err := prepare(cfg)
	if err != nil {
		return nil, err
	}
	socket, err := listen(cfg.Port)
	if err != nil {
		return nil, err
	}
	h.address = socket.Addr().String()
	h.announce()
	h.listening, h.deafen = context.WithCancel(context.Background())
	for range max(cfg.Instances, 1) {
		if _, err := h.addInstance(); err != nil {
			_ = socket.Close()
			h.Stop()
			return nil, err
		}
	}
	h.startTimers()
	h.serving.Go(func() error { return h.server.Serve(lenientListener{socket}) })
	return h, nil
}

func prepare(cfg Config) (*Host, error) {
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
	if cfg.MessageLease == 0 {
		cfg.MessageLease = 10 * time.Minute
	}
	root, err := filepath.Abs(cfg.ScriptRoot)
	if err != nil {
		return nil, fmt.Errorf("script root: %w", err)
	}
	h := &Host{cfg: cfg, failed: make(chan error, 1), console: &console{out: cfg.Out, now: cfg.Now, quiet: cfg.Quiet}}
	env := newEnviron(cfg.Env)
	warnings, err := env.localSettings(root)
	for _, w := range warnings {
		h.console.log("%s", w)
	}
	if err != nil {
		return nil, err
	}
	env.set("AZURE_FUNCTIONS_ENVIRONMENT", "Development") // as func start forces it
	if h.app, err = readApp(root, env); err != nil {
		return nil, err
	}
	h.server = h.newServer()
	return h, nil
}

// listen binds now, so that a taken port is an error of the start.
func listen(port int) (net.Listener, error) {
	socket, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("port %d is unavailable: close the process using that port, or specify another port using --port: %w", port, err)
	}
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return socket, nil
}

// announce prints the functions as func does.
func (h *Host) announce() {
	h.console.plain("\nFunctions:\n")
	for _, f := range h.app.functions {
		line := f.name + ": " + f.trigger.Type
		if f.isHTTP() {
			methods := ""
			if len(f.trigger.Methods) > 0 {
				methods = "[" + strings.ToUpper(strings.Join(f.trigger.Methods, ",")) + "] "
			}
			line = f.name + ": " + methods + h.URL() + "/" + f.route.text
		}
		if f.disabled {
			line += " (disabled)"
		}
		h.console.plain("\t" + line + "\n")
	}
}

// URL is the address of the host, without a slash at its end.
func (h *Host) URL() string { return "http://" + h.address }

// Transactions gives the requests that the host itself has sent to storage (polls, deletes,
// renewals, over all instances), under keys such as "queue get". The handlers count their own.
func (h *Host) Transactions() map[string]int64 { return h.storage.Snapshot() }

// Failed gives the reason when the host must give up; it is then to be stopped.
func (h *Host) Failed() <-chan error { return h.failed }

func (h *Host) fail(err error) {
	select {
	case h.failed <- err:
	default: // the first reason counts
	}
}

// addInstance starts one more handler and its queue listeners.
func (h *Host) addInstance() (*instance, error) {
	port, err := freeport.Pick()
	if err != nil {
		return nil, err
	}
	i := &instance{host: h, port: port, state: starting, changed: make(chan struct{}), ended: make(chan struct{})}
	i.life, i.end = context.WithCancel(context.Background())
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopping {
		i.end()
		return nil, errors.New("the host is stopping")
	}
	if i.listeners, err = h.newListeners(i); err != nil {
		i.end()
		return nil, err
	}
	i.number = len(h.instances) + 1
	h.instances = append(h.instances, i)
	go func() {
		if err := i.run(); err != nil {
			h.fail(err)
		}
	}()
	for _, l := range i.listeners {
		h.work.Go(l.run)
	}
	return i, nil
}

// all gives every instance there has been.
func (h *Host) all() []*instance {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]*instance(nil), h.instances...)
}

// next picks the instance for an HTTP request: those alive, in turn.
func (h *Host) next() *instance {
	var alive []*instance
	for _, i := range h.all() {
		if i.alive() {
			alive = append(alive, i)
		}
	}
	if len(alive) == 0 {
		return nil
	}
	return alive[h.turn.Add(1)%uint64(len(alive))]
}

// Stop takes nothing new, gives what is in flight ten seconds, and kills the handlers.
// No process is left when it returns.
func (h *Host) Stop() {
	h.mu.Lock()
	first := !h.stopping
	h.stopping = true
	h.mu.Unlock()
	if !first {
		return
	}
	h.deafen()
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	idle := make(chan struct{})
	go func() { h.work.Wait(); close(idle) }()
	late := h.server.Shutdown(ctx)
	select {
	case <-idle:
	case <-ctx.Done():
		h.console.log("Work is still in flight; its messages stay hidden until their lease ends.")
	}
	for _, i := range h.all() {
		i.end()
		<-i.ended
	}
	<-idle
	if late != nil {
		_ = h.server.Close()
	}
	_ = h.serving.Wait() // ErrServerClosed
	h.console.log("The host has stopped.")
}
