package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/testkit/azurite"
	"weir/tools/atonce"
	"weir/tools/funchost/host"
)

// directorEnv names an environment variable with the URL of the director. The director is the
// test's HTTP server that tells the fake handler how to answer. If the variable is set, this test
// binary runs as the fake handler.
const directorEnv = "FUNCHOST_TEST_DIRECTOR"

func TestMain(m *testing.M) {
	if url := os.Getenv(directorEnv); url != "" {
		os.Exit(runFakeHandler(url))
	}

	if err := atonce.SetTests(8); err != nil { // most tests wait for a host that waits
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	azurite.Main(m)
}

// handlerCall is a request that the handler got, with data about the handler's process.
type handlerCall struct {
	Method, URI, Host, Body string
	Header                  http.Header
	Chunked                 bool
	WorkerID, Dir           string
	Group, SKU, Environment string
	PID                     int
}

// handlerOrder tells the fake handler how to answer a call. For the zero value the handler answers
// 200 with an empty object.
type handlerOrder struct {
	Status int
	Type   string
	Header http.Header
	Body   string
	Exit   *int // end the process
	Hang   bool // never answer
	Stdout string
	Stderr string
	NoBody bool // answer with an empty body
	// close the connection after so many bytes of the body; negative = before any byte of the
	// answer
	Break int
	Flush bool // send half of the body, ask the director again, and then send the other half
	Watch bool // when the client has disconnected, ask the director again
}

// runFakeHandler is the fake handler. For each request to a path other than / it asks the director
// for an order, and follows the order.
func runFakeHandler(director string) int {
	server := &http.Server{Addr: "127.0.0.1:" + os.Getenv("FUNCTIONS_CUSTOMHANDLER_PORT"),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/" {
				// the host takes any answer as a sign that the handler is ready
				w.WriteHeader(http.StatusTeapot)
				return
			}

			o := askDirector(director, r)
			switch {
			case o.Watch:
				<-r.Context().Done()
				gone := r.Clone(context.Background())
				gone.RequestURI, gone.Body = "/gone", http.NoBody
				askDirector(director, gone)

			case o.Flush:
				half := len(o.Body) / 2
				fmt.Fprint(w, o.Body[:half])
				w.(http.Flusher).Flush()
				again := r.Clone(context.Background())
				again.RequestURI, again.Body = "/again", http.NoBody
				askDirector(director, again)
				fmt.Fprint(w, o.Body[half:])

			case o.Break != 0:
				cutOff(w, o)
			default:
				followOrder(w, o)
			}
		})}

	if os.Getenv("FUNCHOST_TEST_DIE") != "" {
		return 7
	}

	if err := server.ListenAndServe(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}

	return 1
}

func askDirector(director string, r *http.Request) handlerOrder {
	body, _ := io.ReadAll(r.Body)
	dir, _ := os.Getwd()
	raw, _ := json.Marshal(handlerCall{
		Method: r.Method, URI: r.RequestURI, Host: r.Host, Header: r.Header, Body: string(body),
		Chunked:  r.ContentLength < 0,
		WorkerID: os.Getenv("FUNCTIONS_CUSTOMHANDLER_WORKER_ID"), Dir: dir, PID: os.Getpid(),
		Group: os.Getenv("FUNCTIONS_TARGET_GROUP"), SKU: os.Getenv("WEBSITE_SKU"),
		Environment: os.Getenv("AZURE_FUNCTIONS_ENVIRONMENT"),
	})

	var o handlerOrder
	res, err := http.Post(director, "application/json", bytes.NewReader(raw))
	if err != nil {
		return handlerOrder{Status: 599}
	}
	defer res.Body.Close()
	_ = json.NewDecoder(res.Body).Decode(&o)

	return o
}

// cutOff closes the connection after a part of the answer. If o.Break is negative, it resets the
// connection without an answer.
func cutOff(w http.ResponseWriter, o handlerOrder) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}

	if o.Break > 0 {
		part := strings.Repeat("x", o.Break)
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n",
			len(part), part)
	} else {
		_ = conn.(*net.TCPConn).SetLinger(0)
	}

	_ = conn.Close()
}

func followOrder(w http.ResponseWriter, o handlerOrder) {
	fmt.Fprint(os.Stdout, o.Stdout)
	fmt.Fprint(os.Stderr, o.Stderr)
	if o.Exit != nil {
		os.Exit(*o.Exit)
	}

	if o.Hang {
		select {}
	}

	if o.Type == "" {
		o.Type = "application/json"
	}

	for name, values := range o.Header {
		w.Header()[name] = values
	}

	w.Header().Set("Content-Type", o.Type)
	w.WriteHeader(max(o.Status, 200))
	if o.Body == "" && !o.NoBody {
		o.Body = "{}"
	}

	fmt.Fprint(w, o.Body)
}

// rig has a host, its script root, and the director, which sends the orders of the test to the fake
// handler.
type rig struct {
	t     *testing.T
	root  string
	calls chan handlerCall
	out   *safeOutput
	cfg   host.Config
	host  *host.Host
	over  chan struct{} // closed at the end of the test, so that no call waits for an order

	mu     sync.Mutex
	decide func(handlerCall) handlerOrder
}

// safeOutput collects the host's output.
type safeOutput struct {
	mu   sync.Mutex
	text strings.Builder
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

// rigOptions are the options of a rig. The field "hostJSON" replaces members of the rig's
// host.json. The field "functions" has the content of each function.json, by the name of its
// function. If "decide" is nil, the handler answers each call with success.
type rigOptions struct {
	hostJSON  map[string]any
	functions map[string]string
	env       []string
	cfg       host.Config
	decide    func(handlerCall) handlerOrder
}

func newRig(t *testing.T, o rigOptions) *rig {
	t.Helper()
	r := &rig{t: t, root: t.TempDir(), calls: make(chan handlerCall, 1000), out: &safeOutput{},
		cfg: o.cfg, decide: o.decide, over: make(chan struct{})}
	director := httptest.NewServer(http.HandlerFunc(r.answerHandler))
	t.Cleanup(director.Close)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	file := map[string]any{
		"version": "2.0",
		"customHandler": map[string]any{
			"description": map[string]any{"defaultExecutablePath": self,
				"arguments": []string{"-test.run=^$"}},
			"enableForwardingHttpRequest": true,
		},
	}

	for key, value := range o.hostJSON {
		file[key] = value
	}

	raw, _ := json.Marshal(file)
	r.writeFile("host.json", string(raw))
	for name, text := range o.functions {
		r.writeFile(name+"/function.json", text)
	}

	r.cfg.ScriptRoot, r.cfg.Out, r.cfg.StateDir = r.root, r.out, filepath.Join(r.root, ".state")

	// The race detector would let each fake handler sleep for a second before it exits.
	env := append([]string{directorEnv + "=" + director.URL, "GORACE=atexit_sleep_ms=0"}, o.env...)
	r.cfg.Env = append(os.Environ(), env...)

	return r
}

func (r *rig) answerHandler(w http.ResponseWriter, q *http.Request) {
	var c handlerCall
	if err := json.NewDecoder(q.Body).Decode(&c); err != nil {
		r.t.Errorf("director: %v", err)
	}

	r.calls <- c
	r.mu.Lock()
	decide := r.decide
	r.mu.Unlock()
	if decide == nil {
		decide = func(handlerCall) handlerOrder { return handlerOrder{} }
	}

	decided := make(chan handlerOrder, 1)
	go func() { decided <- decide(c) }()

	select {
	case o := <-decided:
		_ = json.NewEncoder(w).Encode(o)
	case <-r.over: // the test has ended, perhaps by a failure, and decide may never return
	}
}

func (r *rig) writeFile(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		r.t.Fatal(err)
	}

	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) startHost() *rig {
	r.t.Helper()
	h, err := host.Start(r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}

	r.host = h
	r.t.Cleanup(func() {
		close(r.over)
		h.Stop()
		if r.t.Failed() {
			r.t.Log(r.out.String())
		}
	})

	return r
}

// patience is how long a test waits for an event before it fails. It is longer than the time
// without progress after which testprogress ends a run: a slow machine is no failure.
const patience = 10 * time.Minute

func (r *rig) nextCall() handlerCall {
	r.t.Helper()
	select {
	case c := <-r.calls:
		return c
	case err := <-r.host.Failed():
		r.t.Fatalf("the host gave up (%v), want a call of the handler", err)
	case <-time.After(patience):
		r.t.Fatal("got no call of the handler, want one")
	}

	return handlerCall{}
}

// awaitFailure waits until the host gives up.
func (r *rig) awaitFailure() error {
	r.t.Helper()
	select {
	case err := <-r.host.Failed():
		return err
	case <-time.After(patience):
		r.t.Fatal("the host runs on, want it to give up")
		return nil
	}
}

// awaitCondition calls "ok" repeatedly until the result is true. After the time "patience" it fails
// the test.
func awaitCondition(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("not reached: %s", what)
		}
	}
}

// hostAnswer is a response with its body read.
type hostAnswer struct {
	*http.Response
	body string
}

func (r *rig) sendRequest(method, path, body string, change ...func(*http.Request)) hostAnswer {
	r.t.Helper()
	q, err := http.NewRequestWithContext(context.Background(), method, r.host.URL()+path,
		strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}

	for _, f := range change {
		f(q)
	}

	client := &http.Client{
		Timeout: 4 * patience,
		Transport: &http.Transport{DisableKeepAlives: true,
			ExpectContinueTimeout: 30 * time.Second},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}

	res, err := client.Do(q)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}

	return hostAnswer{res, string(text)}
}

const httpOut = `{"type":"http","direction":"out","name":"res"}`

func httpFunction(extra string) string {
	return `{"bindings":[{"type":"httpTrigger","direction":"in","name":"req"` + extra + `},` +
		httpOut + `]}`
}
