package fleet_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"go.uber.org/goleak"

	"weir/internal/testkit/azurite"
	"weir/tools/funchost/fleet"
)

// The variable program is the path of funchost, and connection is the connection string of storage.
// All tests share both.
var program, connection string

func TestMain(m *testing.M) {
	if os.Getenv("FUNCTIONS_CUSTOMHANDLER_PORT") != "" {
		os.Exit(runFakeHandler(os.Getenv("FLEET_TEST_DIR")))
	}
	goleak.VerifyTestMain(runner{m})
}

type runner struct{ m *testing.M }

// Run builds the program, starts storage, and runs all tests.
func (r runner) Run() int {
	dir, err := os.MkdirTemp("", "fleet-")
	defer func() { _ = os.RemoveAll(dir) }()
	if err == nil {
		program, err = fleet.Build(dir)
	}

	var process *azurite.Process
	if err == nil {
		process, err = azurite.Start(context.Background(), azurite.Options{})
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	connection = process.ConnectionString()
	code := r.m.Run()

	if err := process.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	return code
}

// runFakeHandler is the handler of the tests. It serves these addresses:
//
//	/q, /api/hold   answers when the file "release" exists in dir
//	/api/who        answers with the process id of its host
//	/api/listening  answers with the number of sockets on which its host listens
//
// It writes a file to dir when one of these events happens:
//
//	taken   a request to /q or /api/hold has arrived
//	closed  the host has closed the connection of such a request before the answer
//	signal  the process got a signal
func runFakeHandler(dir string) int {
	note := func(name, text string) {
		part := filepath.Join(dir, "."+name)
		_ = os.WriteFile(part, []byte(text), 0o600)
		_ = os.Rename(part, filepath.Join(dir, name)) // so that no reader sees a part of the file
	}

	signals := make(chan os.Signal, 1)
	signal.Notify(signals)
	go func() {
		for s := range signals {
			if s != syscall.SIGURG { // Go's runtime sends SIGURG to its own process
				note("signal", s.String())
			}
		}
	}()

	hold := func(w http.ResponseWriter, r *http.Request) {
		// otherwise net/http does not notice that the connection is closed
		_, _ = io.Copy(io.Discard, r.Body)
		note("taken", fmt.Sprint(os.Getpid()))

		if !isReleased(r.Context(), dir) {
			note("closed", "")
			return
		}

		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	}

	mux := http.NewServeMux()
	mux.HandleFunc("POST /q", hold)
	mux.HandleFunc("/api/hold", hold)
	mux.HandleFunc("/api/who",
		func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, os.Getppid()) })
	mux.HandleFunc("/api/listening", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, len(listListeningSockets(os.Getppid())))
	})
	err := http.ListenAndServe("127.0.0.1:"+os.Getenv("FUNCTIONS_CUSTOMHANDLER_PORT"), mux)
	fmt.Fprintln(os.Stderr, err)

	return 1
}

// isReleased waits until the file "release" exists or ctx ends. It reports whether the file exists.
func isReleased(ctx context.Context, dir string) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()

	for {
		if _, err := os.Stat(filepath.Join(dir, "release")); err == nil {
			return true
		}

		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

// listListeningSockets returns the sockets on which a process listens, from /proc. Weir's handler
// watches the socket of its host in the same way.
func listListeningSockets(pid int) []string {
	listening := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		raw, _ := os.ReadFile(table)
		for line := range strings.SplitSeq(string(raw), "\n") {
			if f := strings.Fields(line); len(f) > 9 && f[3] == "0A" {
				listening["socket:["+f[9]+"]"] = true
			}
		}
	}

	var out []string
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, file := range files {
		if target, _ := os.Readlink(file); listening[target] {
			out = append(out, target)
		}
	}

	return out
}

// rig is a fleet whose app has three HTTP functions and a queue function.
type rig struct {
	*fleet.Fleet
	t     *testing.T
	dir   string // folder to which the handler writes its files
	queue *azqueue.QueueClient
}

// safeOutput collects the hosts' output. Safe for concurrent use.
type safeOutput struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *safeOutput) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *safeOutput) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

var queueNumber atomic.Int64

func newRig(t *testing.T, args ...string) *rig {
	t.Helper()
	service, err := azqueue.NewServiceClientFromConnectionString(connection, nil)
	if err != nil {
		t.Fatal(err)
	}

	name := fmt.Sprintf("f%d-%d", time.Now().UnixNano(), queueNumber.Add(1))
	r := &rig{t: t, dir: t.TempDir(), queue: service.NewQueueClient(name)}
	if _, err := r.queue.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}

	root, out := r.writeApp(name), &safeOutput{}
	r.Fleet, err = fleet.Start(fleet.Options{
		Binary: program, Out: out,
		Args: append([]string{"--script-root", root, "--state-dir", t.TempDir()}, args...),
		Env:  []string{"FLEET_TEST_DIR=" + r.dir, "Store=" + connection},
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		r.Close()
		if t.Failed() {
			t.Log(out)
		}
	})

	return r
}

func (r *rig) writeApp(queue string) string {
	r.t.Helper()
	root := r.t.TempDir()
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}

	files := map[string]string{
		"host.json": `{"version":"2.0","customHandler":{"description":{"defaultExecutablePath":"` +
			self +
			`"},"enableForwardingHttpRequest":true}}`,
		"q/function.json": `{"bindings":[{"type":"queueTrigger","name":"item","queueName":"` +
			queue +
			`","connection":"Store"}]}`,
	}

	for _, name := range []string{"hold", "who", "listening"} {
		files[name+"/function.json"] =
			`{"bindings":[{"type":"httpTrigger","name":"req"},{"type":"http",` +
				`"direction":"out","name":"res"}]}`
	}

	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			r.t.Fatal(err)
		}

		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}

	return root
}

func (r *rig) addHost(args ...string) *fleet.Host {
	r.t.Helper()
	h, err := r.Add(r.t.Context(), args...)
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

// patience is how long a test waits for an event before it fails. It is longer than the time
// without progress after which testprogress ends a run: a slow machine is no failure.
const patience = 10 * time.Minute

func (r *rig) awaitCondition(what string, holds func() bool) {
	r.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()

	for limit := time.After(patience); !holds(); {
		select {
		case <-tick.C:
		case <-limit:
			r.t.Fatalf("not reached: %s", what)
		}
	}
}

func (r *rig) awaitEnd(h *fleet.Host) {
	r.t.Helper()
	select {
	case <-h.Done():
	case <-time.After(patience):
		r.t.Fatal("the host runs on, want it to end")
	}
}

// hasNote reports whether the handler has written the file with this name.
func (r *rig) hasNote(name string) bool {
	_, err := os.Stat(filepath.Join(r.dir, name))
	return err == nil
}

func (r *rig) releaseCalls() {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, "release"), nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// getURL sends a GET on a new connection. It returns the status 0 if the request got no answer.
func (r *rig) getURL(url string) (status int, body string) {
	q, err := http.NewRequestWithContext(context.WithoutCancel(r.t.Context()),
		http.MethodGet, url, nil)
	if err != nil {
		r.t.Error(err)
		return 0, ""
	}

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(q)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = res.Body.Close() }()
	raw, _ := io.ReadAll(res.Body)

	return res.StatusCode, string(raw)
}

// enqueueMessage puts a message into the queue, and waits until the handler has got the invocation.
func (r *rig) enqueueMessage() {
	r.t.Helper()
	text := base64.StdEncoding.EncodeToString([]byte(`hold`))
	if _, err := r.queue.EnqueueMessage(r.t.Context(), text, nil); err != nil {
		r.t.Fatal(err)
	}
	r.awaitCondition("the invocation is taken", func() bool { return r.hasNote("taken") })
}

// countMessages returns the number of messages in the queue, including invisible ones.
func (r *rig) countMessages() int {
	r.t.Helper()
	res, err := r.queue.GetProperties(r.t.Context(), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return int(*res.ApproximateMessagesCount)
}

func (r *rig) readHandlerPID(h *fleet.Host) int {
	r.t.Helper()
	pid := 0
	r.awaitCondition("the handler runs", func() bool {
		s, err := h.Status(r.t.Context())
		if err != nil || len(s.Instances) != 1 || s.Instances[0].State != "running" {
			return false
		}
		pid = s.Instances[0].PID
		return true
	})

	return pid
}

// isRunning reports whether a process exists and is not a zombie.
func isRunning(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// takerPID returns the process id of the handler that wrote the file "taken".
func (r *rig) takerPID() string {
	r.t.Helper()
	raw, err := os.ReadFile(filepath.Join(r.dir, "taken"))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(raw)
}
