// Package fleet runs several instances of an app on the same storage, as the platform does. Each
// instance is a funchost process with its own listening socket, and the handler is its child. A
// front spreads requests over the instances. The package is for tests that stop or kill an
// instance, or whose handler watches its host.
package fleet

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"weir/tools/funchost/host"
)

// Options has the settings that all hosts of a fleet share. The hosts do not share timers: each
// host runs all timer functions of its group of functions, which the flag --group selects.
type Options struct {
	Binary string    // the funchost program, as Build makes it
	Args   []string  // arguments of each host; --script-root is required
	Env    []string  // variables for each host, added to this process's environment
	Out    io.Writer // gets the hosts' output; nil = the output is dropped
}

// Fleet is a set of hosts behind a front, which spreads requests over the hosts.
type Fleet struct {
	options Options
	front   *http.Server
	address string
	serving sync.WaitGroup

	mu       sync.Mutex
	hosts    []*Host
	nextTurn int
}

// Build compiles funchost into a directory and returns the program's path.
func Build(dir string) (string, error) {
	program := filepath.Join(dir, "funchost")
	if out, err := exec.Command("go", "build", "-o", program, "weir/tools/funchost").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build funchost: %w\n%s", err, out)
	}
	return program, nil
}

// Start starts the front of a fleet that has no hosts yet. The caller must call Close.
func Start(o Options) (*Fleet, error) {
	if o.Out == nil {
		o.Out = io.Discard
	}

	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}

	f := &Fleet{options: o, address: socket.Addr().String()}
	f.front = &http.Server{Handler: f.newFront(), ReadHeaderTimeout: time.Minute}
	f.serving.Go(func() { _ = f.front.Serve(socket) }) // the error is ErrServerClosed

	return f, nil
}

// URL returns the address of the front, without a slash at its end.
func (f *Fleet) URL() string { return "http://" + f.address }

// Hosts returns all hosts in the order in which Add started them, also those that have ended.
func (f *Fleet) Hosts() []*Host {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.hosts)
}

// Close ends the front. It kills all hosts, and the handlers that have outlived their hosts.
func (f *Fleet) Close() {
	_ = f.front.Close()
	for _, h := range f.Hosts() {
		h.killGroup()
	}
	f.serving.Wait()
}

// Host is one funchost process.
type Host struct {
	cmd        *exec.Cmd
	url        string
	servesHTTP bool
	done       chan struct{}
	err        error // result of the process; set before done is closed
}

// Add starts a host with further arguments, and waits until the host listens. If ctx ends first,
// Add kills the host. The front sends requests to the host only if args have no --group or name the
// group http.
func (f *Fleet) Add(ctx context.Context, args ...string) (*Host, error) {
	h := &Host{done: make(chan struct{}), servesHTTP: groupOf(args) == "" ||
		groupOf(args) == "http"}
	h.cmd = exec.Command(f.options.Binary,
		slices.Concat(f.options.Args, []string{"--port", "0"}, args)...)
	h.cmd.Env = append(os.Environ(), f.options.Env...)

	// The process group lets killGroup reach a handler that has outlived its host.
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, in := io.Pipe()
	h.cmd.Stdout, h.cmd.Stderr = in, in
	if err := h.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start host: %w", err)
	}

	go func() {
		h.err = h.cmd.Wait()
		_ = in.Close()
		close(h.done)
	}()

	listening := make(chan string, 1)
	f.serving.Go(func() { f.relayOutput(out, listening) })
	f.mu.Lock()
	f.hosts = append(f.hosts, h)
	f.mu.Unlock()

	return h, f.awaitListening(ctx, h, listening)
}

func groupOf(args []string) string {
	if at := slices.Index(args, "--group"); at >= 0 && at+1 < len(args) {
		return args[at+1]
	}
	return ""
}

var listensOn = regexp.MustCompile(`Now listening on: (http://[0-9.:]+)`)

// relayOutput copies a host's output to Options.Out. The channel gets the address on which the host
// listens.
func (f *Fleet) relayOutput(out io.Reader, listening chan<- string) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		_, _ = io.WriteString(f.options.Out, line) // there is nowhere to report an error
		if m := listensOn.FindStringSubmatch(line); m != nil {
			listening <- m[1]
		}

		if err != nil {
			return
		}
	}
}

func (f *Fleet) awaitListening(ctx context.Context, h *Host, listening <-chan string) error {
	select {
	case url := <-listening:
		f.mu.Lock()
		h.url = url
		f.mu.Unlock()
		return nil

	case <-h.done:
		return fmt.Errorf("the host ended before it listened: %w",
			cmp.Or(h.err, errors.New("exit code 0")))
	case <-ctx.Done():
		h.killGroup()
		return fmt.Errorf("the host does not listen: %w", ctx.Err())
	}
}

// URL returns the address of this host, without a slash at its end.
func (h *Host) URL() string { return h.url }

// PID returns the process id of the host. Status has the handler's process id.
func (h *Host) PID() int { return h.cmd.Process.Pid }

// Done returns a channel that is closed when the host's process has ended.
func (h *Host) Done() <-chan struct{} { return h.done }

// Stop sends SIGTERM to the host, as the platform does. It does not wait until the host has ended;
// see Done.
func (h *Host) Stop() error { return h.cmd.Process.Signal(syscall.SIGTERM) }

// Kill ends the host by SIGKILL, and waits until the host has ended. The handler then dies, too,
// except if the host has the flag --orphan.
func (h *Host) Kill() error {
	err := h.cmd.Process.Kill()
	<-h.done
	return err
}

// killGroup kills the host and its handler, and waits until the host has ended.
func (h *Host) killGroup() {
	// an error means that no process of the group is left
	_ = syscall.Kill(-h.PID(), syscall.SIGKILL)
	<-h.done
}

// Status returns the answer of the host to GET /admin/host/status.
func (h *Host) Status(ctx context.Context) (host.Status, error) {
	var s host.Status
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url+"/admin/host/status", nil)
	if err != nil {
		return s, err
	}

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(r)
	if err != nil {
		return s, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return s, fmt.Errorf("status: %s", res.Status)
	}

	return s, json.NewDecoder(res.Body).Decode(&s)
}
