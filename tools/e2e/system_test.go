// Package e2e_test runs the whole system as processes on this machine: Azurite (the emulator of Azure Storage), the
// demo CMS, and funchost with one or more handlers. funchost is a stand-in for the Functions host. Most tests check the
// requests that the demo CMS has recorded. Some tests use a RabbitMQ broker or a real CMS.
//
// Old Functions hosts forward requests to the handler, and new hosts proxy them (see host.Mode). Some tests run in both
// modes. The other tests use a host that proxies, or one that forwards if E2E_HTTP=forwarding is set.
package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/internal/openapi"
	"weir/internal/openapi/openapitest"
	"weir/internal/testkit/linear"
	"weir/tools/atonce"
	"weir/tools/browser"
	"weir/tools/democms/server"
	"weir/tools/freeport"
	"weir/tools/funchost/host"
)

// built is the folder with the programs that TestMain builds.
var built string

// answers is the transport of http.DefaultClient. It checks each answer of Weir against openapi.yaml.
var answers = &openapitest.Transport{Base: recorded}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "weir-e2e-")
	if err == nil {
		built = dir
		err = buildPrograms(dir)
	}
	if err == nil {
		answers.Document, err = openapitest.Read(openapi.Document)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	http.DefaultClient.Transport = answers
	if err := atonce.SetTests(testsAtOnce); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	code := m.Run()
	browser.Stop()
	os.RemoveAll(dir)
	if err := stopSharedStorage(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: storage:", err)
		code = max(code, 1)
	}
	if err := stopSharedBroker(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: broker:", err)
		code = max(code, 1)
	}
	for _, text := range answers.Others() {
		fmt.Fprintln(os.Stderr, "e2e: not as openapi.yaml has it:", text)
		code = max(code, 1)
	}
	os.Exit(code)
}

// testsAtOnce is the number of tests that run in parallel. Most tests wait most of the time, so
// more tests than processors can run.
const testsAtOnce = 6

func buildPrograms(dir string) error {
	tools, root := "..", filepath.Join("..", "..")
	for _, program := range []struct{ module, name string }{{root, "handler"}, {tools, "funchost"},
		{tools, "democms"}} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, program.name), "./"+program.name)
		cmd.Dir = program.module
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", program.name, err, out)
		}
	}
	return nil
}

// system is one installation of Weir, with its own storage account.
type system struct {
	t         *testing.T
	storage   *storageAccount
	app       string    // app folder of the host, its script root
	weir      string    // address of the host
	cms       string    // address of the demo CMS
	mode      host.Mode // how the host passes requests to the handler
	output    *processLogs
	history   linear.History
	hasKilled atomic.Bool // the test kills handlers or ends hosts
}

// processLogs gathers the output of all processes, which a failed test shows. Safe for concurrent use.
type processLogs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *processLogs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *processLogs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

const startLimit = 60 * time.Second

// usualLatency is the time that the demo CMS takes for a write, unless the test needs another.
const usualLatency = 20 * time.Millisecond

// newSystem starts the demo CMS and a host with the given number of instances. It waits until the
// system is ready. weirYAML has replacements in weir.yaml: old and new text in turn.
func newSystem(t *testing.T, instances int, weirYAML ...string) *system {
	t.Helper()
	return newSystemIn(t, nil, instances, weirYAML...)
}

// newSystemIn is newSystem with env added to the environment of the host.
func newSystemIn(t *testing.T, env []string, instances int, weirYAML ...string) *system {
	t.Helper()
	return newSystemUnder(t, env, []string{"--instances", fmt.Sprint(instances)}, weirYAML...)
}

// newSystemOnOwnStorage is newSystem with an Azurite that belongs to the test alone, so that the
// test can stop it.
func newSystemOnOwnStorage(t *testing.T, instances int, weirYAML ...string) *system {
	t.Helper()
	t.Parallel()
	s := newSystemOn(t, startOwnStorage(t))
	s.startCMS(usualLatency)
	s.app = s.stageApp(weirYAML...)
	s.startStagedHost(nil, []string{"--instances", fmt.Sprint(instances)})
	return s
}

// newSystemUnder is newSystemIn with flags of the host in place of the number of instances.
func newSystemUnder(t *testing.T, env, flags []string, weirYAML ...string) *system {
	t.Helper()
	s := newBareSystem(t)
	s.app = s.stageApp(weirYAML...)
	s.startStagedHost(env, flags)
	return s
}

// startStagedHost starts a host with the app in s.app, and waits until the system is ready.
func (s *system) startStagedHost(env, flags []string) {
	s.t.Helper()
	hostPort := freePort(s.t)
	s.weir = "http://127.0.0.1:" + hostPort
	s.t.Cleanup(answers.Watch("127.0.0.1:"+hostPort,
		func(text string) { s.t.Error("an answer differs from openapi.yaml:", text) }))
	// As on Azure, the environment names the host's port. If it does not, as in the tests of
	// several hosts, the handler reads the list of all connections of this machine each second.
	named := []string{"FUNCTIONS_WORKER_RUNTIME=custom",
		"ASPNETCORE_URLS=http://127.0.0.1:" + hostPort}
	s.startProgram("funchost", slices.Concat(s.handlerEnv(), env, named),
		append([]string{"--script-root", s.app, "--port", hostPort, "--give-up-after", "-1", "--state-dir",
			s.t.TempDir()}, flags...)...)
	s.awaitCondition("the system is ready", startLimit,
		func() bool { return s.getStatus(s.weir+"/api/health") == http.StatusOK })
}

// newBareSystem starts the demo CMS, but no host. It marks the test as parallel, because each test
// has its own processes and storage account, and waits most of the time.
func newBareSystem(t *testing.T) *system {
	t.Helper()
	return newBareSystemAt(t, usualLatency)
}

// newBareSystemAt is newBareSystem with a CMS that takes the time "latency" for each write.
func newBareSystemAt(t *testing.T, latency time.Duration) *system {
	t.Helper()
	t.Parallel()
	return newBareSystemBeside(t, latency)
}

// newBareSystemBeside is newBareSystemAt for a test that is already marked as parallel.
func newBareSystemBeside(t *testing.T, latency time.Duration) *system {
	t.Helper()
	s := newStorage(t)
	s.startCMS(latency)
	return s
}

// startCMS starts the demo CMS, and waits until it is ready.
func (s *system) startCMS(latency time.Duration) {
	s.t.Helper()
	cmsPort := freePort(s.t)
	s.cms = "http://127.0.0.1:" + cmsPort
	s.startProgram("democms", nil, "--port", cmsPort, "--latency", latency.String())
	s.awaitCondition("the CMS is ready", startLimit,
		func() bool { return s.getStatus(s.cms+"/stats") == http.StatusOK })
}

// newStorage makes a system that has only a storage account.
func newStorage(t *testing.T) *system {
	t.Helper()
	return newSystemOn(t, useSharedStorage(t))
}

// newSystemOn makes a system that has only the given storage account. If the test fails, the
// cleanup logs the last lines of all processes.
func newSystemOn(t *testing.T, account *storageAccount) *system {
	t.Helper()
	s := &system{t: t, storage: account, mode: modeOf(t), output: &processLogs{}}
	t.Cleanup(func() {
		if t.Failed() {
			lines := strings.Split(s.output.String(), "\n")
			t.Logf("the end of the log:\n%s", strings.Join(lines[max(0, len(lines)-80):], "\n"))
		}
	})
	return s
}

// handlerEnv returns the environment of a handler. GOGC is empty, because make test sets it for the
// tests alone.
func (s *system) handlerEnv() []string {
	return []string{"GOGC=", "AzureWebJobsStorage=" + s.storage.ConnectionString(), "WEIR_PREFIX=weir", "WEIR_CMS_URL=" + s.cms +
		"/api/content"}
}

// stageApp makes an app folder for the host, and returns its path. weirYAML has replacements in the project's
// weir.yaml: old and new text in turn.
func (s *system) stageApp(weirYAML ...string) string {
	s.t.Helper()
	settings := readFile(s.t, filepath.Join("..", "..", "weir.yaml"))
	return s.stageAppWith(strings.NewReplacer(weirYAML...).Replace(settings))
}

// stageAppWith makes an app folder for the host, with "settings" as the text of weir.yaml.
func (s *system) stageAppWith(settings string) string {
	s.t.Helper()
	app, root := s.t.TempDir(), filepath.Join("..", "..")
	writeFile(s.t, filepath.Join(app, "weir.yaml"), settings, 0o644)
	writeFile(s.t, filepath.Join(app, "host.json"), readFile(s.t, filepath.Join(root, "host.json")), 0o644)
	if err := os.Link(filepath.Join(built, "handler"), filepath.Join(app, "handler")); err != nil {
		s.t.Fatal(err)
	}
	functions, err := filepath.Glob(filepath.Join(root, "functions", "*", "function.json"))
	if err != nil || len(functions) < 7 {
		s.t.Fatalf("functions: %v %v, want at least 7 functions and no error", functions, err)
	}
	for _, f := range functions {
		name := filepath.Base(filepath.Dir(f))
		if err := os.Mkdir(filepath.Join(app, name), 0o755); err != nil {
			s.t.Fatal(err)
		}
		writeFile(s.t, filepath.Join(app, name, "function.json"), readFile(s.t, f), 0o644)
	}
	return app
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func writeFile(t *testing.T, path, data string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), mode); err != nil {
		t.Fatal(err)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	port, err := freeport.Pick()
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}

// startProgram starts one of the built programs. The cleanup of the test ends the program.
func (s *system) startProgram(program string, env []string, args ...string) {
	s.t.Helper()
	if program == "funchost" {
		args = append(args, "--http", string(s.mode))
	}
	cmd := exec.Command(filepath.Join(built, program), args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = s.output, s.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		done := make(chan struct{})
		go func() { cmd.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(slowdown * 20 * time.Second):
			cmd.Process.Kill()
			<-done
			s.t.Errorf("%s runs after its signal, want it to end", program)
		}
	})
}

// slowdown is how many times slower than a quiet machine a busy one may be. The tests have limits
// for a quiet machine, and wait so many times longer before they fail.
const slowdown = 6

// awaitCondition waits until holds returns true. After the time "limit", or longer on a busy
// machine (see slowdown), it fails the test with the condition's name.
func (s *system) awaitCondition(condition string, limit time.Duration, holds func() bool) {
	s.t.Helper()
	s.awaitConditionUntil(condition, time.Now().Add(slowdown*limit), holds)
}

// awaitConditionUntil waits until holds returns true. After the deadline it fails the test with the
// condition's name.
func (s *system) awaitConditionUntil(condition string, deadline time.Time, holds func() bool) {
	s.t.Helper()
	began, over := time.Now(), time.After(time.Until(deadline))

	// Each look costs requests to storage. So looks become rarer if the condition takes long.
	pause := 25 * time.Millisecond
	for !holds() {
		select {
		case <-time.After(pause):
			pause = min(pause*5/4, 500*time.Millisecond)
		case <-over:
			s.t.Fatalf("not reached within %s: %s", time.Since(began).Round(time.Second), condition)
		}
	}
}

// getStatus sends a GET, and returns the status of the answer; 0 = there was no answer.
func (s *system) getStatus(url string) int {
	resp, err := http.Get(url)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// postStatus sends a POST without a body, and returns the status of the answer; 0 = there was no answer.
func (s *system) postStatus(url string) int {
	resp, err := http.Post(url, "", nil)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

func getJSON[T any](s *system, url string) T {
	s.t.Helper()
	var v T
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := s.sendRequest(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		s.t.Fatalf("decode the answer of %s: %v", url, err)
	}
	return v
}

// sendRequest sends a request. If a handler ends during a request, the host answers 500 or 502 without a body. In a
// test that kills handlers or ends hosts, sendRequest repeats a GET that got such an answer, for up to 30 s.
func (s *system) sendRequest(req *http.Request) (*http.Response, error) {
	for limit := time.Now().Add(30 * time.Second); ; {
		resp, err := http.DefaultClient.Do(req)
		if err != nil || req.Method != http.MethodGet || !s.hasKilled.Load() || time.Now().After(limit) {
			return resp, err
		}
		if resp.ContentLength > 0 || resp.StatusCode != http.StatusInternalServerError &&
			resp.StatusCode != http.StatusBadGateway {
			return resp, nil
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil && len(text) > 0 {
			resp.Body = io.NopCloser(bytes.NewReader(text))
			return resp, nil
		}
	}
}

func (s *system) readStats() server.Stats {
	s.t.Helper()
	return getJSON[server.Stats](s, s.cms+"/stats")
}
func (s *system) readRequests() []server.Request {
	s.t.Helper()
	return getJSON[[]server.Request](s, s.cms+"/requests")
}

// setFaults replaces the faults of the demo CMS.
func (s *system) setFaults(json string) {
	s.t.Helper()
	resp, err := http.Post(s.cms+"/faults", "application/json", strings.NewReader(json))
	if err != nil || resp.StatusCode != http.StatusOK {
		s.t.Fatalf("faults %s: %v %v, want status 200 and no error", json, resp, err)
	}
	resp.Body.Close()
}

// postedMessage has some fields of the answers of functions/receive and functions/status.
type postedMessage struct {
	ID, Stage, Key, LastError string
	Attempts, CMSStatus       int
	Sequence                  int64
	Duplicate                 bool
	Location                  string `json:"-"`
	version                   int    // version that the test posted; 0 = unknown
}

// postMessageOnce posts a message once, and records the post in s.history.
func (s *system) postMessageOnce(path string, version int, idempotencyKey string) (postedMessage, error) {
	sent := time.Now()
	m, err := s.sendPost(path, version, idempotencyKey)
	s.recordPost(path, version, sent, m, err)
	return m, err
}

func versionedArticle(path string, version int) string {
	return fmt.Sprintf(`<article path="%s" version="%d"><title>Version %d</title></article>`, path, version, version)
}

// keyOf returns the Idempotency-Key that tests send with a version.
func keyOf(path string, version int) string { return fmt.Sprintf("%s@%d", path, version) }

// sendPost posts a message once, without an entry in s.history.
func (s *system) sendPost(path string, version int, idempotencyKey string) (postedMessage, error) {
	req, err := http.NewRequest(http.MethodPost, s.weir+"/api/messages",
		strings.NewReader(versionedArticle(path, version)))
	if err != nil {
		return postedMessage{}, err
	}
	req.Header.Set("Content-Type", "application/xml")
	req.Header.Set("Idempotency-Key", idempotencyKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return postedMessage{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		text, _ := io.ReadAll(resp.Body)
		return postedMessage{}, fmt.Errorf("%s: %s", resp.Status, text)
	}
	m := postedMessage{Location: resp.Header.Get("Location"), version: version}
	return m, json.NewDecoder(resp.Body).Decode(&m)
}

// postUntilAccepted repeats a post with the same Idempotency-Key until Weir accepts the message or ctx ends.
func (s *system) postUntilAccepted(ctx context.Context, path string, version int) (postedMessage, error) {
	for {
		m, err := s.postMessageOnce(path, version, keyOf(path, version))
		if err == nil {
			return m, nil
		}
		select {
		case <-ctx.Done():
			return m, errors.Join(err, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// postBurst posts the versions 1 to n of each path. Each path has one client, which posts the versions in order.
// postBurst returns the accepted messages.
func (s *system) postBurst(ctx context.Context, paths, n int) []postedMessage {
	return s.postBurstFrom(ctx, paths, n, 1)
}

// postBurstFrom is postBurst with n versions from the version "first" on.
func (s *system) postBurstFrom(ctx context.Context, paths, n, first int) []postedMessage {
	var mu sync.Mutex
	var accepted []postedMessage
	var wg sync.WaitGroup
	for p := range paths {
		wg.Go(func() {
			for v := range n {
				m, err := s.postUntilAccepted(ctx, fmt.Sprintf("/p/%d", p), first+v)
				if err != nil {
					return // ctx has ended, and an ended test cannot report an error
				}
				if v%4 == 0 {
					_, _ = s.readStage(m) // for the history; an error means that the test has killed the handler
				}
				mu.Lock()
				accepted = append(accepted, m)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return accepted
}

func (s *system) awaitStages(messages []postedMessage, stage string, limit time.Duration) {
	s.t.Helper()
	deadline := time.Now().Add(slowdown * limit)
	for _, m := range messages {
		s.awaitConditionUntil(fmt.Sprintf("%s is %s", m.ID, stage), deadline, func() bool {
			got, err := s.readStage(m)
			if err != nil {
				s.t.Fatalf("ask for message %s: %v", m.ID, err)
			}
			return got == stage
		})
	}
}

// checkRecord checks the CMS's record of a system with one lane. No path has two items, no writes overlap, and no write
// is out of its key's order. A message can have been written more than once.
func (s *system) checkRecord() server.Stats {
	s.t.Helper()
	st := s.readStats()
	if st.Duplicates != 0 || st.Overlaps != 0 || st.Inversions != 0 || st.MaxConcurrent > 1 {
		s.t.Errorf("the CMS's record: %+v, want Duplicates 0, Overlaps 0, Inversions 0 and MaxConcurrent at most 1",
			st)
	}
	return st
}
