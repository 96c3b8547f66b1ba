// Package e2e_test runs the whole system as processes on this machine: Azurite (the emulator of
// Azure Storage), the demo CMS, and funchost with one or more handlers. funchost is a stand-in for
// the Functions host. Most tests check the requests that the demo CMS has recorded. Some tests use
// a RabbitMQ broker or a real CMS.
//
// Old Functions hosts forward requests to the handler, and new hosts proxy them (see host.Mode).
// Some tests run in both modes. The other tests use a host that proxies, or one that forwards if
// E2E_HTTP=forwarding is set.
package e2e_test

import (
	"bytes"
	"fmt"
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
	"weir/internal/testkit/settings"
	"weir/tools/atonce"
	"weir/tools/browser"
	"weir/tools/freeport"
	"weir/tools/funchost/host"
)

// built is the folder with the programs that TestMain builds.
var built string

// answers is the transport of http.DefaultClient. It checks each answer of Weir against
// openapi.yaml.
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
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, program.name),
			"./"+program.name)
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

// processLogs gathers the output of all processes, which a failed test shows. Safe for concurrent
// use.
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
		append([]string{"--script-root", s.app, "--port", hostPort, "--give-up-after", "-1",
			"--state-dir", s.t.TempDir()}, flags...)...)
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
	return []string{"GOGC=", "AzureWebJobsStorage=" + s.storage.ConnectionString(),
		"WEIR_PREFIX=weir", "WEIR_CMS_URL=" + s.cms + "/api/content"}
}

// stageApp makes an app folder for the host, and returns its path. weirYAML has replacements in the
// tests' weir.yaml: old and new text in turn.
func (s *system) stageApp(weirYAML ...string) string {
	s.t.Helper()
	return s.stageAppWith(strings.NewReplacer(weirYAML...).Replace(settings.YAML))
}

// stageAppWith makes an app folder for the host, with "yaml" as the text of weir.yaml.
func (s *system) stageAppWith(yaml string) string {
	s.t.Helper()
	app, root := s.t.TempDir(), filepath.Join("..", "..")
	writeFile(s.t, filepath.Join(app, "weir.yaml"), yaml, 0o644)
	writeFile(s.t, filepath.Join(app, "host.json"),
		readFile(s.t, filepath.Join(root, "host.json")), 0o644)
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
// for a quiet machine, and wait so many times longer before they fail. So a limit of ten seconds
// becomes five minutes, the time without progress after which testprogress ends a run.
const slowdown = 30

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
