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
	"regexp"
	"strconv"
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
	// idleTime is the time of the run without a message. It contains a sweep of the timer, which
	// runs each minute, so no sweep counts as code of the message.
	idleTime = 70 * time.Second
	// endTime lets the holder linger at the empty lane, and hand it over.
	endTime = 6 * time.Second
)

const article = `<article path="/news/1" version="1"><title>One message</title></article>`

// traceMessage runs the program of the tree in the folder dir twice, without a message and with
// one, and returns the blocks of code that only the second run executed.
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

	idle, err := r.run(ctx, "idle", func(ctx context.Context, _ string) error {
		return waitFor(ctx, idleTime)
	})
	if err != nil {
		return coverage{}, fmt.Errorf("run without a message: %w", err)
	}

	busy, err := r.run(ctx, "busy", passMessage)
	if err != nil {
		return coverage{}, fmt.Errorf("run with one message: %w", err)
	}

	return busy.without(idle), nil
}

// tracer runs the program of one tree.
type tracer struct {
	dir, work, connection string
}

// buildPrograms builds the program of the tree with counters, and the host of this command's tree.
func (r *tracer) buildPrograms(ctx context.Context) error {
	builds := []*exec.Cmd{
		exec.CommandContext(ctx, "go", "build", "-cover", "-coverpkg", module+"/...", "-o",
			filepath.Join(r.work, "app", "handler"), "./handler"),
		exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(r.work, "funchost"),
			"weir/tools/funchost"),
	}

	builds[0].Dir = r.dir
	for _, build := range builds {
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(build.Args, " "), err, out)
		}
	}

	return r.stageApp()
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

// run starts the program under a host, calls work with the host's address, stops both, and returns
// the coverage of the program. The CMS accepts each request.
func (r *tracer) run(ctx context.Context, name string, work func(context.Context, string) error,
) (coverage, error) {
	counters := filepath.Join(r.work, name)
	if err := os.Mkdir(counters, 0o750); err != nil {
		return coverage{}, err
	}

	cms := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		w.WriteHeader(http.StatusCreated)
	}))
	defer cms.Close()

	port, err := freeport.Pick()
	if err != nil {
		return coverage{}, err
	}

	address := fmt.Sprintf("http://127.0.0.1:%d", port)
	host := exec.CommandContext(ctx, filepath.Join(r.work, "funchost"), "--script-root",
		filepath.Join(r.work, "app"), "--port", fmt.Sprint(port), "--state-dir", counters)
	host.Env = append(os.Environ(), "GOCOVERDIR="+counters, "FUNCTIONS_WORKER_RUNTIME=custom",
		"AzureWebJobsStorage="+r.connection, "WEIR_PREFIX="+name, "WEIR_CMS_URL="+cms.URL,
		"ASPNETCORE_URLS="+address)
	var output outputBuffer
	host.Stdout, host.Stderr = &output, &output
	if err := host.Start(); err != nil {
		return coverage{}, err
	}

	err = awaitStatus(ctx, address+"/api/health", startLimit)
	if err == nil {
		err = work(ctx, address)
	}

	if err == nil {
		err = stopProgram(ctx, output.String(), counters)
	}

	err = errors.Join(err, host.Process.Signal(syscall.SIGTERM), host.Wait())
	if err != nil {
		return coverage{}, fmt.Errorf("%w\n%s", err, output.String())
	}

	return readCoverage(ctx, counters)
}

// startedLine is a line of the host, with the process id of the program.
var startedLine = regexp.MustCompile(`Worker process started.* pid ([0-9]+)`)

// stopProgram lets the program end by itself, and waits for its counters. The host would kill it,
// and a killed program writes none.
func stopProgram(ctx context.Context, output, counters string) error {
	match := startedLine.FindStringSubmatch(output)
	if match == nil {
		return errors.New("the host names no process of the program")
	}

	pid, err := strconv.Atoi(match[1])
	if err != nil {
		return err
	}

	process, err := os.FindProcess(pid)
	if err != nil {
		return err
	}

	if err := process.Signal(syscall.SIGTERM); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()

	for {
		found, err := filepath.Glob(filepath.Join(counters, "covcounters.*"))
		if err != nil || len(found) > 0 {
			return err
		}

		if err := waitFor(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("the program has written no counters: %w", err)
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
func passMessage(ctx context.Context, address string) error {
	res, answer, err := call(ctx, http.MethodPost, address+"/api/messages", article)
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
