package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// keyed has the names of the functions that require a function key.
var keyed = []string{"batches", "cancel", "metrics", "move", "receive", "schedules", "status",
	"validate", "view", "write"}

// keyless has the names of the functions that need no key.
var keyless = []string{"health", "openapi"}

// targetRequest has the method and the target of a request line.
type targetRequest struct{ method, target string }

// TestKeys_AreABoundary sends each target with the function key of each function, to a host that
// forwards requests and to a host that proxies them. A request with the key of one function must
// never reach another function.
func TestKeys_AreABoundary(t *testing.T) {
	for _, mode := range []string{"forwarding", "proxying"} {
		t.Run(mode, func(t *testing.T) {
			s := newBareSystem(t)
			hostPort := freePort(t)
			s.weir, s.app = "http://127.0.0.1:"+hostPort, s.stageApp("level: info", "level: debug")
			args := []string{"--script-root", s.app, "--port", hostPort, "--http", mode,
				"--enableAuth", "--state-dir", t.TempDir()}
			for _, f := range keyed {
				args = append(args, "--function-key", f+"=key-of-"+f)
			}

			s.startProgram("funchost", append(s.handlerEnv(), "FUNCTIONS_WORKER_RUNTIME=custom",
				"AzureFunctionsJobHost__logging__logLevel__Function=Information"), args...)
			s.awaitCondition("the system is ready", startLimit,
				func() bool { return s.getStatus(s.weir+"/api/health") == http.StatusOK })
			targets := slices.Concat(recordedTargets(t), craftedTargets(), plainTargets)
			if len(targets) < 500 {
				t.Fatalf("got %d targets, want 500 at least", len(targets))
			}

			s.sendWithEachKey(targets)
			s.checkReached()
		})
	}
}

// recordedTargets returns the targets in targets.tsv, a record of requests to a real host.
func recordedTargets(t *testing.T) (targets []targetRequest) {
	t.Helper()
	for line := range strings.Lines(readFile(t,
		filepath.Join("..", "funchost", "host", "testdata", "targets.tsv"))) {
		columns := strings.Split(line, "\t")
		if !strings.HasPrefix(line, "#") && columns[0] != "method" {
			targets = append(targets, targetRequest{columns[0], columns[1]})
		}
	}

	return targets
}

// craftedTargets returns targets that begin with one function's route, and use ../ to lead to
// another function's route. The targets spell ../ in unusual ways: a host or a handler may take
// such a spelling for ../ or for part of a name.
func craftedTargets() (targets []targetRequest) {
	up := []string{`..%5C`, `%2e%2e%5C`, `%252e%252e/`, `%252e%252e%5C`, `%5C..%5C`, `..%255C`,
		`..%2F`, `.%5C..%5C`}
	from := map[string][]string{
		"GET": {"/api/messages/", "/api/schedules/", "/api/schedules/a/", "/api/dashboard/",
			"/api/lanes/"},
		"POST":   {"/api/schedules/", "/api/schedules/a/", "/api/", "/api/messages/a/"},
		"DELETE": {"/api/messages/", "/api/schedules/", "/api/replays/"},
		"PATCH":  {"/api/messages/"},
		"PUT":    {"/api/schedules/"},
	}

	to := map[string][]string{
		"GET": {"lanes", "metrics", "dashboard", "messages", "schedules/a"},
		"POST": {"pause", "messages", "schedules/a/run", "messages/a/cancel", "validate",
			"..%5Csweep", "..%5Cprocess", "%252e%252e/poison"},
		"DELETE": {"schedules/a", "replays/7", "messages/a"},
		"PATCH":  {"schedules/a"},
		"PUT":    {"messages/a"},
	}

	for method, starts := range from {
		for _, start := range starts {
			for _, step := range up {
				for _, end := range to[method] {
					targets = append(targets, targetRequest{method, start + step + end},
						targetRequest{method, start + "x%5C" + step + step + end})
				}
			}
		}
	}

	return targets
}

// plainTargets has at least one target for each function in keyed. A request with that function's
// key must reach the function.
var plainTargets = []targetRequest{
	{"DELETE", "/api/messages/a"}, {"GET", "/api/metrics"}, {"PATCH", "/api/messages/a"},
	{"POST", "/api/messages"},
	{"GET", "/api/schedules"}, {"GET", "/api/batches"}, {"GET", "/api/batches/a"},
	{"POST", "/api/batches"}, {"DELETE", "/api/batches/a"},
	{"GET", "/api/schedules/.night"}, {"GET", "/api/messages/a"}, {"GET", "/api/openapi.yaml"},
	{"POST", "/api/resume"},
	{"POST", "/api/messages/"}, {"POST", "/api/validate"},
}

// sendWithEachKey sends all targets with each key. Each key has its own goroutine and connection.
func (s *system) sendWithEachKey(targets []targetRequest) {
	s.t.Helper()
	var all sync.WaitGroup
	for _, f := range keyed {
		all.Go(func() {
			c := &rawClient{address: strings.TrimPrefix(s.weir, "http://"), key: "key-of-" + f}
			defer c.closeConn()

			for _, r := range targets {
				if status, err := c.sendTarget(r); err != nil ||
					status == http.StatusMovedPermanently ||
					status == http.StatusTemporaryRedirect {
					s.t.Errorf(
						"%s %s with the key of %s: got %d %v, want an answer that is no redirect",
						r.method,
						r.target, f, status, err)
				}
			}
		})
	}

	all.Wait()
}

var (
	executing = regexp.MustCompile(`Executing 'Functions\.(\w+)' \(.*Id=([0-9a-f-]+)`)
	answered  = regexp.MustCompile(
		`"http: answered","function":"(\w+)","invocation_id":"([0-9a-f-]+)"`)
)

// checkReached compares the function whose key the host checked (host's log) with the function that
// answered (handler's log). Both must be the same for each invocation, and each function must have
// answered.
func (s *system) checkReached() {
	s.t.Helper()

	// The functions in keyed and keyless must all have answered.
	all := func(served map[string]int) bool { return len(served) == len(keyed)+len(keyless) }
	var served map[string]int
	s.awaitCondition("each function is served", time.Minute, func() bool {
		served = map[string]int{}
		called, log := map[string]string{}, s.output.String()
		for _, m := range executing.FindAllStringSubmatch(log, -1) {
			called[m[2]] = m[1]
		}

		for _, m := range answered.FindAllStringSubmatch(log, -1) {
			if f, isHTTP := called[m[2]]; !isHTTP || f != m[1] {
				s.t.Errorf("a call of %q was served by %s, want the same function", f, m[1])
			}
			if slices.Contains(keyed, m[1]) || slices.Contains(keyless, m[1]) {
				served[m[1]]++
			}
		}

		return all(served) || s.t.Failed()
	})

	s.t.Logf("served: %v", served)
}

// rawClient sends each target unchanged, because http.Client would change some targets. It reuses
// its connection.
type rawClient struct {
	address, key string
	conn         net.Conn
	answers      *bufio.Reader
}

func (c *rawClient) closeConn() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

func (c *rawClient) sendTarget(r targetRequest) (status int, err error) {
	if c.conn == nil {
		if c.conn, err = net.Dial("tcp", c.address); err != nil {
			return 0, err
		}
		c.answers = bufio.NewReader(c.conn)
	}

	fmt.Fprintf(c.conn, "%s %s HTTP/1.1\r\nHost: weir.example\r\nX-Functions-Key: %s\r\nContent-Length: 0\r\n\r\n",
		r.method, r.target, c.key)
	resp, err := http.ReadResponse(c.answers, &http.Request{Method: r.method})
	if err != nil {
		c.closeConn()
		return 0, err
	}

	if _, err = io.Copy(io.Discard, resp.Body); err != nil || resp.Close {
		c.closeConn()
	}

	resp.Body.Close()

	return resp.StatusCode, err
}

// Without WEIR_PREFIX, a host would leave out the functions with queue triggers, and run the
// others. The handler prevents this: it logs the missing setting, and exits.
func TestStart_WithoutPrefix(t *testing.T) {
	s, hostPort := newBareSystem(t), freePort(t)
	s.app = s.stageApp()
	env := slices.DeleteFunc(append(s.handlerEnv(), "FUNCTIONS_WORKER_RUNTIME=custom"),
		func(v string) bool { return strings.HasPrefix(v, "WEIR_PREFIX=") })
	writeFile(t, filepath.Join(s.app, "process", "function.json"),
		strings.ReplaceAll(readFile(t, filepath.Join(s.app, "process", "function.json")),
			"%WEIR_PREFIX%", "weir"),
		0o644)

	writeFile(t, filepath.Join(s.app, "poison", "function.json"),
		strings.ReplaceAll(readFile(t, filepath.Join(s.app, "poison", "function.json")),
			"%WEIR_PREFIX%", "weir"),
		0o644)

	s.startProgram("funchost", env, "--script-root", s.app, "--port", hostPort, "--state-dir",
		t.TempDir())
	s.awaitCondition("the host has given up", startLimit, func() bool {
		log := s.output.String()
		return strings.Contains(log, `"msg":"handler: wrong setting","err":"WEIR_PREFIX is not set`) &&
			strings.Contains(log, "Exceeded http worker restart retry count")
	})
}
