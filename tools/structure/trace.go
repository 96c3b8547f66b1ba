package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"weir/internal/testkit/azurite"
	"weir/tools/freeport"
)

//go:embed settings.yaml
var settingsYAML string

const (
	// startLimit and deliverLimit bound the waits for the program, on a busy machine, too.
	startLimit   = 2 * time.Minute
	deliverLimit = time.Minute
	// idleTime lies between the start of the program and the message. It contains a sweep of the
	// timer, which runs each minute, so no sweep counts as code of the message.
	idleTime = 70 * time.Second
	// endTime lets the holder linger at the empty lane, and hand it over.
	endTime = 6 * time.Second
)

const article = `<article path="/news/1" version="1"><title>One message</title></article>`

// traceMessage returns the blocks of code that one message runs in a started process, and that the
// process does not run without the message.
//
// The message finds a process that has started, and a lane that was used before: another process
// has delivered a message with the same key. So the code that starts or ends a process, and the
// code that creates what a lane has in storage, are not the code of a message. The code with which
// a holder takes the lane, and hands it over, is.
func traceMessage(ctx context.Context, dir string) (coverage, error) {
	work, err := os.MkdirTemp("", "weir-structure-")
	if err != nil {
		return coverage{}, err
	}
	defer os.RemoveAll(work)

	r := &tracer{dir: dir, work: work}
	if err := r.buildPrograms(ctx); err != nil {
		return coverage{}, err
	}

	storage, err := azurite.Start(ctx, azurite.Options{})
	if err != nil {
		return coverage{}, err
	}
	defer storage.Stop()
	r.connection = storage.ConnectionString()

	err = r.runProgram(ctx, func(ctx context.Context, p program) error {
		return p.passMessage(ctx)
	})
	if err != nil {
		return coverage{}, fmt.Errorf("first use of the lane: %w", err)
	}

	var idle, busy coverage
	err = r.runProgram(ctx, func(ctx context.Context, p program) (err error) {
		if err := waitFor(ctx, idleTime); err != nil {
			return err
		}
		if idle, err = p.readCounters(ctx, "idle"); err != nil {
			return err
		}

		if err := p.passMessage(ctx); err != nil {
			return err
		}
		busy, err = p.readCounters(ctx, "busy")

		return err
	})

	return busy.without(idle), err
}

// tracer runs the program of one tree.
type tracer struct {
	dir, work, connection string
}

// buildPrograms builds the program of the tree with counters, and the host of this command's tree.
func (r *tracer) buildPrograms(ctx context.Context) error {
	source := filepath.Join(r.work, "source")
	if err := r.copySource(source); err != nil {
		return err
	}

	builds := []*exec.Cmd{
		// only counters of the mode atomic can be written while the program goes on
		exec.CommandContext(ctx, "go", "build", "-cover", "-covermode=atomic", "-coverpkg",
			module+"/...", "-o", filepath.Join(r.work, "app", "handler"), "./handler"),
		exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(r.work, "funchost"),
			"weir/tools/funchost"),
	}

	builds[0].Dir = source
	for _, build := range builds {
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(build.Args, " "), err, out)
		}
	}

	return r.stageApp()
}

// snapshotSource is a file of the main package, for the traced program alone. It writes the
// counters when a file asks for them, while the program goes on.
//
//go:embed snapshot.go.txt
var snapshotSource []byte

// copySource copies the packages of the program into a folder, and adds snapshotSource. The tool
// that adds counters reads no file of an overlay.
func (r *tracer) copySource(to string) error {
	for _, name := range []string{"handler", "internal", "functions"} {
		if err := os.CopyFS(filepath.Join(to, name), os.DirFS(filepath.Join(r.dir, name))); err !=
			nil {
			return err
		}
	}

	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(r.dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), text, 0o600)
		}

		if err != nil {
			return err
		}
	}

	return os.WriteFile(filepath.Join(to, "handler", "structure_snapshot.go"), snapshotSource,
		0o600)
}

// stageApp makes the folder that the host serves: settings, host.json and the functions.
func (r *tracer) stageApp() error {
	app := filepath.Join(r.work, "app")
	if err := os.WriteFile(filepath.Join(app, "weir.yaml"), []byte(settingsYAML), 0o600); err !=
		nil {
		return err
	}

	functions, err := filepath.Glob(filepath.Join(r.dir, "functions", "*", "function.json"))
	if err != nil {
		return err
	}

	for _, path := range append(functions, filepath.Join(r.dir, "host.json")) {
		target := filepath.Join(app, strings.TrimPrefix(path, filepath.Join(r.dir, "functions")))
		if filepath.Base(path) == "host.json" {
			target = filepath.Join(app, "host.json")
		}

		text, err := os.ReadFile(path)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(target), 0o750)
		}

		if err == nil {
			err = os.WriteFile(target, text, 0o600)
		}

		if err != nil {
			return err
		}
	}

	return nil
}

// program is the traced program under a host.
type program struct {
	address  string // of the host
	counters string // folder for the counters
}

// runProgram starts the program under a host, calls work, and stops both. The CMS accepts each
// request.
func (r *tracer) runProgram(ctx context.Context, work func(context.Context, program) error) error {
	counters, err := os.MkdirTemp(r.work, "counters-")
	if err != nil {
		return err
	}

	cms := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		w.WriteHeader(http.StatusCreated)
	}))
	defer cms.Close()

	port, err := freeport.Pick()
	if err != nil {
		return err
	}

	p := program{fmt.Sprintf("http://127.0.0.1:%d", port), counters}
	host := exec.CommandContext(ctx, filepath.Join(r.work, "funchost"), "--script-root",
		filepath.Join(r.work, "app"), "--port", fmt.Sprint(port), "--state-dir", counters)
	host.Env = append(os.Environ(), "GOCOVERDIR="+counters, "FUNCTIONS_WORKER_RUNTIME=custom",
		"AzureWebJobsStorage="+r.connection, "WEIR_PREFIX=structure", "WEIR_CMS_URL="+cms.URL,
		"ASPNETCORE_URLS="+p.address)
	var output outputBuffer
	host.Stdout, host.Stderr = &output, &output
	if err := host.Start(); err != nil {
		return err
	}

	err = awaitStatus(ctx, p.address+"/api/health", startLimit)
	if err == nil {
		err = work(ctx, p)
	}

	err = errors.Join(err, host.Process.Signal(syscall.SIGTERM), host.Wait())
	if err != nil {
		return fmt.Errorf("%w\n%s", err, output.String())
	}

	return nil
}

// readCounters lets the program write its counters, and returns all that it has run so far. Each
// call has another name.
func (p program) readCounters(ctx context.Context, name string) (coverage, error) {
	dir := filepath.Join(p.counters, name)
	if err := os.Mkdir(dir, 0o750); err != nil {
		return coverage{}, err
	}

	asked := filepath.Join(p.counters, "snapshot")
	if err := os.WriteFile(asked, []byte(dir), 0o600); err != nil {
		return coverage{}, err
	}

	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()

	for {
		if _, err := os.Stat(asked); errors.Is(err, os.ErrNotExist) {
			return readCoverage(ctx, dir)
		}
		if err := waitFor(ctx, 100*time.Millisecond); err != nil {
			return coverage{}, fmt.Errorf("the program has written no counters: %w", err)
		}
	}
}

// outputBuffer keeps the output of a process and its children. Safe for concurrent use.
type outputBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *outputBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *outputBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// passMessage posts a message, lets the program deliver it, and reads its status once.
func (p program) passMessage(ctx context.Context) error {
	res, answer, err := call(ctx, http.MethodPost, p.address+"/api/messages", article)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusAccepted {
		return fmt.Errorf("the answer to the message is %s %s", res.Status, answer)
	}

	// The status of the message is read once, so its reader cannot wait for the delivery.
	if err := waitFor(ctx, endTime); err != nil {
		return err
	}

	res, answer, err = call(ctx, http.MethodGet, res.Header.Get("Location"), "")
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK || !strings.Contains(string(answer), "delivered") {
		return fmt.Errorf("the status of the message is %s %s, want delivered", res.Status, answer)
	}

	return nil
}

func call(ctx context.Context, method, address, body string) (*http.Response, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, deliverLimit)
	defer cancel()

	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}

	req.Header.Set("Content-Type", "application/xml")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()

	answer, err := io.ReadAll(res.Body)

	return res, answer, err
}

// awaitStatus waits until the address answers 200.
func awaitStatus(ctx context.Context, address string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	for {
		res, _, err := call(ctx, http.MethodGet, address, "")
		if err == nil && res.StatusCode == http.StatusOK {
			return nil
		}

		if err := waitFor(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("the program is not ready: %w", err)
		}
	}
}

func waitFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
